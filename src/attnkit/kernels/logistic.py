"""Logistic function and its loss, 16 values at a time in LLVM; no lookup tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attnkit.kernels.vector import REORDER, fma, intrinsic, load, splat, store

try:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass

# Letters: f scores, 16 at a time; b is llvmlite's IR builder.
FARTHEST = 18.0
"""Beyond it, either way, σ counts as if it were there: a loss of 18 at most, of 1.5e-8 at least."""
# Coefficients 1 / k! of exp, the highest power first.
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
    # exp(x) = 2^n exp(r) with n = round(x log2 e) and |r| <= ln(2) / 2.
    power = b.call(floor, [fma(b, x, _constant(math.log2(math.e)), _constant(0.5))])
    # Cody and Waite: ln 2 in two parts, the first exact in few bits, so that r keeps its precision.
    rest = fma(b, power, _constant(-0.693359375), x)
    rest = fma(b, power, _constant(0.693359375 - math.log(2)), rest)
    # Taylor polynomial of degree 6, by Horner's rule.
    total = _constant(_POLYNOMIAL[0])
    for factor in _POLYNOMIAL[1:]:
        total = fma(b, total, rest, _constant(factor))
    # 2^n by its bits: exponent n + 127, shifted behind the 23 bits of the mantissa.
    bits = b.shl(b.add(b.fptosi(power, ints), ir.Constant(ints, [127] * 16)), ir.Constant(ints, [23] * 16))
    return b.fmul(total, b.bitcast(bits, floats))


def _logistic(b: Any, f: Any, sign: Any) -> tuple[Any, Any, Any]:
    """Return σ(sign f), 1 - σ(sign f) and |f|."""
    size = b.call(_function(b, "llvm.fabs.v16f32", ir.FunctionType(f.type, [f.type])), [f])
    # An ordered comparison is false for NaN, so that NaN passes through.
    capped = b.select(b.fcmp_ordered(">", size, _constant(FARTHEST)), _constant(FARTHEST), size)
    small = _exp_minus(b, capped)
    # From exp(-|f|) alone, which never overflows.
    whole = b.fdiv(_constant(1.0), b.fadd(_constant(1.0), small))
    part = b.fmul(small, whole)
    right = b.fcmp_ordered(">=", b.fmul(f, splat(b, sign)), _constant(0.0))
    return b.select(right, whole, part), b.select(right, part, whole), size


def _wide(b: Any, values: Any) -> Any:
    return b.fpext(values, ir.VectorType(ir.DoubleType(), 16))


def _product(b: Any, terms: Any) -> Any:
    """Return the product of 16 float64."""
    kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType(), terms.type])
    times = _function(b, "llvm.vector.reduce.fmul.v16f64", kind)
    return b.call(times, [ir.Constant(ir.DoubleType(), 1.0), terms], fastmath=REORDER)


@intrinsic
def slopes(typing: Any, out: Any, n: Any, sign: Any, scale: Any, limit: Any) -> Any:
    """Return the product of σ(sign f) over the first n <= 16 values f at an address, as float64.

    Each f is replaced by ``sign`` (1 - σ(sign f)) ``scale``, ``scale`` times the slope of log σ, or by 0 where |f| is
    not below ``limit``; beyond n there are zeros then. The address is at a multiple of 64 bytes.
    """

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        place, count, sign_value, factor, most = given
        chance, rest, size = _logistic(b, load(b, place, 0), sign_value)
        ints, first = ir.VectorType(ir.IntType(32), 16), ir.Constant(ir.IntType(32), 0)
        # Lanes beyond the count are masked: their slope is 0 and their probability 1.
        lane, empty = ir.Constant(ints, list(range(16))), ir.Constant(ints, ir.Undefined)
        bound = b.insert_element(empty, b.trunc(count, ir.IntType(32)), first)
        inside = b.icmp_signed("<", lane, b.shuffle_vector(bound, empty, ir.Constant(ints, [0] * 16)))
        step = b.fmul(rest, splat(b, b.fmul(factor, sign_value)))
        known = b.and_(inside, b.fcmp_unordered("<", size, splat(b, most)))
        store(b, b.select(known, step, _constant(0.0)), place, 0)
        return _product(b, _wide(b, b.select(inside, chance, _constant(1.0))))

    given = (types.int64, types.int64, types.float32, types.float32, types.float32)
    return types.float64(*given), emit


@intrinsic
def slopes32(typing: Any, out: Any, sign: Any, scale: Any) -> Any:
    """Do what ``slopes`` does for 32 values without a limit; at once, they take little longer than 16."""

    def emit(context: Any, b: Any, signature: Any, given: Any) -> Any:
        place, sign_value, factor = given
        # Two vectors at once hide the latency of exp.
        both = [_logistic(b, load(b, place, j), sign_value) for j in range(2)]
        for j, (_, rest, _) in enumerate(both):
            store(b, b.fmul(rest, splat(b, b.fmul(factor, sign_value))), place, j)
        return _product(b, b.fmul(_wide(b, both[0][0]), _wide(b, both[1][0])))

    return types.float64(types.int64, types.float32, types.float32), emit
