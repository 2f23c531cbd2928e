"""Attention of one query and head over n keys: scores, softmax, sum of values.

``places`` are the int32 numbers of keys, each ``stride`` bytes from the next. Keys and values are bfloat16 (``half``)
or float32. Where the processor multiplies bfloat16, pairs of numbers are multiplied as they are kept, not widened: of
a key two neighbouring dimensions, of values the same dimension of two keys.

Letters: d head width in vectors of 16 floats, n keys.
"""

from typing import Any

from attnkit.kernels.simd import vectors as v
from attnkit.kernels.vector import lane_sums

try:
    from llvmlite import ir
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass


def _load_kept(b: Any, base: Any, n_vectors: int, half: bool) -> list[Any]:
    """Return a key or value in bfloat16 (``half``) or float32 as vectors of floats.

    In bfloat16 they are in the order of ``_deal``: a bfloat16 is the upper half of a float32, so that of two in a lane
    one is shifted and the other masked.
    """
    if not half:
        return [v.load(b, v.offset(b, base, 64 * j)) for j in range(n_vectors)]
    if n_vectors == 1:
        return [v.from_bfloat16(b, v.load(b, base, v.vector("i16")))]
    found = []
    for j in range(n_vectors // 2):
        pairs = v.load(b, v.offset(b, base, 64 * j), v.vector("i32"))
        for bits in (b.shl(pairs, v.constant("i32", 16)), b.and_(pairs, v.constant("i32", 0xFFFF0000))):
            found.append(b.bitcast(bits, v.vector("float")))
    return found


def _deal(b: Any, parts: list[Any]) -> list[Any]:
    """Return vectors two by two as their even and their odd dimensions."""
    if len(parts) == 1:
        return parts
    lanes = [v.i32x16([2 * k + odd for k in range(16)]) for odd in (0, 1)]
    return [b.shuffle_vector(x, y, chosen) for x, y in zip(parts[::2], parts[1::2], strict=True) for chosen in lanes]


def _undeal(b: Any, parts: list[Any]) -> list[Any]:
    """Return vectors of even and of odd dimensions in order."""
    if len(parts) == 1:
        return parts
    lanes = [v.i32x16([8 * high + k // 2 + 16 * (k % 2) for k in range(16)]) for high in (0, 1)]
    return [b.shuffle_vector(x, y, chosen) for x, y in zip(parts[::2], parts[1::2], strict=True) for chosen in lanes]


def _key_address(b: Any, base: Any, stride: Any, places: Any, s: Any) -> Any:
    place = v.load(b, b.add(places, b.mul(s, v.i64(4))), v.scalar("i32"))
    return b.add(base, b.mul(b.sext(place, v.scalar("i64")), stride))


def make_scores(n_vectors: int, half: bool, pairs: bool) -> Any:
    """Build (query, keys, stride, places, n, out): out[s] = query . key s.

    Four keys at a time: ``places`` and ``out`` need room for 3 more. ``pairs``: multiply pairs of bfloat16.
    """

    @v.intrinsic(*["int64"] * 6)
    def scores(b: Any, query: Any, keys: Any, stride: Any, places: Any, n: Any, out: Any) -> None:
        parts = [v.load(b, v.offset(b, query, 64 * j)) for j in range(n_vectors)]
        if pairs:
            parts = [v.to_pairs(b, x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        elif half:
            parts = _deal(b, parts)
        with cgutils.for_range(b, b.lshr(b.add(n, v.i64(3)), v.i64(2))) as loop:
            first = b.mul(loop.index, v.i64(4))
            totals = []
            for k in range(4):
                key = _key_address(b, keys, stride, places, b.add(first, v.i64(k)))
                total = v.constant("float", 0.0)
                if pairs:
                    for j, part in enumerate(parts):
                        total = v.dot_pairs(b, total, part, v.load(b, v.offset(b, key, 64 * j), v.vector("i32")))
                else:
                    for part, other in zip(parts, _load_kept(b, key, n_vectors, half), strict=True):
                        total = v.fma(b, part, other, total)
                totals.append(total)
            # Four sums share their shuffles: the k-th is in lanes 4 k to 4 k + 3.
            sums = lane_sums(b, totals)
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), 4), [0, 4, 8, 12])
            v.store(b, b.shuffle_vector(sums, sums, lanes), b.add(out, b.mul(first, v.i64(4))))

    return scores


def make_mix(n_vectors: int, half: bool) -> Any:
    """Build (weights, values, stride, places, n, out): the weighted sum of values."""

    @v.intrinsic(*["int64"] * 6)
    def mix(b: Any, weights: Any, values: Any, stride: Any, places: Any, n: Any, out: Any) -> None:
        # Narrow heads: two sums in turn, or each addition would wait for the one before.
        n_sums = 2 if n_vectors < 4 else 1
        sums = [v.accumulators(b, [v.constant("float", 0.0)] * n_vectors) for _ in range(n_sums)]

        def add(s: Any, totals: list[Any]) -> None:
            weight = v.splat(b, v.load(b, b.add(weights, b.mul(s, v.i64(4))), v.scalar("float")))
            value = _load_kept(b, _key_address(b, values, stride, places, s), n_vectors, half)
            for part, total in zip(value, totals, strict=True):
                b.store(v.fma(b, weight, part, b.load(total)), total)

        with cgutils.for_range(b, b.udiv(n, v.i64(n_sums))) as loop:
            for k, own in enumerate(sums):
                add(b.add(b.mul(loop.index, v.i64(n_sums)), v.i64(k)), own)
        if n_sums == 2:
            with b.if_then(b.trunc(n, ir.IntType(1))):
                add(b.sub(n, v.i64(1)), sums[0])
        parts = [b.load(total) for total in sums[0]]
        for own in sums[1:]:
            parts = [b.fadd(part, b.load(total)) for part, total in zip(parts, own, strict=True)]
        for j, part in enumerate(_undeal(b, parts) if half else parts):
            v.store(b, part, v.offset(b, out, 64 * j))

    return mix


@v.intrinsic(*["int64"] * 2)
def softmax(b: Any, scores: Any, n: Any) -> None:
    """Replace n scores by their softmax; there must be room up to a multiple of 16."""
    width = b.lshr(b.add(n, v.i64(15)), v.i64(4))
    top, total = v.accumulators(b, [v.constant("float", -1e30), v.constant("float", 0.0)])
    lanes = ir.Constant(v.vector("i64"), list(range(16)))

    def masked(i: Any) -> Any:
        x = v.load(b, b.add(scores, b.mul(i, v.i64(64))))
        left = v.splat(b, b.sub(n, b.mul(i, v.i64(16))))
        return b.select(b.icmp_signed("<", lanes, left), x, v.constant("float", -1e30))

    with cgutils.for_range(b, width) as loop:
        b.store(v.maximum(b, b.load(top), masked(loop.index)), top)
    largest = v.splat(b, v.lane_max(b, b.load(top)))
    with cgutils.for_range(b, width) as loop:
        e = v.exp(b, b.fsub(masked(loop.index), largest), positive=False)
        v.store(b, e, b.add(scores, b.mul(loop.index, v.i64(64))))
        b.store(b.fadd(b.load(total), e), total)
    inverse = v.splat(b, b.fdiv(ir.Constant(ir.FloatType(), 1.0), v.lane_sum(b, b.load(total))))
    with cgutils.for_range(b, width) as loop:
        at = b.add(scores, b.mul(loop.index, v.i64(64)))
        v.store(b, b.fmul(v.load(b, at), inverse), at)


@v.intrinsic("int64", "int64", "int64", "float32")
def add_scaled(b: Any, out: Any, weights: Any, n: Any, factor: Any) -> None:
    """Add n weights times a factor to n floats, with room up to a multiple of 16."""
    factors = v.splat(b, factor)
    with cgutils.for_range(b, b.lshr(b.add(n, v.i64(15)), v.i64(4))) as loop:
        at = b.mul(loop.index, v.i64(64))
        place = b.add(out, at)
        v.store(b, v.fma(b, v.load(b, b.add(weights, at)), factors, v.load(b, place)), place)


@v.intrinsic(*["int64"] * 3)
def add_bias(b: Any, scores: Any, bias: Any, n: Any) -> None:
    """Add n floats to n scores; both may be read and written up to a multiple of 16."""
    with cgutils.for_range(b, b.lshr(b.add(n, v.i64(15)), v.i64(4))) as loop:
        at = b.mul(loop.index, v.i64(64))
        v.store(b, b.fadd(v.load(b, b.add(scores, at)), v.load(b, b.add(bias, at))), b.add(scores, at))


def make_mix_pairs(n_vectors: int) -> Any:
    """Build ``make_mix``'s function for pairs of bfloat16; it replaces the weights.

    Two rows of values are interleaved, so that one instruction adds both: of every 8 numbers the first 4 pairs go to
    one vector and the last 4 to another, as the instruction ``vpunpck`` has it. The sums are put in order at the end.
    """

    def interleaved(b: Any, x: Any, y: Any, first: int) -> Any:
        # Lanes of 8 int16: x0 y0 x1 y1 x2 y2 x3 y3 (first 0), or from x4 y4 on (first 4).
        lanes = [8 * lane + first + k + 32 * of_y for lane in range(4) for k in range(4) for of_y in (0, 1)]
        return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), 32), lanes))

    @v.intrinsic(*["int64"] * 6)
    def mix(b: Any, weights: Any, values: Any, stride: Any, places: Any, n: Any, out: Any) -> None:
        with cgutils.for_range(b, b.lshr(b.add(n, v.i64(31)), v.i64(5))) as loop:
            place = b.add(weights, b.mul(loop.index, v.i64(128)))
            both = v.to_pairs(b, v.load(b, place), v.load(b, v.offset(b, place, 64)))
            v.store(b, both, b.add(weights, b.mul(loop.index, v.i64(64))))
        sums = v.accumulators(b, [v.constant("float", 0.0)] * n_vectors)
        with cgutils.for_range(b, b.lshr(b.add(n, v.i64(1)), v.i64(1))) as loop:
            first = b.mul(loop.index, v.i64(2))
            # The last of an odd number is its own partner, whose weight is that of a masked key.
            second = b.add(first, v.i64(1))
            second = b.select(b.icmp_signed("<", second, n), second, first)
            pair = v.splat(b, v.load(b, b.add(weights, b.mul(loop.index, v.i64(4))), v.scalar("i32")))
            rows = [_key_address(b, values, stride, places, s) for s in (first, second)]
            for j in range(n_vectors // 2):
                x, y = (v.load(b, v.offset(b, row, 64 * j), v.vector("i16", 32)) for row in rows)
                for slot, half in zip(sums[2 * j : 2 * j + 2], (0, 4), strict=True):
                    both = b.bitcast(interleaved(b, x, y, half), v.vector("i32"))
                    b.store(v.dot_pairs(b, b.load(slot), pair, both), slot)
        for j in range(n_vectors):
            low, high = b.load(sums[j // 2 * 2]), b.load(sums[j // 2 * 2 + 1])
            # Four of the one, four of the other: dimensions 16 j to 16 j + 15.
            begins = [8 * (j % 2) + 4 * half + 16 * of_high for half in (0, 1) for of_high in (0, 1)]
            lanes = [begin + k for begin in begins for k in range(4)]
            ordered = b.shuffle_vector(low, high, ir.Constant(ir.VectorType(ir.IntType(32), 16), lanes))
            v.store(b, ordered, v.offset(b, out, 64 * j))

    return mix
