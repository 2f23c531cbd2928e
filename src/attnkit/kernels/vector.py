"""Operations on rows of floats in LLVM vectors of 16 lanes, twice as wide as LLVM chooses itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from llvmlite import ir
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass

# Letters: width is P / 16, the vectors of a row; b is llvmlite's IR builder.
UNROLLED = 20
# No "nnan" or "ninf": NaN must survive.
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
    # numba's array struct: its data pointer, then element k.
    kind, value = array
    return b.gep(context.make_array(kind)(context, b, value).data, [k])


def row_of(context: Any, b: Any, matrix: Any, rows: tuple[Any, Any], k: Any, width: int) -> Any:
    """Return the address of the row that the k-th number of a list names."""
    # Row number, then its address: rows are 64 * width bytes apart.
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
    # Lanes that belong to one vector at this level of the tree.
    group = 16
    # A tree of halvings: the sums of several vectors share their shuffles.
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
        # One load of x serves all rows.
        for total, address in zip(totals, addresses, strict=True):
            b.store(fma(b, part, load(b, address, j), b.load(total)), total)

    each(b, width, add)
    return sums_of(b, [b.load(total) for total in totals])


def loaded(b: Any, width: int, address: Any) -> Any:
    return [load(b, address, j) for j in range(width)] if width <= UNROLLED else address


try:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass


@intrinsic
def dots(typing: Any, lanes: Any, matrix: Any, rows: Any, n: Any, x: Any, out: Any) -> Any:
    """Set out[k] to the product of the row at ``x`` with the row rows[k] of a matrix, for k < n.

    ``rows`` and ``out`` need room for 3 more items; ``rows`` is written to there.
    """
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, rows_value, n_value, x_value, out_value = given
        listed, result = (rows, rows_value), (out, out_value)
        # Short rows stay in registers.
        kept = loaded(b, width, x_value)
        with b.if_then(b.icmp_signed(">", n_value, i64(0))):
            # Four rows at a time: the list is filled up with its last row, so that no group is partial.
            last = b.load(item_of(context, b, listed, b.sub(n_value, i64(1))))
            for more in range(3):
                b.store(last, item_of(context, b, listed, b.add(n_value, i64(more))))
        groups = b.sdiv(b.add(n_value, i64(3)), i64(4))
        with cgutils.for_range(b, groups) as loop:
            first = b.mul(loop.index, i64(4))
            places = [b.add(first, i64(k)) for k in range(4)]
            found = dot_group(b, width, kept, [row_of(context, b, base, listed, k, width) for k in places])
            for k, place in enumerate(places):
                # Four sums of 16 lanes: the k-th occurs in lanes 4 k .. 4 k + 3 (``lanes.sums_of``).
                lane = b.extract_element(found, ir.Constant(ir.IntType(32), 4 * k))
                b.store(lane, item_of(context, b, result, place))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, rows, types.int64, types.int64, out), emit


@intrinsic
def dots16(typing: Any, lanes: Any, matrix: Any, x: Any, out: Any) -> Any:
    """Set out[k] to the product of the row at ``x`` with the k-th of 16 rows from an address on; out at 64 bytes."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, x_value, out_value = given
        # 16 dot products reduce to one vector of 16 sums, stored at once.
        addresses = [b.add(base, i64(64 * width * k)) for k in range(16)]
        store(b, dot_group(b, width, loaded(b, width, x_value), addresses), out_value, 0)
        return context.get_dummy_value()

    return types.void(lanes, types.int64, types.int64, types.int64), emit


@intrinsic
def update(typing: Any, lanes: Any, matrix: Any, rows: Any, n: Any, places: Any, steps: Any) -> Any:
    """For k < n add steps[k] times the row rows[k] of a matrix to the row at places[1], then steps[k] times the row at
    places[0] to that row of the matrix.
    """
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, rows_value, n_value, both, steps_value = given
        x, errors = cgutils.unpack_tuple(b, both, 2)
        short = width <= UNROLLED
        kept = loaded(b, width, x)
        sums = [cgutils.alloca_once_value(b, zeros()) for _ in range(width if short else 0)]
        for j, total in enumerate(sums):
            b.store(load(b, errors, j), total)
        with cgutils.for_range(b, n_value) as loop:
            step = splat(b, b.load(item_of(context, b, (steps, steps_value), loop.index)))
            row = row_of(context, b, base, (rows, rows_value), loop.index, width)

            def move(j: Any) -> None:
                # The old value serves both: the error takes the row before the row takes its step.
                old = load(b, row, j)
                if short:
                    b.store(fma(b, step, old, b.load(sums[j])), sums[j])
                else:
                    store(b, fma(b, step, old, load(b, errors, j)), errors, j)
                store(b, fma(b, step, kept[j] if short else load(b, x, j), old), row, j)

            each(b, width, move)
        for j, total in enumerate(sums):
            store(b, b.load(total), errors, j)
        return context.get_dummy_value()

    return types.void(lanes, types.int64, rows, types.int64, types.UniTuple(types.int64, 2), steps), emit


@intrinsic
def weigh(typing: Any, lanes: Any, matrix: Any, n: Any, steps: Any, out: Any) -> Any:
    """Add to the row at ``out``, for k < n, the k-th row from an address on times the k-th of the floats at steps[0],
    which stand steps[1] bytes apart.
    """
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, n_value, both, target = given
        first, apart = cgutils.unpack_tuple(b, both, 2)
        short = width <= UNROLLED
        sums = [cgutils.alloca_once_value(b, zeros()) for _ in range(width if short else 0)]
        for j, total in enumerate(sums):
            b.store(load(b, target, j), total)
        with cgutils.for_range(b, n_value) as loop:
            # A stride in bytes, so that columns of a matrix of steps can be read as well.
            place = b.add(first, b.mul(loop.index, apart))
            step = splat(b, b.load(b.inttoptr(place, ir.PointerType(ir.FloatType()))))
            row = b.add(base, b.mul(loop.index, i64(64 * width)))

            def move(j: Any) -> None:
                if short:
                    b.store(fma(b, step, load(b, row, j), b.load(sums[j])), sums[j])
                else:
                    store(b, fma(b, step, load(b, row, j), load(b, target, j)), target, j)

            each(b, width, move)
        for j, total in enumerate(sums):
            store(b, b.load(total), target, j)
        return context.get_dummy_value()

    return types.void(lanes, types.int64, types.int64, types.UniTuple(types.int64, 2), types.int64), emit


@intrinsic
def copy_row(typing: Any, lanes: Any, out: Any, x: Any) -> Any:
    """Set the row at ``out`` to that at ``x``."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        each(b, width, lambda j: store(b, load(b, given[2], j), given[1], j))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, types.int64), emit


@intrinsic
def item(typing: Any, array: Any, k: Any) -> Any:
    """Return array[k], without looking whether k counts from the end: that costs more than the rest."""

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        # Plain array[k] in numba compares k with 0 and adds the length.
        value = b.load(item_of(context, b, (array, given[0]), given[1]))
        return context.cast(b, value, array.dtype, signature.return_type)

    return types.int64(array, types.int64), emit


@intrinsic
def sum_rows(typing: Any, lanes: Any, matrix: Any, rows: Any, n: Any, scale: Any, out: Any) -> Any:
    """Set the row at ``out`` to ``scale`` times the sum of the rows rows[:n] of a matrix."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, rows_value, n_value, factor, target = given
        # Held in registers where they fit; otherwise the target itself holds them.
        sums = [cgutils.alloca_once_value(b, zeros()) for _ in range(width if width <= UNROLLED else 0)]
        for total in sums:
            b.store(zeros(), total)
        if not sums:
            each(b, width, lambda j: store(b, zeros(), target, j))
        with cgutils.for_range(b, n_value) as loop:
            row = row_of(context, b, base, (rows, rows_value), loop.index, width)
            for j, total in enumerate(sums):
                b.store(b.fadd(b.load(total), load(b, row, j)), total)
            if not sums:
                each(b, width, lambda j: store(b, b.fadd(load(b, target, j), load(b, row, j)), target, j))
        wide = splat(b, factor)
        each(b, width, lambda j: store(b, b.fmul(wide, b.load(sums[j]) if sums else load(b, target, j)), target, j))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, rows, types.int64, types.float32, types.int64), emit


@intrinsic
def add_to_rows(typing: Any, lanes: Any, matrix: Any, rows: Any, n: Any, scale: Any, x: Any) -> Any:
    """Add ``scale`` times the row at ``x`` to each of the rows rows[:n] of a matrix."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, rows_value, n_value, factor, source = given
        wide = splat(b, factor)
        with cgutils.for_range(b, n_value) as loop:
            row = row_of(context, b, base, (rows, rows_value), loop.index, width)
            each(b, width, lambda j: store(b, fma(b, wide, load(b, source, j), load(b, row, j)), row, j))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, rows, types.int64, types.float32, types.int64), emit


@intrinsic
def add_to_row(typing: Any, lanes: Any, out: Any, scale: Any, x: Any) -> Any:
    """Add ``scale`` times the row at ``x`` to the row at ``out``."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, target, factor, source = given
        wide = splat(b, factor)
        each(b, width, lambda j: store(b, fma(b, wide, load(b, source, j), load(b, target, j)), target, j))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, types.float32, types.int64), emit


@intrinsic
def clear(typing: Any, lanes: Any, x: Any) -> Any:
    """Fill the row at ``x`` with zeros."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        each(b, width, lambda j: store(b, zeros(), given[1], j))
        return context.get_dummy_value()

    return types.void(lanes, types.int64), emit


@intrinsic
def prefetch(typing: Any, lanes: Any, x: Any) -> Any:
    """Ask for the row at ``x``, which is going to be written to."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        # One prefetch per cache line of 64 bytes.
        byte, i32 = ir.PointerType(ir.IntType(8)), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        # Arguments: address, 1 = write, 3 = keep in all caches, 1 = data.
        ask = b.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        for j in range(min(width, UNROLLED)):  # the machine itself continues with what is longer
            place = b.inttoptr(b.add(given[1], i64(64 * j)), byte)
            b.call(ask, [place, ir.Constant(i32, 1), ir.Constant(i32, 3), ir.Constant(i32, 1)])  # write, keep, data
        return context.get_dummy_value()

    return types.void(lanes, types.int64), emit
