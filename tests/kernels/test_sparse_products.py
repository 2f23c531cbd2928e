"""Products of rows with many zeros give the bits of dense ones, and leave the memory around their lists alone."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from attnkit.kernels.jit import is_available, no_refcount
from attnkit.kernels.simd.packing import SPARSE_ROWS, aligned, list_bytes, pack
from attnkit.kernels.simd.targets import Precision, choose_target

COLUMNS, INPUTS, ROWS = 128, 512, 13
PAD = 8  #: rows behind the last one, which tiles may read and write


class Products(NamedTuple):
    products: NDArray[np.int64]


class Lists(NamedTuple):
    lists: int


@pytest.fixture(scope="module", params=["int8", "float32", "bfloat16"])
def loops(request: pytest.FixtureRequest) -> Any:
    if not is_available() or choose_target().multiplies_tiles(request.param) or not choose_target().fast_int8:
        pytest.skip("no sparse products on this processor")
    from attnkit.kernels.sublayers import NOTHING, build_linear, build_sparse_linear

    dense = build_linear(choose_target(), request.param, "store")
    sparse = build_sparse_linear(choose_target(), request.param, dense)

    @no_refcount
    def multiply_dense(model: Any, a: Any, scales: Any, n_rows: Any, out: Any) -> None:
        dense(model, 0, (a, scales, n_rows), (out, 4 * COLUMNS), NOTHING)

    @no_refcount
    def multiply_sparse(model: Any, a: Any, scales: Any, n_rows: Any, out: Any, buffers: Any) -> None:
        sparse(model, 0, (a, scales, n_rows), (out, 4 * COLUMNS), buffers)

    return request.param, multiply_dense, multiply_sparse


def encode(x: NDArray[np.float32], precision: Precision) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return rows (M, K) of numbers >= 0 as products read them, and scales (M,)."""
    scales = np.ones(len(x), np.float32)
    if precision == "float32":
        return x, scales
    if precision == "bfloat16":
        return (x.view(np.uint32) >> 16).astype(np.uint16), scales
    levels = choose_target().levels(non_negative=True)
    scales = (x.max(1) / levels + 1e-20).astype(np.float32)
    return np.rint(x / scales[:, None]).astype(np.uint8), scales


def decode(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers of a format, without scales, as float64."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


@pytest.mark.sample(2)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.6, 1.0])
def test_sparse_products_are_dense_ones(loops: Any, share: float) -> None:
    precision, multiply_dense, multiply_sparse = loops
    chance = np.random.default_rng(int(100 * share))
    weight = chance.normal(size=(COLUMNS, INPUTS)).astype(np.float32)
    bias = chance.normal(size=COLUMNS).astype(np.float32)
    x = np.where(chance.random((ROWS, INPUTS)) < share, np.abs(chance.normal(size=(ROWS, INPUTS))), 0)
    encoded, scales = encode(x.astype(np.float32), precision)
    packed = pack(weight, bias, choose_target(), precision, non_negative=True)
    model = Products(np.array([[*(part.ctypes.data for part in packed), COLUMNS, INPUTS]], np.int64))
    a = aligned(np.concatenate([encoded, np.zeros((PAD, INPUTS), encoded.dtype)]))
    factors = aligned(np.concatenate([scales, np.zeros(PAD, np.float32)]))
    size = (ROWS // SPARSE_ROWS[precision] + 1) * list_bytes(INPUTS, precision)
    lists = aligned(np.full(size + 64, 0xA5, np.uint8))
    found = []
    for multiply, others in ((multiply_dense, ()), (multiply_sparse, (Lists(lists.ctypes.data),))):
        out = aligned(np.full((ROWS + PAD, COLUMNS), np.nan, np.float32))
        multiply(model, a.ctypes.data, factors.ctypes.data, ROWS, out.ctypes.data, *others)
        found.append(out[:ROWS])
    assert np.array_equal(*found), precision
    assert (lists[size:] == 0xA5).all(), "written behind the lists"
    rounded = packed.weights.transpose(0, 2, 1, 3).reshape(COLUMNS, INPUTS)
    rows, columns = decode(encoded) * scales[:, None], decode(rounded) * packed.scale[:, None]
    assert np.abs(found[1] - (rows @ columns.T + bias)).max() < 1e-4 * np.abs(found[1]).max()
