"""Instruction sets of compiled loops, and the tile of a product on each."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

from attnkit.errors import SystemFailure
from attnkit.runtime.signals import defer_signals

TargetName = Literal["amx", "avx512", "avx2", "portable"]
Precision = Literal["float32", "bfloat16", "int8"]
NumberFormat = Literal["float32", "bfloat16", "int8", "int16"]  #: of a product's inputs; int16 for screening alone

# Letters: M rows of activations, N columns of a product, K inputs.
PANEL = 64  #: multiple to which columns and inputs of every product are padded; a multiple of each target's panel

MATRIX_ROWS = 16  #: rows of a tile of AMX; it has 64 bytes per row

HEAD_VECTORS = (1, 2, 4, 8)  #: widths of heads, in vectors of 16 floats, that have loops of their own


class RegisterTile(NamedTuple):
    """Rows x 16 ``vectors`` sums of a product, kept in registers."""

    rows: int
    vectors: int

    @property
    def panel(self) -> int:
        """Return its number of columns."""
        return 16 * self.vectors


@dataclass(frozen=True)
class Target:
    """Instruction set, and how products use it."""

    name: TargetName
    needs: tuple[str, ...]  #: features of the processor, by LLVM's names
    cpu: str | None  #: processor that LLVM compiles for; None: the host
    features: str  #: LLVM's features, where ``cpu`` is given
    float_tile: RegisterTile
    int8_tile: RegisterTile
    activation_bits: int
    """Bits of an int8 activation. With 7, the 16-bit sums of ``vpmaddubsw`` cannot saturate: 2 x 127 x 127 < 2**15."""
    summed_groups: int = 1
    """Groups of 4 int8 products that are added in 16 bits before 32; ``packing`` scales weights for it."""
    native_bfloat16: bool = False  #: has an instruction for products of bfloat16
    fast_int8: bool = True  #: multiplies bytes several times as fast as floats
    fast_int16: bool = False  #: multiplies pairs of int16 twice as fast as floats
    has_matrix_tiles: bool = False  #: multiplies tiles of bfloat16 and of bytes in registers of their own (AMX)

    def tile(self, number_format: NumberFormat) -> RegisterTile:
        """Return the tile of a product."""
        return self.int8_tile if number_format == "int8" else self.float_tile

    @property
    def has_avx512(self) -> bool:
        """Return whether it has AVX-512."""
        return "avx512f" in self.needs

    @property
    def extra_rows(self) -> int:
        """Return how many rows behind the last one a product may read or write."""
        return max(self.float_tile.rows, self.int8_tile.rows, MATRIX_ROWS if self.has_matrix_tiles else 0)

    def multiplies_tiles(self, number_format: NumberFormat) -> bool:
        """Return whether products of many rows are made of AMX's tiles."""
        return self.has_matrix_tiles and number_format in ("bfloat16", "int8")

    def peak_format(self, precision: Precision) -> NumberFormat | None:
        """Return the format that finds panels with large logits, or None."""
        if self.multiplies_tiles(precision):
            return None  # as fast as what would screen them
        return "int8" if self.fast_int8 and precision != "int8" else None

    def sum_format(self, precision: Precision) -> NumberFormat | None:
        """Return the format that also gives sums of exponentials, or None."""
        if precision == "float32":
            return "int16" if self.fast_int16 else None
        return self.peak_format(precision)

    def zero_point(self, non_negative: bool) -> int:
        """Return the byte that represents 0; it is 0 for non-negative activations."""
        return 0 if non_negative else 1 << (self.activation_bits - 1)

    def levels(self, non_negative: bool) -> int:
        """Return the number of byte levels between 0 and the largest activation."""
        return (1 << self.activation_bits) - 1 if non_negative else (1 << (self.activation_bits - 1)) - 1


_AVX2 = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt,+sse4.2"
_TILES = ("amx-tile", "amx-int8", "amx-bf16")
_WIDE = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni")
_NARROW = ("avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt")
# AVX-512 has 32 registers: 24 sums, 4 weights and an activation. Elsewhere 16: a vector of 16 lanes takes two or four.
# One row of int8 with AVX2: 4 sums and 4 activations, and weights are read from memory by the instruction.
_AVX512 = Target("avx512", _WIDE, None, "", RegisterTile(6, 4), RegisterTile(6, 4), 8, fast_int16=True)
TARGETS: dict[TargetName, Target] = {
    "amx": replace(_AVX512, name="amx", needs=(*_WIDE, "avx512bf16", *_TILES), has_matrix_tiles=True),
    "avx512": _AVX512,
    "avx2": Target("avx2", _NARROW, "haswell", _AVX2, RegisterTile(2, 2), RegisterTile(1, 2), 7, summed_groups=4),
    "portable": Target("portable", (), "generic", "", RegisterTile(2, 1), RegisterTile(2, 1), 8, fast_int8=False),
}


@cache
def host_features() -> frozenset[str]:
    """Return the features of this processor, by LLVM's names."""
    try:
        from llvmlite import binding
    except (ImportError, OSError) as error:
        raise SystemFailure(f"llvmlite cannot be loaded: {error}", help="use --engine torch") from error

    with defer_signals():  # an interrupted object of llvmlite would print at its end
        return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


@cache
def may_use_tiles() -> bool:
    """Ask the system for AMX's tiles; return whether it allows them."""
    if sys.platform != "linux":
        return False
    # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): without it the first instruction would end the process.
    return bool(ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0)


def choose_target(name: TargetName | None = None) -> Target:
    """Return a target by name, by default the fastest that this processor runs.

    Raises ``ValueError`` if the processor lacks its instructions, or the system does not allow them.
    """
    names = [name] if name else [*TARGETS]
    for target in (TARGETS[one] for one in names):
        if host_features().issuperset(target.needs) and (not target.has_matrix_tiles or may_use_tiles()):
            native = target.has_avx512 and "avx512bf16" in host_features()
            return replace(target, native_bfloat16=native)
    lacking = sorted({*TARGETS[names[0]].needs} - host_features())
    raise ValueError(f"this processor lacks {', '.join(lacking)}" if lacking else "the system does not allow AMX")
