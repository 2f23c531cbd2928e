"""Row operations between products: embeddings, norms, activations.

Rows are addresses (int64); widths are in vectors of 16 floats, multiples of 4. After a norm or an activation a row is
also written as the next product reads it (``encode``): as bytes with a scale, as bfloat16, or not at all in float32,
where products read the row itself.
"""

import math
from collections.abc import Callable
from typing import Any

from attnkit.kernels.layout import NORM_MASK
from attnkit.kernels.simd import vectors as v
from attnkit.kernels.simd.packing import GROUP, INT16_LENGTH, MAX_INT16
from attnkit.kernels.simd.targets import NumberFormat, Precision, Target

try:
    from llvmlite import ir
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass

# Letters: H heads, d head width in vectors, n keys, D model width. Loops take four vectors per turn: four sums in
# flight hide the latency of an addition.
UNROLL = 4


def _each(b: Any, width: Any, body: Callable[[int, Any], None]) -> None:
    """Call ``body`` with u (0 to 3) and the byte offset of vector 4 i + u, for all i."""
    with cgutils.for_range(b, b.lshr(width, v.i64(2))) as loop:
        first = b.mul(loop.index, v.i64(64 * UNROLL))
        for u in range(UNROLL):
            body(u, b.add(first, v.i64(64 * u)))


def _combined(b: Any, slots: list[Any], combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Return the four values of slots combined in pairs."""
    first, second, third, fourth = (b.load(slot) for slot in slots)
    return combine(b, combine(b, first, second), combine(b, third, fourth))


def _sum(b: Any, x: Any, y: Any) -> Any:
    return b.fadd(x, y)


def _zeros() -> list[Any]:
    return [v.constant("float", 0.0)] * UNROLL


def make_encode(target: Target, precision: Precision, non_negative: bool) -> Callable[..., None]:
    """Build (x, width, largest, q, scale): write a row as products read it.

    ``largest`` holds the row's largest absolute value, four vectors in slots.
    """

    def encode(b: Any, x: Any, width: Any, largest: list[Any], q: Any, scale: Any) -> None:
        if precision == "float32":
            return
        if precision == "bfloat16":

            def convert(u: int, at: Any) -> None:
                half = b.lshr(at, v.i64(1))  # 2 bytes each instead of 4
                v.store(b, v.to_bfloat16(b, v.load(b, b.add(x, at)), target.native_bfloat16), b.add(q, half))

            _each(b, width, convert)
            return
        levels, zero = target.levels(non_negative), target.zero_point(non_negative)
        top = v.lane_max(b, _combined(b, largest, v.maximum))
        top = b.fadd(top, ir.Constant(ir.FloatType(), 1e-20))  # a row of zeros must not be divided by zero
        v.store(b, b.fmul(top, ir.Constant(ir.FloatType(), 1 / levels)), scale)
        inverse = v.splat(b, b.fdiv(ir.Constant(ir.FloatType(), float(levels)), top))

        def quantize(u: int, at: Any) -> None:
            scaled = v.fma(b, v.load(b, b.add(x, at)), inverse, v.constant("float", zero + 0.5))
            # All are positive now, so that truncation rounds to nearest.
            v.store(b, b.trunc(b.fptosi(scaled, v.vector("i32")), v.vector("i8")), b.add(q, b.lshr(at, v.i64(2))))

        _each(b, width, quantize)

    return encode


def make_quantize(target: Target, number_format: NumberFormat) -> Any:
    """Build (x, width, q, scale): encode the row at x."""
    if number_format == "int16":
        return _quantize_int16
    precision, encode = number_format, make_encode(target, number_format, False)

    @v.intrinsic(*["int64"] * 4)
    def quantize(b: Any, x: Any, width: Any, q: Any, scale: Any) -> None:
        largest = v.accumulators(b, _zeros())
        if precision == "int8":
            _each(b, width, lambda u, at: _update_largest(b, largest[u], v.load(b, b.add(x, at))))
        encode(b, x, width, largest, q, scale)

    return quantize


@v.intrinsic(*["int64"] * 4)
def _quantize_int16(b: Any, x: Any, width: Any, q: Any, scale: Any) -> None:
    """Encode a row as int16, with a scale for which ``packing`` gives the reason."""
    largest = v.accumulators(b, _zeros())
    (longest,) = v.accumulators(b, [ir.Constant(ir.FloatType(), 0.0)])
    with cgutils.for_range(b, b.lshr(width, v.i64(2))) as loop:  # a turn is a block of 64
        first = b.add(x, b.mul(loop.index, v.i64(64 * UNROLL)))
        square = v.constant("float", 0.0)
        for u in range(UNROLL):
            value = v.load(b, v.offset(b, first, 64 * u))
            _update_largest(b, largest[u], value)
            square = v.fma(b, value, value, square)
        b.store(v.maximum(b, b.load(longest), v.lane_sum(b, square)), longest)
    length = v.call(b, "llvm.sqrt.f32", ir.FloatType(), b.load(longest))
    top = v.lane_max(b, _combined(b, largest, v.maximum))
    levels = [b.fmul(y, ir.Constant(ir.FloatType(), 1 / n)) for y, n in ((top, MAX_INT16), (length, INT16_LENGTH))]
    step = b.fadd(v.maximum(b, *levels), ir.Constant(ir.FloatType(), 1e-25))  # a row of zeros: not divided by zero
    v.store(b, step, scale)
    inverse = v.splat(b, b.fdiv(ir.Constant(ir.FloatType(), 1.0), step))

    def quantize(u: int, at: Any) -> None:
        # All are positive when truncated, so that they are rounded to nearest.
        scaled = v.fma(b, v.load(b, b.add(x, at)), inverse, v.constant("float", 2.0**15 + 0.5))
        level = b.sub(b.fptosi(scaled, v.vector("i32")), v.constant("i32", 2**15))
        v.store(b, b.trunc(level, v.vector("i16")), b.add(q, b.lshr(at, v.i64(1))))

    _each(b, width, quantize)


def make_rounding_error(target: Target, number_format: NumberFormat) -> Any:
    """Build (x, width, q, scale, out): squared lengths of the error of q, and of x."""
    wide = number_format == "int16"
    n_bytes, zero_point = 4 // GROUP[number_format], 0 if wide else target.zero_point(False)

    @v.intrinsic(*["int64"] * 5)
    def rounding_error(b: Any, x: Any, width: Any, q: Any, scale: Any, out: Any) -> None:
        errors, squares = v.accumulators(b, _zeros()), v.accumulators(b, _zeros())
        step = v.splat(b, v.load(b, scale, v.scalar("float")))
        zero = v.constant("float", zero_point)

        def add(u: int, at: Any) -> None:
            value = v.load(b, b.add(x, at))
            stored = v.load(b, b.add(q, b.udiv(at, v.i64(4 // n_bytes))), v.vector(f"i{8 * n_bytes}"))
            level = b.sext(stored, v.vector("i32")) if wide else b.zext(stored, v.vector("i32"))
            error = b.fsub(value, b.fmul(b.fsub(b.sitofp(level, v.vector("float")), zero), step))
            for slot, number in ((errors[u], error), (squares[u], value)):
                b.store(v.fma(b, number, number, b.load(slot)), slot)

        _each(b, width, add)
        for i, slots in enumerate((errors, squares)):
            v.store(b, v.lane_sum(b, _combined(b, slots, _sum)), v.offset(b, out, 4 * i))

    return rounding_error


def _update_largest(b: Any, slot: Any, x: Any) -> None:
    b.store(v.maximum(b, b.load(slot), v.absolute(b, x)), slot)


def make_activate(target: Target, precision: Precision, kind: str) -> Any:
    """Build (x, width, q, scale): apply an activation in place, then encode."""
    encode = make_encode(target, precision, kind == "relu")

    @v.intrinsic(*["int64"] * 4)
    def activate(b: Any, x: Any, width: Any, q: Any, scale: Any) -> None:
        largest = v.accumulators(b, _zeros())

        def apply(u: int, at: Any) -> None:
            value = v.load(b, b.add(x, at))
            if kind != "relu":  # the product has applied that one
                value = _ACTIVATIONS[kind](b, value)
                v.store(b, value, b.add(x, at))
            _update_largest(b, largest[u], value)

        if kind != "relu" or precision == "int8":
            _each(b, width, apply)
        encode(b, x, width, largest, q, scale)

    return activate


def make_gate(target: Target, precision: Precision) -> Any:
    """Build (x, gate, width, lowest, out, q, scale): gated units, then encode.

    ``out`` gets the larger of x and ``lowest``, times the gate (Shazeer 2020); it may be at x or before.
    """
    encode = make_encode(target, precision, False)

    @v.intrinsic("int64", "int64", "int64", "float32", "int64", "int64", "int64")
    def gate(b: Any, x: Any, gates: Any, width: Any, lowest: Any, out: Any, q: Any, scale: Any) -> None:
        largest, least = v.accumulators(b, _zeros()), v.splat(b, lowest)

        def multiply(u: int, at: Any) -> None:
            # The order keeps a NaN of x.
            value = b.fmul(v.maximum(b, least, v.load(b, b.add(x, at))), v.load(b, b.add(gates, at)))
            v.store(b, value, b.add(out, at))
            _update_largest(b, largest[u], value)

        _each(b, width, multiply)
        encode(b, out, width, largest, q, scale)

    return gate


@v.intrinsic(*["int64"] * 4)
def rotate(b: Any, row: Any, n_heads: Any, width: Any, turns: Any) -> None:
    """Rotate heads of a row: dimension i with dimension i + half of the head.

    ``width``: vectors of 16 floats of a head. ``turns``: sines, then cosines, half a head each.
    """
    eight = v.vector("float", 8)  # the narrowest head has half a vector of 16 twice
    half, head = b.mul(width, v.i64(32)), b.mul(width, v.i64(64))  # bytes
    with cgutils.for_range(b, width) as parts:
        at = b.mul(parts.index, v.i64(32))
        sine = v.load(b, b.add(turns, at), eight)
        cosine = v.load(b, b.add(turns, b.add(half, at)), eight)
        with cgutils.for_range(b, n_heads) as heads:
            first = b.add(row, b.add(b.mul(heads.index, head), at))
            second = b.add(first, half)
            x, y = v.load(b, first, eight), v.load(b, second, eight)
            v.store(b, b.fsub(b.fmul(x, cosine), b.fmul(y, sine)), first)
            v.store(b, b.fadd(b.fmul(y, cosine), b.fmul(x, sine)), second)


def _times_sigmoid(b: Any, x: Any, z: Any) -> Any:
    return b.fdiv(x, b.fadd(v.constant("float", 1.0), v.exp(b, b.fneg(z))))


def _silu(b: Any, x: Any) -> Any:
    return _times_sigmoid(b, x, x)


def _gelu_tanh(b: Any, x: Any) -> Any:
    """Return GPT-2's approximation of GELU: (1 + tanh z) / 2 is the sigmoid of 2 z."""
    cubic = v.fma(b, b.fmul(x, x), v.constant("float", 0.044715), v.constant("float", 1.0))
    z = b.fmul(b.fmul(x, cubic), v.constant("float", 2 * math.sqrt(2 / math.pi)))
    return _times_sigmoid(b, x, z)


def _gelu(b: Any, x: Any) -> Any:
    """Return GELU, erf within 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26)."""
    z = b.fmul(v.absolute(b, x), v.constant("float", math.sqrt(0.5)))
    t = b.fdiv(v.constant("float", 1.0), v.fma(b, z, v.constant("float", 0.3275911), v.constant("float", 1.0)))
    p = v.constant("float", 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        p = v.fma(b, p, t, v.constant("float", coefficient))
    # tail = 1 - erf(z); P(X <= x) is tail / 2 below zero, and 1 - tail / 2 above.
    tail = b.fmul(b.fmul(p, t), v.exp(b, b.fneg(b.fmul(z, z))))
    half = b.fmul(tail, v.constant("float", 0.5))
    below = b.fcmp_ordered("<", x, v.constant("float", 0.0))
    return b.fmul(x, b.select(below, half, b.fsub(v.constant("float", 1.0), half)))


_ACTIVATIONS = {"gelu": _gelu, "gelu_tanh": _gelu_tanh, "silu": _silu}


def make_norm(target: Target, precision: Precision, adds: bool) -> Any:
    """Build (y, x, width, constants, gamma, beta, out, q, scale): a norm of a row.

    With ``adds`` the row is x + y, and is written to x first (the residual sum). ``constants``: address of
    ``Model.norm_constants``; first 1 / D without padding, epsilon, and the factor from a row's sum to its mean: 1 / D
    in LayerNorm, 0 in RMSNorm. Padding columns hold zeros, before and after.
    """
    encode = make_encode(target, precision, False)

    @v.intrinsic(*["int64"] * 9)
    def norm(
        b: Any, y: Any, x: Any, width: Any, constants: Any, gamma: Any, beta: Any, out: Any, q: Any, scale: Any
    ) -> None:
        share, epsilon, of_mean = (v.load(b, v.offset(b, constants, 4 * i), v.scalar("float")) for i in range(3))
        mask = v.offset(b, constants, 4 * NORM_MASK)
        sums, squares, largest = (v.accumulators(b, _zeros()) for _ in range(3))

        def add(u: int, at: Any) -> None:
            value = v.load(b, b.add(x, at))
            if adds:
                value = b.fadd(value, v.load(b, b.add(y, at)))
                v.store(b, value, b.add(x, at))
            b.store(b.fadd(b.load(sums[u]), value), sums[u])

        _each(b, width, add)
        mean = b.fmul(v.lane_sum(b, _combined(b, sums, _sum)), of_mean)
        means = v.splat(b, mean)

        def square(u: int, at: Any) -> None:
            # Padding columns would add the square of the mean.
            deviation = b.fmul(b.fsub(v.load(b, b.add(x, at)), means), v.load(b, b.add(mask, at)))
            b.store(v.fma(b, deviation, deviation, b.load(squares[u])), squares[u])

        _each(b, width, square)
        total = v.lane_sum(b, _combined(b, squares, _sum))
        variance = b.fadd(b.fmul(total, share), epsilon)
        root = v.call(b, "llvm.sqrt.f32", ir.FloatType(), variance)
        inverse = v.splat(b, b.fdiv(ir.Constant(ir.FloatType(), 1.0), root))

        def normalize(u: int, at: Any) -> None:
            deviation = b.fmul(b.fsub(v.load(b, b.add(x, at)), means), inverse)
            # gamma and beta are 0 in padding columns.
            value = v.fma(b, deviation, v.load(b, b.add(gamma, at)), v.load(b, b.add(beta, at)))
            v.store(b, value, b.add(out, at))
            _update_largest(b, largest[u], value)

        _each(b, width, normalize)
        encode(b, out, width, largest, q, scale)

    return norm


@v.intrinsic(*["int64"] * 4)
def add_rows(b: Any, x: Any, y: Any, width: Any, out: Any) -> None:
    """Set the row at ``out`` to the sum of two rows."""
    _each(b, width, lambda u, at: v.store(b, b.fadd(v.load(b, b.add(x, at)), v.load(b, b.add(y, at))), b.add(out, at)))


@v.intrinsic(*["int64"] * 3)
def copy(b: Any, x: Any, width: Any, out: Any) -> None:
    """Set the row at ``out`` to that at x."""
    _each(b, width, lambda u, at: v.store(b, v.load(b, b.add(x, at)), b.add(out, at)))


def make_keep(target: Target) -> Any:
    """Build (x, width, out): write a row as bfloat16.

    Keys and values are read far more often than written.
    """

    @v.intrinsic(*["int64"] * 3)
    def keep(b: Any, x: Any, width: Any, out: Any) -> None:
        def convert(u: int, at: Any) -> None:
            narrow = v.to_bfloat16(b, v.load(b, b.add(x, at)), target.native_bfloat16)
            v.store(b, narrow, b.add(out, b.lshr(at, v.i64(1))))

        _each(b, width, convert)

    return keep


@v.intrinsic(*["int64"] * 6)
def combine_sums(b: Any, peaks: Any, shares: Any, stride: Any, n: Any, tops: Any, totals: Any) -> None:
    """Combine maxima and sums of exponentials of n panels, ``stride`` bytes apart.

    For 16 rows: their largest logits go to ``tops``, and sums relative to these to ``totals``.
    """
    lowest = v.load(b, peaks)
    (top,) = v.accumulators(b, [lowest])
    with cgutils.for_range(b, n) as loop:
        b.store(v.maximum(b, b.load(top), v.load(b, b.add(peaks, b.mul(loop.index, stride)))), top)
    highest = b.load(top)
    (total,) = v.accumulators(b, [v.constant("float", 0.0)])
    with cgutils.for_range(b, n) as loop:
        at = b.mul(loop.index, stride)
        factor = v.exp(b, b.fsub(v.load(b, b.add(peaks, at)), highest), positive=False)
        b.store(v.fma(b, v.load(b, b.add(shares, at)), factor, b.load(total)), total)
    v.store(b, highest, tops)
    v.store(b, b.load(total), totals)


@v.intrinsic("int64", result="float32")
def read_float(b: Any, address: Any) -> Any:
    """Return the float at an address."""
    return v.load(b, address, v.scalar("float"))


@v.intrinsic("int64", "float32")
def write_float(b: Any, address: Any, value: Any) -> None:
    """Write a float to an address."""
    v.store(b, value, address)


@v.intrinsic("int64", "int64")
def publish_number(b: Any, address: Any, value: Any) -> Any:
    """Write an int64: a thread that sees it sees all that was written before it."""
    b.store_atomic(value, v.pointer(b, address, v.scalar("i64")), "release", 8)


@v.intrinsic(*["int64"] * 3, result="boolean")
def replace_number(b: Any, address: Any, old: Any, new: Any) -> Any:
    """Replace the int64 at an address if no other thread has replaced the old one."""
    found = b.cmpxchg(v.pointer(b, address, v.scalar("i64")), old, new, "monotonic")
    return b.extract_value(found, 1)
