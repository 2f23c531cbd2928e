"""What a logistic output gives and costs, 16 at a time, in LLVM's terms: no tables, and nothing beyond their ends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attnkit.kernels.lanes import REORDER, fma, intrinsic, load, splat, store

try:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass

FARTHEST = 18.0
"""Beyond it, either way, σ counts as if it were there: a loss of 18 at most, of 1.5e-8 at least."""
_POLYNOMIAL = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)


def _constant(value: float) -> Any:
    return ir.Constant(ir.VectorType(ir.FloatType(), 16), [float(np.float32(value))] * 16)


def _function(b: Any, name: str, kind: Any) -> Any:
    return cgutils.get_or_insert_function(b.module, kind, name)


def _exp_minus(b: Any, a: Any) -> Any:
    """Return exp(-a) for 0 <= a <= 18, to some 2e-7 of it; NaN stays NaN."""
    floats = ir.VectorType(ir.FloatType(), 16)
    ints = ir.VectorType(ir.IntType(32), 16)
    floor = _function(b, "llvm.floor.v16f32", ir.FunctionType(floats, [floats]))
    x = b.fmul(a, _constant(-1.0))
    power = b.call(floor, [fma(b, x, _constant(math.log2(math.e)), _constant(0.5))])
    rest = fma(b, power, _constant(-0.693359375), x)
    rest = fma(b, power, _constant(0.693359375 - math.log(2)), rest)
    total = _constant(_POLYNOMIAL[0])
    for factor in _POLYNOMIAL[1:]:
        total = fma(b, total, rest, _constant(factor))
    bits = b.shl(b.add(b.fptosi(power, ints), ir.Constant(ints, [127] * 16)), ir.Constant(ints, [23] * 16))
    return b.fmul(total, b.bitcast(bits, floats))


@intrinsic
def slopes(typing: Any, out: Any, n: Any, sign: Any, scale: Any, limit: Any) -> Any:
    """Return the product of σ(sign f) over the first n <= 16 values f at an address, as float64.

    Each f is replaced by ``sign`` (1 - σ(sign f)) ``scale``, ``scale`` times the slope of log σ, or by 0 where |f| is
    not below ``limit``; beyond n there are zeros then. The address is at a multiple of 64 bytes.
    """

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        place, count, sign_value, factor, most = given
        f = load(b, place, 0)
        z = b.fmul(f, splat(b, sign_value))
        size = b.call(_function(b, "llvm.fabs.v16f32", ir.FunctionType(f.type, [f.type])), [f])
        capped = b.select(b.fcmp_ordered(">", size, _constant(FARTHEST)), _constant(FARTHEST), size)
        small = _exp_minus(b, capped)
        whole = b.fdiv(_constant(1.0), b.fadd(_constant(1.0), small))
        part = b.fmul(small, whole)
        right = b.fcmp_ordered(">=", z, _constant(0.0))
        chance, rest = b.select(right, whole, part), b.select(right, part, whole)
        ints = ir.VectorType(ir.IntType(32), 16)
        lane, empty = ir.Constant(ints, list(range(16))), ir.Constant(ints, ir.Undefined)
        bound = b.insert_element(empty, b.trunc(count, ir.IntType(32)), ir.Constant(ir.IntType(32), 0))
        bound = b.shuffle_vector(bound, empty, ir.Constant(ints, [0] * 16))
        inside = b.icmp_signed("<", lane, bound)
        step = b.fmul(rest, splat(b, b.fmul(factor, sign_value)))
        known = b.and_(inside, b.fcmp_unordered("<", size, splat(b, most)))
        store(b, b.select(known, step, _constant(0.0)), place, 0)
        wide = ir.VectorType(ir.DoubleType(), 16)
        terms = b.fpext(b.select(inside, chance, _constant(1.0)), wide)
        kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType(), wide])
        times = _function(b, "llvm.vector.reduce.fmul.v16f64", kind)
        return b.call(times, [ir.Constant(ir.DoubleType(), 1.0), terms], fastmath=REORDER)

    given = (types.int64, types.int64, types.float32, types.float32, types.float32)
    return types.float64(*given), emit
