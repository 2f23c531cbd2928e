"""Operations on rows of floats for compiled loops: by itself LLVM takes vectors half as wide.

A row is named by its address (``matrix.ctypes.data`` and so on), at a multiple of 64 bytes; ``lanes`` is a tuple of as
many zeros as a row has vectors of 16 floats, so that a loop is compiled for one width.
"""

from __future__ import annotations

from typing import Any

from attnkit.kernels.lanes import (
    UNROLLED,
    dot_group,
    each,
    fma,
    i64,
    intrinsic,
    item_of,
    load,
    loaded,
    row_of,
    splat,
    store,
    zeros,
)

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
                # Four sums of 16 lanes: the k-th stands in lanes 4 k .. 4 k + 3 (``lanes.sums_of``).
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
        byte, i32 = ir.PointerType(ir.IntType(8)), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        ask = b.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        for j in range(min(width, UNROLLED)):  # the machine itself goes on with what is longer
            place = b.inttoptr(b.add(given[1], i64(64 * j)), byte)
            b.call(ask, [place, ir.Constant(i32, 1), ir.Constant(i32, 3), ir.Constant(i32, 1)])  # write, keep, data
        return context.get_dummy_value()

    return types.void(lanes, types.int64), emit
