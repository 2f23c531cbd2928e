"""Rows of floats in vectors of 16 lanes, written out in LLVM's terms: left to itself it takes half as wide ones.

A row is named by its address (``address`` gives a matrix's), at a multiple of 64 bytes; ``lanes`` is a tuple of as many
zeros as a row has vectors, so that a loop is compiled for one width. A row of up to ``UNROLLED`` vectors is kept in
registers; longer ones are gone through in a loop, so that compiling takes as long at any width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _unmarked(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]]
try:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic
except ImportError:  # nothing here is called then
    intrinsic = _unmarked


UNROLLED = 20
_REORDER = ("contract", "reassoc", "nsz")


def _vector() -> Any:
    return ir.VectorType(ir.FloatType(), 16)


def _i64(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _place(b: Any, address: Any, j: Any) -> Any:
    """Return a pointer to the j-th vector of a row."""
    offset = _i64(64 * j) if isinstance(j, int) else b.mul(j, _i64(64))
    return b.inttoptr(b.add(address, offset), ir.PointerType(_vector()))


def _load(b: Any, address: Any, j: Any) -> Any:
    return b.load(_place(b, address, j), align=64)


def _store(b: Any, value: Any, address: Any, j: Any) -> None:
    b.store(value, _place(b, address, j), align=64)


def _fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x y + z."""
    return b.fadd(b.fmul(x, y, flags=_REORDER), z, flags=_REORDER)


def _zeros() -> Any:
    return ir.Constant(_vector(), [0.0] * 16)


def _splat(b: Any, value: Any) -> Any:
    empty = ir.Constant(_vector(), ir.Undefined)
    first = b.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    return b.shuffle_vector(first, empty, ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16))


def _item(context: Any, b: Any, array: tuple[Any, Any], k: Any) -> Any:
    """Return a pointer to an array's k-th item."""
    kind, value = array
    return b.gep(context.make_array(kind)(context, b, value).data, [k])


def _row(context: Any, b: Any, matrix: Any, rows: tuple[Any, Any], k: Any, width: int) -> Any:
    """Return the address of the row that the k-th number of a list names."""
    number = b.load(_item(context, b, rows, k))
    wide = b.sext(number, ir.IntType(64)) if number.type.width < 64 else number
    return b.add(matrix, b.mul(wide, _i64(64 * width)))


def _each(b: Any, width: int, body: Callable[[Any], None]) -> None:
    """Do something for each vector of a row."""
    if width <= UNROLLED:
        for j in range(width):
            body(j)
        return
    with cgutils.for_range(b, _i64(width)) as loop:
        body(loop.index)


def _halves(b: Any, x: Any, y: Any, group: int) -> Any:
    """Add the halves of each group of lanes: those of x come first, then those of y."""
    half = group // 2
    low = [lane for lane in range(32) if lane % group < half]
    kind = ir.VectorType(ir.IntType(32), 16)
    lows = b.shuffle_vector(x, y, ir.Constant(kind, low))
    highs = b.shuffle_vector(x, y, ir.Constant(kind, [lane + half for lane in low]))
    return b.fadd(lows, highs, flags=_REORDER)


def _sums(b: Any, vectors: list[Any]) -> Any:
    """Return the sums over lanes of a power of two of vectors; the k-th begins at lane k * 16 / n."""
    group = 16
    while len(vectors) > 1:
        vectors = [_halves(b, x, y, group) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
        group //= 2
    (found,) = vectors
    while group > 1:
        group //= 2
        turned = ir.Constant(ir.VectorType(ir.IntType(32), 16), [lane ^ group for lane in range(16)])
        found = b.fadd(found, b.shuffle_vector(found, found, turned), flags=_REORDER)
    return found


def _dot_group(b: Any, width: int, x: Any, addresses: list[Any]) -> Any:
    """Return the sums of ``_sums`` for the products of a row at ``x`` (loaded already if short) with some others."""
    totals = [cgutils.alloca_once_value(b, _zeros()) for _ in addresses]
    for total in totals:
        b.store(_zeros(), total)

    def add(j: Any) -> None:
        part = x[j] if isinstance(x, list) else _load(b, x, j)
        for total, address in zip(totals, addresses, strict=True):
            b.store(_fma(b, part, _load(b, address, j), b.load(total)), total)

    _each(b, width, add)
    return _sums(b, [b.load(total) for total in totals])


def _loaded(b: Any, width: int, address: Any) -> Any:
    return [_load(b, address, j) for j in range(width)] if width <= UNROLLED else address


@intrinsic
def dots(typing: Any, lanes: Any, matrix: Any, rows: Any, n: Any, x: Any, out: Any) -> Any:
    """Set out[k] to the product of the row at ``x`` with the row rows[k] of a matrix, for k < n.

    ``rows`` and ``out`` need room for 3 more items; ``rows`` is written to there.
    """
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, rows_value, n_value, x_value, out_value = given
        listed, result = (rows, rows_value), (out, out_value)
        kept = _loaded(b, width, x_value)
        with b.if_then(b.icmp_signed(">", n_value, _i64(0))):
            last = b.load(_item(context, b, listed, b.sub(n_value, _i64(1))))
            for more in range(3):
                b.store(last, _item(context, b, listed, b.add(n_value, _i64(more))))
        groups = b.sdiv(b.add(n_value, _i64(3)), _i64(4))
        with cgutils.for_range(b, groups) as loop:
            first = b.mul(loop.index, _i64(4))
            places = [b.add(first, _i64(k)) for k in range(4)]
            found = _dot_group(b, width, kept, [_row(context, b, base, listed, k, width) for k in places])
            for k, place in enumerate(places):
                lane = b.extract_element(found, ir.Constant(ir.IntType(32), 4 * k))
                b.store(lane, _item(context, b, result, place))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, rows, types.int64, types.int64, out), emit


@intrinsic
def dots16(typing: Any, lanes: Any, matrix: Any, x: Any, out: Any) -> Any:
    """Set out[k] to the product of the row at ``x`` with the k-th of 16 rows from an address on; out at 64 bytes."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, x_value, out_value = given
        addresses = [b.add(base, _i64(64 * width * k)) for k in range(16)]
        _store(b, _dot_group(b, width, _loaded(b, width, x_value), addresses), out_value, 0)
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
        kept = _loaded(b, width, x)
        sums = [cgutils.alloca_once_value(b, _zeros()) for _ in range(width if short else 0)]
        for j, total in enumerate(sums):
            b.store(_load(b, errors, j), total)
        with cgutils.for_range(b, n_value) as loop:
            step = _splat(b, b.load(_item(context, b, (steps, steps_value), loop.index)))
            row = _row(context, b, base, (rows, rows_value), loop.index, width)

            def move(j: Any) -> None:
                old = _load(b, row, j)
                if short:
                    b.store(_fma(b, step, old, b.load(sums[j])), sums[j])
                else:
                    _store(b, _fma(b, step, old, _load(b, errors, j)), errors, j)
                _store(b, _fma(b, step, kept[j] if short else _load(b, x, j), old), row, j)

            _each(b, width, move)
        for j, total in enumerate(sums):
            _store(b, b.load(total), errors, j)
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
        sums = [cgutils.alloca_once_value(b, _zeros()) for _ in range(width if short else 0)]
        for j, total in enumerate(sums):
            b.store(_load(b, target, j), total)
        with cgutils.for_range(b, n_value) as loop:
            place = b.add(first, b.mul(loop.index, apart))
            step = _splat(b, b.load(b.inttoptr(place, ir.PointerType(ir.FloatType()))))
            row = b.add(base, b.mul(loop.index, _i64(64 * width)))

            def move(j: Any) -> None:
                if short:
                    b.store(_fma(b, step, _load(b, row, j), b.load(sums[j])), sums[j])
                else:
                    _store(b, _fma(b, step, _load(b, row, j), _load(b, target, j)), target, j)

            _each(b, width, move)
        for j, total in enumerate(sums):
            _store(b, b.load(total), target, j)
        return context.get_dummy_value()

    return types.void(lanes, types.int64, types.int64, types.UniTuple(types.int64, 2), types.int64), emit


@intrinsic
def copy_row(typing: Any, lanes: Any, out: Any, x: Any) -> Any:
    """Set the row at ``out`` to that at ``x``."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _each(b, width, lambda j: _store(b, _load(b, given[2], j), given[1], j))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, types.int64), emit


@intrinsic
def item(typing: Any, array: Any, k: Any) -> Any:
    """Return array[k], without looking whether k counts from the end: that costs more than the rest."""

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        value = b.load(_item(context, b, (array, given[0]), given[1]))
        return context.cast(b, value, array.dtype, signature.return_type)

    return types.int64(array, types.int64), emit


@intrinsic
def sum_rows(typing: Any, lanes: Any, matrix: Any, rows: Any, n: Any, scale: Any, out: Any) -> Any:
    """Set the row at ``out`` to ``scale`` times the sum of the rows rows[:n] of a matrix."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, rows_value, n_value, factor, target = given
        # Held in registers where they fit; otherwise the target itself holds them.
        sums = [cgutils.alloca_once_value(b, _zeros()) for _ in range(width if width <= UNROLLED else 0)]
        for total in sums:
            b.store(_zeros(), total)
        if not sums:
            _each(b, width, lambda j: _store(b, _zeros(), target, j))
        with cgutils.for_range(b, n_value) as loop:
            row = _row(context, b, base, (rows, rows_value), loop.index, width)
            for j, total in enumerate(sums):
                b.store(b.fadd(b.load(total), _load(b, row, j)), total)
            if not sums:
                _each(b, width, lambda j: _store(b, b.fadd(_load(b, target, j), _load(b, row, j)), target, j))
        wide = _splat(b, factor)
        _each(b, width, lambda j: _store(b, b.fmul(wide, b.load(sums[j]) if sums else _load(b, target, j)), target, j))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, rows, types.int64, types.float32, types.int64), emit


@intrinsic
def add_to_rows(typing: Any, lanes: Any, matrix: Any, rows: Any, n: Any, scale: Any, x: Any) -> Any:
    """Add ``scale`` times the row at ``x`` to each of the rows rows[:n] of a matrix."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, base, rows_value, n_value, factor, source = given
        wide = _splat(b, factor)
        with cgutils.for_range(b, n_value) as loop:
            row = _row(context, b, base, (rows, rows_value), loop.index, width)
            _each(b, width, lambda j: _store(b, _fma(b, wide, _load(b, source, j), _load(b, row, j)), row, j))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, rows, types.int64, types.float32, types.int64), emit


@intrinsic
def add_to_row(typing: Any, lanes: Any, out: Any, scale: Any, x: Any) -> Any:
    """Add ``scale`` times the row at ``x`` to the row at ``out``."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _, target, factor, source = given
        wide = _splat(b, factor)
        _each(b, width, lambda j: _store(b, _fma(b, wide, _load(b, source, j), _load(b, target, j)), target, j))
        return context.get_dummy_value()

    return types.void(lanes, types.int64, types.float32, types.int64), emit


@intrinsic
def clear(typing: Any, lanes: Any, x: Any) -> Any:
    """Fill the row at ``x`` with zeros."""
    width = lanes.count

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        _each(b, width, lambda j: _store(b, _zeros(), given[1], j))
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
            place = b.inttoptr(b.add(given[1], _i64(64 * j)), byte)
            b.call(ask, [place, ir.Constant(i32, 1), ir.Constant(i32, 3), ir.Constant(i32, 1)])
        return context.get_dummy_value()

    return types.void(lanes, types.int64), emit
