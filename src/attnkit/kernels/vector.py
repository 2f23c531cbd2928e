"""Operations on rows of floats in LLVM vectors of 16, twice LLVM's default width."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from attnkit.kernels.jit import has_numba

try:
    from llvmlite import ir
    from numba import extending, types
    from numba.core import cgutils
except ImportError:  # without numba, nothing here is called
    pass

# Letters: width is P / 16, the number of vectors per row; b is llvmlite's IR builder.
UNROLLED = 20  #: maximum vectors per row in registers; longer rows are updated in memory
# No "nnan" or "ninf": NaN must survive.
REORDER = ("contract", "reassoc", "nsz")


def intrinsic(*kinds: str, result: str = "void") -> Callable[[Callable[..., Any]], Any]:
    """Turn an emitter of LLVM code into a numba function; no effect without numba.

    ``kinds`` are the operands after the builder: "lanes" is a tuple whose length is passed to the emitter as the width,
    "array" is passed as a pointer to its first item, "int64[3]" is a tuple of 3, and all others are numba types.
    """

    def mark(emitter: Callable[..., Any]) -> Any:
        if not has_numba():
            return emitter

        # numba reads the number of operands from the wrapped function's signature.
        @wraps(emitter)
        def typed(typing: Any, *operands: Any) -> Any:
            chosen = [_operand_type(kind) or operand for kind, operand in zip(kinds, operands, strict=True)]
            signature = getattr(types, result)(*chosen)

            def emit(context: Any, b: Any, signature: Any, values: Any) -> Any:
                passed: list[Any] = []
                for kind, type_, value in zip(kinds, signature.args, values, strict=True):
                    if kind == "array":
                        passed.append(context.make_array(type_)(context, b, value).data)
                    else:
                        passed.append(type_.count if kind == "lanes" else value)
                value = emitter(b, *passed)
                return context.get_dummy_value() if value is None else value

            return signature, emit

        return extending.intrinsic(typed)

    return mark


def _operand_type(kind: str) -> Any:
    """Return the numba type of a kind of operand; None: that of the argument."""
    if kind.startswith("int64["):
        return types.UniTuple(types.int64, int(kind[6:-1]))
    return getattr(types, kind, None) if kind not in ("lanes", "array") else None


# --- single vectors


def vector_type() -> Any:
    return ir.VectorType(ir.FloatType(), 16)


def i64(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def i32x16(values: list[int]) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), 16), values)


def zeros() -> Any:
    return ir.Constant(vector_type(), [0.0] * 16)


def _pointer(b: Any, address: Any, j: Any) -> Any:
    """Return a pointer to the j-th vector of a row."""
    offset = i64(64 * j) if isinstance(j, int) else b.mul(j, i64(64))  # 16 float32 are 64 bytes
    return b.inttoptr(b.add(address, offset), ir.PointerType(vector_type()))


def load(b: Any, address: Any, j: Any) -> Any:
    return b.load(_pointer(b, address, j), align=64)


def store(b: Any, value: Any, address: Any, j: Any) -> None:
    b.store(value, _pointer(b, address, j), align=64)


def fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x y + z."""
    # Not llvm.fma: "contract" lets processors without FMA use two instructions.
    return b.fadd(b.fmul(x, y, flags=REORDER), z, flags=REORDER)


def splat(b: Any, value: Any) -> Any:
    """Return a vector with ``value`` in all lanes."""
    empty = ir.Constant(ir.VectorType(value.type, 16), ir.Undefined)
    # The usual LLVM idiom: insert at lane 0, then shuffle it to all lanes.
    first = b.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    return b.shuffle_vector(first, empty, i32x16([0] * 16))


def lane_sums(b: Any, vectors: list[Any]) -> Any:
    """Return the lane sums of n = 2^k vectors; sum i starts at lane i * 16 / n."""
    # Number of lanes per vector at this level of the tree.
    group = 16
    # The sums of several vectors share their shuffles: each round adds the halves of every group of two vectors, with
    # the first vector's groups first. In LLVM's shuffle, lanes 0..15 are the first vector's and 16..31 the second's.
    while len(vectors) > 1:
        low = [lane for lane in range(32) if lane % group < group // 2]
        high = [lane + group // 2 for lane in low]
        pairs = [
            (b.shuffle_vector(x, y, i32x16(low)), b.shuffle_vector(x, y, i32x16(high)))
            for x, y in zip(vectors[::2], vectors[1::2], strict=True)
        ]
        vectors = [b.fadd(lows, highs, flags=REORDER) for lows, highs in pairs]
        group //= 2
    (total,) = vectors
    while group > 1:
        group //= 2
        # Butterfly: after the last round every lane of a group holds the sum.
        partner = i32x16([lane ^ group for lane in range(16)])
        total = b.fadd(total, b.shuffle_vector(total, total, partner), flags=REORDER)
    return total


# --- rows


def vectors_of_row(b: Any, width: int) -> Iterator[Any]:
    """Yield each vector index of a row if unrolled, else the index of a runtime loop."""
    if width <= UNROLLED:
        yield from range(width)
    else:
        with cgutils.for_range(b, i64(width)) as loop:
            yield loop.index


class Row:
    """Row operand of a loop: short rows stay in registers until ``save``."""

    def __init__(self, b: Any, width: int, address: Any, *, cleared: bool = False) -> None:
        self._b, self._address = b, address
        # Stack slots, which LLVM turns into registers; they survive the loop.
        self._slots = [cgutils.alloca_once_value(b, zeros()) for _ in range(width if width <= UNROLLED else 0)]
        for j, slot in enumerate(self._slots):
            b.store(zeros() if cleared else load(b, address, j), slot)
        if cleared and not self._slots:
            for j in vectors_of_row(b, width):
                store(b, zeros(), address, j)

    def __getitem__(self, j: Any) -> Any:
        return self._b.load(self._slots[j]) if self._slots else load(self._b, self._address, j)

    def __setitem__(self, j: Any, value: Any) -> None:
        if self._slots:
            self._b.store(value, self._slots[j])
        else:
            store(self._b, value, self._address, j)

    def save(self) -> None:
        for j, slot in enumerate(self._slots):
            store(self._b, self._b.load(slot), self._address, j)


def _int64_item(b: Any, array: Any, k: Any) -> Any:
    value = b.load(b.gep(array, [k]))
    # Words and row numbers may be int32, addresses are 64 bits.
    return b.sext(value, ir.IntType(64)) if value.type.width < 64 else value


def _row_address(b: Any, matrix: Any, rows: Any, k: Any, width: int) -> Any:
    """Return the address of row rows[k] of a matrix."""
    return b.add(matrix, b.mul(_int64_item(b, rows, k), i64(64 * width)))


def _dot_products(b: Any, width: int, x: Row, addresses: list[Any]) -> Any:
    """Return the dot products of a row with others, laid out as by ``lane_sums``."""
    totals = [cgutils.alloca_once_value(b, zeros()) for _ in addresses]
    for total in totals:
        b.store(zeros(), total)
    for j in vectors_of_row(b, width):
        part = x[j]
        # One load of x serves all rows.
        for total, address in zip(totals, addresses, strict=True):
            b.store(fma(b, part, load(b, address, j), b.load(total)), total)
    return lane_sums(b, [b.load(total) for total in totals])


# --- called by loops: a row is given by its address, ``rows`` are row numbers of a matrix


@intrinsic("lanes", "int64", "array", "int64", "int64", "array")
def dots(b: Any, width: int, matrix: Any, rows: Any, n: Any, x: Any, out: Any) -> None:
    """Set out[k] to the dot product of the row at ``x`` and row rows[k], for k < n.

    ``rows`` and ``out`` need room for 3 more items, which are overwritten.
    """
    operand = Row(b, width, x)
    with b.if_then(b.icmp_signed(">", n, i64(0))):
        # Four rows at a time: the list is padded with its last row, so that the last group is complete.
        last = b.load(b.gep(rows, [b.sub(n, i64(1))]))
        for more in range(3):
            b.store(last, b.gep(rows, [b.add(n, i64(more))]))
    with cgutils.for_range(b, b.sdiv(b.add(n, i64(3)), i64(4))) as loop:
        first = b.mul(loop.index, i64(4))
        places = [b.add(first, i64(k)) for k in range(4)]
        sums = _dot_products(b, width, operand, [_row_address(b, matrix, rows, k, width) for k in places])
        for k, place in enumerate(places):
            # Four sums in 16 lanes: the k-th is in lanes 4 k .. 4 k + 3.
            b.store(b.extract_element(sums, ir.Constant(ir.IntType(32), 4 * k)), b.gep(out, [place]))


@intrinsic("lanes", "int64", "int64", "int64")
def dots16(b: Any, width: int, matrix: Any, x: Any, out: Any) -> None:
    """Set out[k] to the dot product of the row at ``x`` and row k of 16 adjacent rows."""
    # 16 dot products reduce to one vector of 16 sums, stored at once: ``out`` is 64-byte aligned.
    addresses = [b.add(matrix, i64(64 * width * k)) for k in range(16)]
    store(b, _dot_products(b, width, Row(b, width, x), addresses), out, 0)


@intrinsic("lanes", "int64", "array", "int64", "int64[2]", "array")
def update(b: Any, width: int, matrix: Any, rows: Any, n: Any, x_and_error: Any, steps: Any) -> None:
    """Add steps[k] * row to the error, then steps[k] * x to row rows[k], for k < n."""
    x, error = cgutils.unpack_tuple(b, x_and_error, 2)
    operand, total = Row(b, width, x), Row(b, width, error)
    with cgutils.for_range(b, n) as loop:
        step = splat(b, b.load(b.gep(steps, [loop.index])))
        row = _row_address(b, matrix, rows, loop.index, width)
        for j in vectors_of_row(b, width):
            # The old row is used for both: the error is updated before the row.
            old = load(b, row, j)
            total[j] = fma(b, step, old, total[j])
            store(b, fma(b, step, operand[j], old), row, j)
    total.save()


@intrinsic("lanes", "int64", "int64", "int64[2]", "int64")
def weigh(b: Any, width: int, matrix: Any, n: Any, steps: Any, out: Any) -> None:
    """Add n adjacent rows, each times its float in ``steps``, to the row at ``out``."""
    first, stride = cgutils.unpack_tuple(b, steps, 2)
    total = Row(b, width, out)
    with cgutils.for_range(b, n) as loop:
        # ``steps`` is (address, stride in bytes), so that columns of a matrix can be read as well.
        place = b.add(first, b.mul(loop.index, stride))
        step = splat(b, b.load(b.inttoptr(place, ir.PointerType(ir.FloatType()))))
        row = b.add(matrix, b.mul(loop.index, i64(64 * width)))
        for j in vectors_of_row(b, width):
            total[j] = fma(b, step, load(b, row, j), total[j])
    total.save()


@intrinsic("lanes", "int64", "array", "int64", "float32", "int64")
def sum_rows(b: Any, width: int, matrix: Any, rows: Any, n: Any, scale: Any, out: Any) -> None:
    """Set the row at ``out`` to ``scale`` times the sum of the matrix rows rows[:n]."""
    total = Row(b, width, out, cleared=True)
    with cgutils.for_range(b, n) as loop:
        row = _row_address(b, matrix, rows, loop.index, width)
        for j in vectors_of_row(b, width):
            total[j] = b.fadd(total[j], load(b, row, j))
    factor = splat(b, scale)
    for j in vectors_of_row(b, width):
        store(b, b.fmul(factor, total[j]), out, j)


@intrinsic("lanes", "int64", "array", "int64", "float32", "int64")
def add_to_rows(b: Any, width: int, matrix: Any, rows: Any, n: Any, scale: Any, x: Any) -> None:
    """Add ``scale`` times the row at ``x`` to each of the matrix rows rows[:n]."""
    factor = splat(b, scale)
    with cgutils.for_range(b, n) as loop:
        row = _row_address(b, matrix, rows, loop.index, width)
        for j in vectors_of_row(b, width):
            store(b, fma(b, factor, load(b, x, j), load(b, row, j)), row, j)


@intrinsic("lanes", "int64", "float32", "int64")
def add_to_row(b: Any, width: int, out: Any, scale: Any, x: Any) -> None:
    """Add ``scale`` times the row at ``x`` to the row at ``out``."""
    factor = splat(b, scale)
    for j in vectors_of_row(b, width):
        store(b, fma(b, factor, load(b, x, j), load(b, out, j)), out, j)


@intrinsic("lanes", "int64", "int64")
def copy_row(b: Any, width: int, out: Any, x: Any) -> None:
    """Copy the row at ``x`` to ``out``."""
    for j in vectors_of_row(b, width):
        store(b, load(b, x, j), out, j)


@intrinsic("lanes", "int64")
def clear(b: Any, width: int, x: Any) -> None:
    """Fill the row at ``x`` with zeros."""
    for j in vectors_of_row(b, width):
        store(b, zeros(), x, j)


@intrinsic("lanes", "int64")
def prefetch(b: Any, width: int, x: Any) -> None:
    """Prefetch the row at ``x`` for writing."""
    byte, i32 = ir.PointerType(ir.IntType(8)), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
    ask = b.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    # One prefetch per cache line of 64 bytes; the hardware prefetches the rest of longer rows.
    for j in range(min(width, UNROLLED)):
        place = b.inttoptr(b.add(x, i64(64 * j)), byte)
        # Arguments: address, 1 = write, 3 = keep in all caches, 1 = data.
        b.call(ask, [place, ir.Constant(i32, 1), ir.Constant(i32, 3), ir.Constant(i32, 1)])


@intrinsic("array", "int64", result="int64")
def item(b: Any, array: Any, k: Any) -> Any:
    """Return array[k] of signed integers, without the costly check for negative k."""
    return _int64_item(b, array, k)
