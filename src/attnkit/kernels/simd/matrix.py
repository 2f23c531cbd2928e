"""Products of AMX's tiles: bfloat16 and bytes.

One instruction adds to 16 x 16 sums (Intel, "Architecture Instruction Set Extensions Programming Reference", 2020). A
tile is a register of 16 rows of 64 bytes. In a product of 16 rows and a panel of 64 columns, four hold the sums, one
the activations (16 rows, 64 bytes of inputs each) and three in turn the weights (16 groups of inputs, 16 columns):

            panel, 64 columns                  16 groups of inputs are 64 bytes of a row of activations;
            5      6      7      5   weights   a group of 16 columns' weights is 64 bytes of ``packing``'s layout,
    4       0      1      2      3   sums      and the next one is a panel further

The sums of a row do not depend on the other rows. What is behind the last row is read, and its sums are not used.
"""

from typing import Any

from attnkit.kernels.simd import vectors as v
from attnkit.kernels.simd.targets import MATRIX_ROWS, NumberFormat

try:
    from llvmlite import ir
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass

N_SUMS = 4  #: tiles of sums: the columns of a panel
ACTIVATIONS = 4
WEIGHTS = (5, 6, 7, 5)  #: the first is free again by then
SCRATCH_BYTES = MATRIX_ROWS * 64 * N_SUMS  #: sums of 16 rows and a panel


def _call(b: Any, name: str, *operands: Any) -> None:
    """Call an intrinsic; numbers of tiles are given as int."""
    values = [ir.Constant(ir.IntType(8), x) if isinstance(x, int) else x for x in operands]
    v.call(b, f"llvm.x86.{name}", ir.VoidType(), *values)


def _pointer(b: Any, address: Any) -> Any:
    return v.pointer(b, address, ir.IntType(8))


@v.intrinsic()
def begin_tiles(b: Any) -> None:
    """Say how large tiles are; a thread does so before its first product."""
    # 64 bytes: palette 1; from byte 16 on, bytes per row of each tile (int16); from byte 48 on, its rows (int8).
    content = [1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[MATRIX_ROWS] * 8, *[0] * 8]
    kind = ir.ArrayType(ir.IntType(8), 64)
    place = cgutils.alloca_once_value(b, ir.Constant(kind, content))
    _call(b, "ldtilecfg", b.bitcast(place, ir.PointerType(ir.IntType(8))))


@v.intrinsic()
def end_tiles(b: Any) -> None:
    """Give the tiles up: until then each change of threads saves 8 kB more."""
    _call(b, "tilerelease")


def allocate_scratch(b: Any) -> Any:
    """Return the address of room for the sums of 16 rows and a panel."""
    with b.goto_entry_block():  # numba's own way would fill it with zeros at each call
        place = b.alloca(ir.ArrayType(ir.IntType(8), SCRATCH_BYTES))
    place.align = 64
    return b.ptrtoint(place, ir.IntType(64))


def multiply(b: Any, number_format: NumberFormat, inputs: tuple[Any, Any], panel: tuple[Any, Any], out: Any) -> None:
    """Write the sums of 16 rows times a panel to ``out``, (16, 64).

    They are int32 of bytes, and float32 of bfloat16.

    ``inputs``: address of the first row, bytes between rows; ``panel``: address of its weights, number of groups.
    """
    (a, stride), (w, n_groups) = inputs, panel
    dot, group_bytes = "tdpbf16ps" if number_format == "bfloat16" else "tdpbusd", 64 * N_SUMS
    for j in range(N_SUMS):
        _call(b, "tilezero", j)
    with cgutils.for_range(b, b.udiv(n_groups, v.i64(MATRIX_ROWS))) as loop:
        _call(b, "tileloadd64", ACTIVATIONS, _pointer(b, b.add(a, b.mul(loop.index, v.i64(64)))), stride)
        weights = b.add(w, b.mul(loop.index, v.i64(MATRIX_ROWS * group_bytes)))
        for j, tile in enumerate(WEIGHTS):
            _call(b, "tileloadd64", tile, _pointer(b, v.offset(b, weights, 64 * j)), v.i64(group_bytes))
            _call(b, dot, j, ACTIVATIONS, tile)
    for j in range(N_SUMS):
        _call(b, "tilestored64", j, _pointer(b, v.offset(b, out, 64 * j)), v.i64(64 * N_SUMS))
