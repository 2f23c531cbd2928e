"""Weights of products in the layout that compiled loops read. Needs no numba.

Letters: N columns, K inputs, P columns of a panel (``RegisterTile.panel``). A lane of 32 bits takes a group of inputs:
4 int8, 2 int16, 2 bfloat16 or 1 float32 (``GROUP``). The weights of a product are cut into panels::

    weights (N, K)  ->  packed (N / P, K / GROUP, P, GROUP)

                    group 0            group 1
        panel 0     c0 c1 ... c(P-1)   c0 c1 ... c(P-1)   ...    c: one group of inputs of one column, 4 bytes
        panel 1     ...

In int8 each column has a scale, and each row of activations too. Activations are unsigned bytes with a zero point z,
so that x w = scale_row scale_column (sum of bytes weights - z sum of weights): sums start at -z times the sum of a
column's weights. In other precisions they start at the bias.

int16 (screening alone) is signed on both sides, with a scale for each column and each row, too. Sums of 32 bits may
overflow on the way, but not at the end of a block of ``INT16_BLOCK`` inputs, where they become floats: the integers of
a block have a length (the root of the sum of squares) below 2**15.5, so that no product of two blocks reaches 2**31.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.simd.targets import PANEL, NumberFormat, Precision, Target

GROUP: dict[NumberFormat, int] = {"int8": 4, "int16": 2, "bfloat16": 2, "float32": 1}
"""Inputs of a lane."""
KEPT_BYTES: dict[Precision, int] = {"int8": 2, "bfloat16": 2, "float32": 4}
"""Bytes of one number of a cached key or value."""
INT16_BLOCK = 64  #: inputs whose products are added in 32 bits
INT16_LENGTH = 46_000.0  #: of a block, before rounding adds up to 4: 46,004 squared is below 2**31
MAX_INT16 = 2**15 - 1
MAX_SUM = (2**15 - 1) // 127  #: of weights of one sign whose products with activations are added in 16 bits
SPARSE_ROWS: dict[Precision, int] = {"float32": 2, "bfloat16": 2, "int8": 1}
"""Rows of a tile of a sparse product: what is zero in all of them is left out."""
SPARSE_BLOCK: dict[Precision, int] = {"float32": 64, "bfloat16": 32, "int8": 64}
"""Groups whose weights a sparse product reads together."""
_BLOCK = 1 << 16  # weights that are converted together
_DTYPES: dict[NumberFormat, Any] = {"int8": np.int8, "int16": np.int16, "bfloat16": np.uint16, "float32": np.float32}
LOWEST = -1e30  #: in place of minus infinity; bias of columns that only pad the output layer


class PackedWeights(NamedTuple):
    """Weights of one product as the tiles of ``make_product`` read them."""

    weights: NDArray[Any]  #: (N / P, K / GROUP, P, GROUP)
    start: NDArray[Any]  #: (N,): int32 in int8, else the bias
    scale: NDArray[np.float32]  #: (N,), per column
    bias: NDArray[np.float32]  #: (N,)


def pack(
    weight: NDArray[np.float32],
    bias: NDArray[np.float32],
    target: Target,
    number_format: NumberFormat,
    *,
    non_negative: bool = False,
    padding: float = 0.0,
) -> PackedWeights:
    """Pack a weight (N, K) and its bias (N,), padded to multiples of ``PANEL``.

    ``non_negative``: no activation is below zero, as after a ReLU. Columns that only pad get the bias ``padding``.
    """
    n_padded, k_padded = padded(len(weight)), padded(weight.shape[1])
    p, g = target.tile(number_format).panel, GROUP[number_format]
    padded_bias = np.full(n_padded, padding, np.float32)
    padded_bias[: len(bias)] = bias
    packed = zeros((n_padded // p, k_padded // g, p, g), _DTYPES[number_format])
    start, scale = aligned(padded_bias), zeros((n_padded,), np.float32)
    if number_format.startswith("int"):
        start = start.view(np.int32)
    for rows in _blocks(n_padded, k_padded):
        wide = _rows(weight, rows, k_padded)
        values, scale[rows] = _rounded(wide, target, number_format)
        if number_format == "int8":
            start[rows] = -target.zero_point(non_negative) * values.sum(1, dtype=np.int32)
        elif number_format == "int16":
            start[rows] = 0
        panels = slice(rows.start // p, rows.stop // p)
        packed[panels] = values.reshape(-1, p, k_padded // g, g).transpose(0, 2, 1, 3)
    return PackedWeights(packed, start, scale, aligned(padded_bias))


def _rounded(wide: NDArray[np.float32], target: Target, number_format: NumberFormat) -> tuple[NDArray[Any], Any]:
    """Return weights (n, K) in a number format, and the scale of each column or 1."""
    if number_format == "float32":
        return wide, 1.0
    if number_format == "bfloat16":
        bits = wide.view(np.uint32)
        # Rounds to nearest, to even among equals.
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16), 1.0
    if number_format == "int16":
        lengths = np.sqrt(np.square(wide.reshape(len(wide), -1, INT16_BLOCK)).sum(2)).max(1)
        scale = np.maximum(np.abs(wide).max(1) / MAX_INT16, lengths / INT16_LENGTH).astype(np.float32)
        scale[scale == 0] = 1
    else:
        scale = _column_scales(wide, target)
    return np.rint(wide / scale[:, None]).astype(_DTYPES[number_format]), scale


def _blocks(n: int, k: int) -> Iterator[slice]:
    """Yield ranges of rows of K numbers whose temporary copies stay in the cache."""
    size = max(1, _BLOCK // (k * PANEL)) * PANEL
    for begin in range(0, n, size):
        yield slice(begin, min(n, begin + size))


def _rows(weight: NDArray[np.float32], rows: slice, k: int) -> NDArray[np.float32]:
    """Return rows of a weight as (n, K), padded with zeros."""
    part = weight[rows]
    size = rows.stop - rows.start, k
    if part.shape == size:
        return np.ascontiguousarray(part)
    wide = np.zeros(size, np.float32)
    wide[: len(part), : part.shape[1]] = part
    return wide


def _column_scales(weight: NDArray[np.float32], target: Target) -> NDArray[np.float32]:
    """Return a scale of each column (N,) with which a product can add its integers.

    Integers are at most 127. Where G groups are added in 16 bits, 2 G products are, with activations of 0 to 127: the
    positive integers among them may add up to 32,767 / 127 = 258, and so may the negative ones. Rounding may take a
    half for each.
    """
    scale, g = np.abs(weight).max(1) / 127, target.summed_groups
    for signed in (weight, -weight) if g > 1 else ():
        sums = np.maximum(signed, 0).reshape(len(weight), -1, g, 2, 2).sum((2, 4)).max((1, 2))
        scale = np.maximum(scale, sums / (MAX_SUM - g))
    found: NDArray[np.float32] = np.where(scale > 0, scale, 1).astype(np.float32)
    return found


def column_lengths(weight: NDArray[np.float32], packed: PackedWeights) -> tuple[float, float]:
    """Return the largest length of a packed column, and of its rounding errors."""
    lengths = [0.0, 0.0]
    n_panels, n_groups, p, g = packed.weights.shape
    for rows in _blocks(n_panels * p, n_groups * g):
        values = packed.weights[rows.start // p : rows.stop // p].transpose(0, 2, 1, 3)
        rounded = values.reshape(rows.stop - rows.start, -1) * packed.scale[rows, None]
        for k, part in enumerate((rounded, _rows(weight, rows, n_groups * g) - rounded)):
            lengths[k] = max(lengths[k], float(np.sqrt(np.einsum("nk,nk->n", part, part).max())))
    return lengths[0], lengths[1]


def list_bytes(n_inputs: int, precision: Precision) -> int:
    """Return the bytes of a tile's lists in ``make_sparse_product``."""
    return n_inputs // GROUP[precision] // SPARSE_BLOCK[precision] * block_bytes(precision)


def block_bytes(precision: Precision) -> int:
    """Return the bytes of a block's list in ``make_sparse_product``."""
    return 64 + 4 * (SPARSE_BLOCK[precision] + 16)


def padded(n: int) -> int:
    """Return a width rounded up to a multiple of ``PANEL``."""
    return -(-n // PANEL) * PANEL


def allocate(n: int) -> NDArray[np.uint8]:
    """Return n bytes of zeros that begin at a multiple of 64."""
    raw = np.zeros(n + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + n]


def zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array of zeros that begins at a multiple of 64 bytes."""
    found: NDArray[Any] = allocate(math.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
    return found


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous copy that begins at a multiple of 64 bytes."""
    copy = zeros(array.shape, array.dtype)
    copy[...] = array
    return copy
