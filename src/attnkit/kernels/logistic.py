"""Logistic function and its loss, 16 values at a time in LLVM; no lookup tables."""

import math
from typing import Any

import numpy as np

from attnkit.kernels.vector import REORDER, fma, i32x16, intrinsic, load, splat, store, vector_type

try:
    from llvmlite import ir
    from numba.core import cgutils
except ImportError:  # without numba, nothing here is called
    pass

# Letters: f scores, 16 at a time; b is llvmlite's IR builder.
MAX_SCORE = 18.0  #: scores are clipped to ±18: the loss lies between 1.5e-8 and 18
# Coefficients 1 / k! of exp, the highest power first.
_POLYNOMIAL = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)


def _constant(value: float) -> Any:
    return ir.Constant(vector_type(), [float(np.float32(value))] * 16)


def _exp_minus(b: Any, a: Any) -> Any:
    """Return exp(-a) for 0 <= a <= 18, with relative error 2e-7; NaN stays NaN."""
    floor = cgutils.get_or_insert_function(b.module, ir.FunctionType(a.type, [a.type]), "llvm.floor.v16f32")
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
    # 2^n from its bits: exponent n + 127, shifted left by the 23 bits of the mantissa.
    bits = b.shl(b.add(b.fptosi(power, i32x16([0] * 16).type), i32x16([127] * 16)), i32x16([23] * 16))
    return b.fmul(total, b.bitcast(bits, a.type))


def _logistic(b: Any, f: Any, sign: Any) -> tuple[Any, Any, Any]:
    """Return σ(sign f), 1 - σ(sign f) and |f|."""
    fabs = cgutils.get_or_insert_function(b.module, ir.FunctionType(f.type, [f.type]), "llvm.fabs.v16f32")
    size = b.call(fabs, [f])
    # An ordered comparison is false for NaN, so that NaN passes through.
    capped = b.select(b.fcmp_ordered(">", size, _constant(MAX_SCORE)), _constant(MAX_SCORE), size)
    small = _exp_minus(b, capped)
    # Uses only exp(-|f|), which never overflows.
    whole = b.fdiv(_constant(1.0), b.fadd(_constant(1.0), small))
    part = b.fmul(small, whole)
    right = b.fcmp_ordered(">=", b.fmul(f, splat(b, sign)), _constant(0.0))
    return b.select(right, whole, part), b.select(right, part, whole), size


def _wide(b: Any, values: Any) -> Any:
    return b.fpext(values, ir.VectorType(ir.DoubleType(), 16))


def _product(b: Any, terms: Any) -> Any:
    """Return the product of 16 float64."""
    kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType(), terms.type])
    times = cgutils.get_or_insert_function(b.module, kind, "llvm.vector.reduce.fmul.v16f64")
    return b.call(times, [ir.Constant(ir.DoubleType(), 1.0), terms], fastmath=REORDER)


@intrinsic("int64", "int64", "float32", "float32", "float32", result="float64")
def slopes(b: Any, out: Any, n: Any, sign: Any, scale: Any, limit: Any) -> Any:
    """Return the float64 product of σ(sign f) over the n <= 16 values f at ``out``.

    Each f is replaced by ``scale`` times the slope of log σ(sign f), which is ``sign`` (1 - σ(sign f)), or by 0 if |f|
    is at least ``limit``. Values beyond n become 0. The address ``out`` must be 64-byte aligned.
    """
    chance, rest, size = _logistic(b, load(b, out, 0), sign)
    # Lanes beyond the count are masked: their slope is 0 and their probability 1.
    inside = b.icmp_signed("<", i32x16([*range(16)]), splat(b, b.trunc(n, ir.IntType(32))))
    step = b.fmul(rest, splat(b, b.fmul(scale, sign)))
    known = b.and_(inside, b.fcmp_unordered("<", size, splat(b, limit)))
    store(b, b.select(known, step, _constant(0.0)), out, 0)
    return _product(b, _wide(b, b.select(inside, chance, _constant(1.0))))


@intrinsic("int64", "float32", "float32", result="float64")
def slopes32(b: Any, out: Any, sign: Any, scale: Any) -> Any:
    """Compute ``slopes`` for 32 values without a limit, little slower than for 16."""
    # Two vectors at once hide the latency of exp.
    both = [_logistic(b, load(b, out, j), sign) for j in range(2)]
    for j, (_, rest, _) in enumerate(both):
        store(b, b.fmul(rest, splat(b, b.fmul(scale, sign))), out, j)
    return _product(b, b.fmul(_wide(b, both[0][0]), _wide(b, both[1][0])))
