"""LLVM emitters for vectors of 16 lanes: memory, arithmetic, reductions.

LLVM splits a vector where registers are narrower. Letters: b is llvmlite's IR builder; addresses are int64, in bytes.
"""

import math
from collections.abc import Callable
from typing import Any

from attnkit.kernels.vector import REORDER, fma, i32x16, i64, intrinsic, splat

try:
    from llvmlite import ir
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass

__all__ = ["REORDER", "fma", "i32x16", "i64", "intrinsic", "splat"]


def scalar(kind: str) -> Any:
    """Return a type: float, i8, i16, i32 or i64."""
    return ir.FloatType() if kind == "float" else ir.IntType(int(kind[1:]))


def vector(kind: str, n: int = 16) -> Any:
    """Return the type of n lanes."""
    return ir.VectorType(scalar(kind), n)


def constant(kind: str, value: float) -> Any:
    """Return 16 lanes of one value."""
    return ir.Constant(vector(kind), [value] * 16)


def pointer(b: Any, address: Any, kind: Any) -> Any:
    """Return an address as a pointer to a value of an LLVM type."""
    return b.inttoptr(address, ir.PointerType(kind))


def offset(b: Any, address: Any, n: Any) -> Any:
    """Return an address so many bytes further; n is an int or an LLVM value."""
    return b.add(address, i64(n) if isinstance(n, int) else n)


def load(b: Any, address: Any, kind: Any = None) -> Any:
    """Return what is at an address, by default 16 floats."""
    kind = kind or vector("float")
    # Rows begin anywhere: unaligned loads cost nothing where the address happens to be aligned.
    return b.load(pointer(b, address, kind), align=1)


def store(b: Any, value: Any, address: Any) -> None:
    """Write a value to an address."""
    b.store(value, pointer(b, address, value.type), align=1)


def call(b: Any, name: str, result: Any, *values: Any, **options: Any) -> Any:
    """Call an intrinsic of LLVM."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), list(values), **options)


def halves(b: Any, function: Callable[..., Any], *vectors: Any) -> Any:
    """Apply a function of 8-lane vectors to both halves of 16-lane vectors."""
    i32 = ir.IntType(32)
    parts = []
    for first in (0, 8):
        lanes = ir.Constant(ir.VectorType(i32, 8), list(range(first, first + 8)))
        parts.append(function(b, *(b.shuffle_vector(v, v, lanes) for v in vectors)))
    return b.shuffle_vector(*parts, ir.Constant(ir.VectorType(i32, 16), list(range(16))))


def maximum(b: Any, x: Any, y: Any) -> Any:
    """Return the larger of two floats or vectors of floats; y if one of them is NaN."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def lane_max(b: Any, x: Any) -> Any:
    """Return the largest of 16 floats."""
    return call(b, "llvm.vector.reduce.fmax.v16f32", ir.FloatType(), x, fastmath=("nnan", "nsz"))


def lane_sum(b: Any, x: Any) -> Any:
    """Return the sum of 16 floats."""
    zero = ir.Constant(ir.FloatType(), 0.0)
    return call(b, "llvm.vector.reduce.fadd.v16f32", ir.FloatType(), zero, x, fastmath=("reassoc", "nsz"))


def absolute(b: Any, x: Any) -> Any:
    """Return the absolute values of 16 floats."""
    return call(b, "llvm.fabs.v16f32", vector("float"), x)


def exp(b: Any, x: Any, *, positive: bool = True) -> Any:
    """Return exponentials of 16 floats, clamped at -87 and 88.

    The relative error is 2e-7. Not ``positive``: no float is above 0, which saves a step.
    """
    if positive:
        x = call(b, "llvm.minnum.v16f32", vector("float"), x, constant("float", 88.0))
    x = call(b, "llvm.maxnum.v16f32", vector("float"), x, constant("float", -87.0))
    # x = n ln 2 + r with |r| <= ln 2 / 2. ln 2 is in two parts, the first times n is exact (Cody and Waite 1980).
    n = call(b, "llvm.rint.v16f32", vector("float"), b.fmul(x, constant("float", 1 / math.log(2))))
    r = fma(b, n, constant("float", -0.693145751953125), x)
    r = fma(b, n, constant("float", -1.428606765330187e-06), r)
    # Taylor: the first term left out is r**8 / 8! < 6e-9.
    p = constant("float", 1 / math.factorial(7))
    for k in range(6, -1, -1):
        p = fma(b, p, r, constant("float", 1 / math.factorial(k)))
    # 2**n by its bits: the exponent of a float32 begins at bit 23 with a bias of 127.
    bits = b.shl(b.add(b.fptosi(n, vector("i32")), constant("i32", 127)), constant("i32", 23))
    return b.fmul(p, b.bitcast(bits, vector("float")))


def exp2(b: Any, x: Any) -> Any:
    """Return 2 to the power of 16 floats, none above 0, clamped at -126.

    The relative error is 3e-6.
    """
    x = maximum(b, x, constant("float", -126.0))
    n = call(b, "llvm.rint.v16f32", vector("float"), x)
    r = b.fsub(x, n)
    # Taylor: the first term left out is (r ln 2)**6 / 6! < 3e-6.
    p = constant("float", math.log(2) ** 5 / math.factorial(5))
    for k in range(4, -1, -1):
        p = fma(b, p, r, constant("float", math.log(2) ** k / math.factorial(k)))
    # Times 2**n: n is added to the exponent, which begins at bit 23.
    bits = b.add(b.bitcast(p, vector("i32")), b.shl(b.fptosi(n, vector("i32")), constant("i32", 23)))
    return b.bitcast(bits, vector("float"))


def to_bfloat16(b: Any, x: Any, is_native: bool) -> Any:
    """Return 16 floats rounded to bfloat16, to even among equals, as int16.

    ``is_native``: there is an instruction for it (AVX-512 BF16), which takes numbers below 2**-126 for zero.
    """
    if is_native:
        return call(b, "llvm.x86.avx512bf16.cvtneps2bf16.512", vector("i16"), x)
    bits = b.bitcast(x, vector("i32"))
    odd = b.and_(b.lshr(bits, constant("i32", 16)), constant("i32", 1))
    bits = b.add(b.add(bits, constant("i32", 0x7FFF)), odd)
    return b.trunc(b.lshr(bits, constant("i32", 16)), vector("i16"))


def from_bfloat16(b: Any, x: Any) -> Any:
    """Return 16 bfloat16, given as int16, as floats."""
    return b.bitcast(b.shl(b.zext(x, vector("i32")), constant("i32", 16)), vector("float"))


def lanes(first: int) -> Any:
    """Return 16 int32 that count from ``first``."""
    return ir.Constant(vector("i32"), list(range(first, first + 16)))


def store_chosen(b: Any, compresses: bool, chosen: Any, x: Any, address: Any) -> Any:
    """Write the chosen lanes of 16 int32 one after another; return their number.

    All of the 16 places may be written. ``compresses``: there is an instruction for it (AVX-512).
    """
    if compresses:
        kind = vector("i32")
        store(b, call(b, "llvm.x86.avx512.mask.compress.v16i32", kind, x, x, chosen), address)
        bits = b.bitcast(chosen, ir.IntType(16))
        return b.zext(call(b, "llvm.ctpop.i16", ir.IntType(16), bits), ir.IntType(64))
    n = i64(0)
    for lane in range(16):
        at = ir.Constant(ir.IntType(32), lane)
        store(b, b.extract_element(x, at), b.add(address, b.mul(n, i64(4))))
        n = b.add(n, b.zext(b.extract_element(chosen, at), ir.IntType(64)))
    return n


def accumulators(b: Any, initial: list[Any]) -> list[Any]:
    """Return slots for values that a loop updates; LLVM keeps them in registers."""
    return [cgutils.alloca_once_value(b, value) for value in initial]


def to_pairs(b: Any, x: Any, y: Any) -> Any:
    """Return 16 and 16 floats as 32 bfloat16 in 16 lanes (AVX-512 BF16)."""
    halves = call(b, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", vector("i16", 32), y, x)
    return b.bitcast(halves, vector("i32"))


def dot_pairs(b: Any, sums: Any, x: Any, y: Any) -> Any:
    """Return sums plus the products of both bfloat16 of each lane (AVX-512 BF16)."""
    return call(b, "llvm.x86.avx512bf16.dpbf16ps.512", vector("float"), sums, x, y)
