"""LLVM code for rows of floats in vectors of 16 lanes, for ``vector`` and ``logistic``.

A row of up to ``UNROLLED`` vectors is kept in registers; longer ones are gone through in a loop, so that compiling
takes as long at any width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from llvmlite import ir
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass

UNROLLED = 20
REORDER = ("contract", "reassoc", "nsz")


def intrinsic(emitter: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that says how LLVM does something, as numba has it; without numba it stays what it is."""
    try:
        from numba import extending
    except ImportError:
        return emitter
    marked: Callable[..., Any] = extending.intrinsic(emitter)
    return marked


def vector_type() -> Any:
    return ir.VectorType(ir.FloatType(), 16)


def i64(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def place_of(b: Any, address: Any, j: Any) -> Any:
    """Return a pointer to the j-th vector of a row."""
    offset = i64(64 * j) if isinstance(j, int) else b.mul(j, i64(64))  # 16 float32 are 64 bytes
    return b.inttoptr(b.add(address, offset), ir.PointerType(vector_type()))


def load(b: Any, address: Any, j: Any) -> Any:
    return b.load(place_of(b, address, j), align=64)


def store(b: Any, value: Any, address: Any, j: Any) -> None:
    b.store(value, place_of(b, address, j), align=64)


def fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x y + z."""
    # Not llvm.fma: "contract" lets processors without FMA use two instructions.
    return b.fadd(b.fmul(x, y, flags=REORDER), z, flags=REORDER)


def zeros() -> Any:
    return ir.Constant(vector_type(), [0.0] * 16)


def splat(b: Any, value: Any) -> Any:
    empty = ir.Constant(vector_type(), ir.Undefined)
    # The usual LLVM idiom: insert at lane 0, then shuffle it to all lanes.
    first = b.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    return b.shuffle_vector(first, empty, ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16))


def item_of(context: Any, b: Any, array: tuple[Any, Any], k: Any) -> Any:
    """Return a pointer to an array's k-th item."""
    kind, value = array
    return b.gep(context.make_array(kind)(context, b, value).data, [k])


def row_of(context: Any, b: Any, matrix: Any, rows: tuple[Any, Any], k: Any, width: int) -> Any:
    """Return the address of the row that the k-th number of a list names."""
    number = b.load(item_of(context, b, rows, k))
    # Row numbers may be int32, addresses are 64 bits.
    wide = b.sext(number, ir.IntType(64)) if number.type.width < 64 else number
    return b.add(matrix, b.mul(wide, i64(64 * width)))


def each(b: Any, width: int, body: Callable[[Any], None]) -> None:
    """Do something for each vector of a row."""
    if width <= UNROLLED:
        for j in range(width):
            body(j)
        return
    with cgutils.for_range(b, i64(width)) as loop:
        body(loop.index)


def halves(b: Any, x: Any, y: Any, group: int) -> Any:
    """Add the halves of each group of lanes: those of x come first, then those of y."""
    half = group // 2
    # Lanes 0..15 are x's and 16..31 y's in LLVM's shuffle.
    low = [lane for lane in range(32) if lane % group < half]
    kind = ir.VectorType(ir.IntType(32), 16)
    lows = b.shuffle_vector(x, y, ir.Constant(kind, low))
    highs = b.shuffle_vector(x, y, ir.Constant(kind, [lane + half for lane in low]))
    return b.fadd(lows, highs, flags=REORDER)


def sums_of(b: Any, vectors: list[Any]) -> Any:
    """Return the sums over lanes of a power of two of vectors; the k-th begins at lane k * 16 / n."""
    group = 16
    while len(vectors) > 1:
        vectors = [halves(b, x, y, group) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
        group //= 2
    (found,) = vectors
    while group > 1:
        group //= 2
        # Butterfly: after the last round every lane of a group holds the sum.
        turned = ir.Constant(ir.VectorType(ir.IntType(32), 16), [lane ^ group for lane in range(16)])
        found = b.fadd(found, b.shuffle_vector(found, found, turned), flags=REORDER)
    return found


def dot_group(b: Any, width: int, x: Any, addresses: list[Any]) -> Any:
    """Return the sums of ``sums_of`` for the products of a row at ``x`` (loaded already if short) with some others."""
    # Stack slots, which LLVM turns into registers; they survive the loop for wide rows.
    totals = [cgutils.alloca_once_value(b, zeros()) for _ in addresses]
    for total in totals:
        b.store(zeros(), total)

    def add(j: Any) -> None:
        part = x[j] if isinstance(x, list) else load(b, x, j)
        for total, address in zip(totals, addresses, strict=True):
            b.store(fma(b, part, load(b, address, j), b.load(total)), total)

    each(b, width, add)
    return sums_of(b, [b.load(total) for total in totals])


def loaded(b: Any, width: int, address: Any) -> Any:
    return [load(b, address, j) for j in range(width)] if width <= UNROLLED else address
