"""Position tables as arrays, and scaling of rotary positions. Torch-free.

Letters: n positions, D model width, H heads, d head width.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from attnkit.models.limits import MOST_POSITIONS

N_BUCKETS, MAX_DISTANCE = 32, 128  #: of relative biases (T5: Raffel et al. 2020, section 2.1)
ScalingName = Literal["linear", "llama3"]


class RopeScaling(BaseModel, frozen=True, extra="forbid", strict=True):
    """Scaling of rotary positions."""

    kind: ScalingName
    """Scaling: of all frequencies (linear: position interpolation, Chen et al. 2023), or of those that turn too rarely
    within original_length (llama3: Llama 3.1)."""
    factor: float = Field(ge=1, le=1e4)
    """Divisor of the scaled frequencies, e.g. new length / original length."""
    # Of llama3 alone.
    low_freq_factor: float = Field(default=1.0, gt=0, le=1e4)
    """Turns within original_length below which llama3 divides a frequency by the whole factor."""
    high_freq_factor: float = Field(default=4.0, gt=0, le=1e4)
    """Turns within original_length above which llama3 leaves a frequency as it is."""
    original_length: int = Field(default=8192, gt=1, le=MOST_POSITIONS)
    """Length of the texts of pretraining, in tokens, for llama3."""

    @model_validator(mode="after")
    def _check(self) -> RopeScaling:
        if self.kind == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            raise ValueError("high_freq_factor must be above low_freq_factor")
        return self

    def scaled(self, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scaled frequencies (d / 2,), in radians per position.

        Llama 3.1: with n = original_length · f / 2π turns, f becomes (1 - s) f / factor + s f, where s rises linearly
        from 0 at low_freq_factor turns to 1 at high_freq_factor.
        """
        slow: NDArray[np.float64] = frequencies / self.factor
        if self.kind == "linear":
            return slow
        turns = self.original_length * frequencies / (2 * math.pi)
        share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        share = np.clip(share, 0.0, 1.0)
        return (1 - share) * slow + share * frequencies


def angles(n: int, width: int, base: float = 10000.0, scaling: RopeScaling | None = None) -> NDArray[np.float64]:
    """Return pos / base^(2i / width), (n, width / 2), scaled if wanted."""
    frequencies: NDArray[np.float64] = base ** (-np.arange(0, width, 2) / width)
    if scaling is not None:
        frequencies = scaling.scaled(frequencies)
    table: NDArray[np.float64] = np.arange(n)[:, None] * frequencies
    return table


def sinusoids(n: int, d_model: int) -> NDArray[np.float32]:
    """Return the sinusoidal table (n, D), interleaved (Vaswani et al. 2017, 3.5)."""
    turns = angles(n, d_model)
    return np.stack((np.sin(turns), np.cos(turns)), -1).reshape(n, d_model).astype(np.float32)


def fairseq_sinusoids(n: int, d_model: int) -> NDArray[np.float32]:
    """Return the table (n, D) of fairseq: all sines, then all cosines.

    Wavelengths end at 10000 · 2π itself, and the first position is 2, as 0 and 1 are of padding there.
    """
    half = d_model // 2
    turns = np.arange(2, n + 2)[:, None] * 10000.0 ** (-np.arange(half) / max(1, half - 1))
    return np.concatenate((np.sin(turns), np.cos(turns)), 1).astype(np.float32)


def rotations(n: int, d_head: int, base: float = 10000.0, scaling: RopeScaling | None = None) -> NDArray[np.float32]:
    """Return sines, then cosines of rotary positions, (n, 2, d / 2) (Su et al. 2021)."""
    turns = angles(n, d_head, base, scaling)
    return np.stack((np.sin(turns), np.cos(turns)), 1).astype(np.float32)


def alibi_slopes(n_heads: int) -> list[float]:
    """Return the slopes of ALiBi (Press et al. 2022).

    They are 2^(-8/H), 2^(-16/H), ... if H is a power of two; otherwise those of the power of two below, then every
    second slope of the power of two above.
    """
    power = 1 << (n_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return slopes + between[: n_heads - power]


def alibi_bias(n_heads: int, distance: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the bias (H, n) of n distances."""
    slopes = np.array(alibi_slopes(n_heads), np.float32)
    return -slopes[:, None] * np.abs(distance).astype(np.float32)


def relative_bias(
    table: NDArray[np.float32], distance: NDArray[np.int64], both_ways: bool, max_distance: int = MAX_DISTANCE
) -> NDArray[np.float32]:
    """Return the bias (H, n) of n distances (key minus query), as in T5.

    Half of the buckets hold one distance each, the others grow logarithmically. ``both_ways``: half of the buckets are
    for keys after the query; otherwise these all share bucket 0.
    """
    n = len(table)
    if both_ways:
        buckets = (distance > 0) * (n // 2) + _buckets(np.abs(distance), n // 2, max_distance)
    else:
        buckets = _buckets(np.maximum(-distance, 0), n, max_distance)
    return np.ascontiguousarray(table[buckets].T)  # (n, H) to (H, n)


def _buckets(distance: NDArray[np.int64], n: int, max_distance: int) -> NDArray[np.int64]:
    exact = n // 2
    growth = (n - exact) / math.log(max_distance / exact)
    steps = np.log(np.maximum(distance, 1).astype(np.float32) / exact) * np.float32(growth)
    # A whole number must not be rounded to just below itself.
    far = exact + (steps + np.float32(1e-5)).astype(np.int64)
    buckets: NDArray[np.int64] = np.where(distance < exact, distance, np.minimum(far, n - 1))
    return buckets
