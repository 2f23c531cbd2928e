"""Position encodings: sinusoidal, learned, rotary, ALiBi and relative biases.

Letters: T queries or positions, S keys, H heads, d head width. Tables are computed once per size and cached.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.layer_config import ROPE_BASE
from attnkit.models.position_tables import MAX_DISTANCE, N_BUCKETS, RopeScaling, alibi_slopes, angles, fairseq_sinusoids


@lru_cache(maxsize=16)
def _angles(
    n: int,
    width: int,
    dtype: torch.dtype,
    device: torch.device,
    base: float = ROPE_BASE,
    scaling: RopeScaling | None = None,
) -> tuple[Tensor, Tensor]:
    """Return sine and cosine (n, width / 2) of the angles pos / base^(2i / width)."""
    with torch.inference_mode(False):  # a table cached while decoding must work in training too
        turns = angles(n, width, base, scaling)  # (n, width / 2)
        sine, cosine = torch.from_numpy(np.sin(turns)), torch.from_numpy(np.cos(turns))
        return sine.to(device, dtype), cosine.to(device, dtype)


@lru_cache(maxsize=16)
def _interleaved(n: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # In float64 on the CPU: float32 angles of late positions lose precision.
    sine, cosine = _angles(n, width, torch.float64, torch.device("cpu"))
    with torch.inference_mode(False):
        return torch.stack((sine, cosine), dim=-1).flatten(1).to(device, dtype)  # (n, width / 2, 2) to (n, width)


@lru_cache(maxsize=16)
def _fairseq(n: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.from_numpy(fairseq_sinusoids(n, width)).to(device, dtype)


def _rounded(n: int) -> int:
    """Round n up to a power of two, at least 64, so that few tables are needed."""
    return max(64, 1 << (n - 1).bit_length())


def sinusoids(start: int, stop: int, like: Tensor) -> Tensor:
    """Return rows start..stop of the sinusoidal table, (stop - start, D).

    PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(same) (Vaswani 2017, 3.5). ``like`` gives D and dtype.
    """
    return _interleaved(_rounded(stop), like.shape[-1], like.dtype, like.device)[start:stop]


def rotations(n: int, width: int, base: float = ROPE_BASE, scaling: RopeScaling | None = None) -> Tensor:
    """Return the rotary table of positions 0..n, (n, width): sines, then cosines."""
    return torch.cat(_angles(n, width, torch.float32, torch.device("cpu"), base, scaling), dim=-1)


@lru_cache(maxsize=16)
def rotation_table(
    n: int, width: int, device: torch.device, base: float = ROPE_BASE, scaling: RopeScaling | None = None
) -> Tensor:
    """Return the rotary table of at least n positions, (≥ n, width) float32.

    Sines, then cosines.
    """
    with torch.inference_mode(False):
        return rotations(_rounded(n), width, base, scaling).to(device)


class PositionEmbedding(nn.Module):
    """Position vectors that are added to words: sinusoids, learned, or none."""

    __call__: Callable[..., Tensor]

    def __init__(self, kind: str, max_length: int, d_model: int, offset: int = 0) -> None:
        """Build the table of learned positions, with ``offset`` rows before the first."""
        super().__init__()
        # Rotary positions, ALiBi and relative biases act inside attention.
        self.kind, self.offset, learned = kind, offset, kind == "learned"
        shape = max_length + offset, d_model
        self.table = nn.Parameter(torch.empty(shape).normal_(std=d_model**-0.5)) if learned else None

    def forward(self, x: Tensor, start: int, stop: int, positions: Tensor | None = None) -> Tensor:
        """Add position vectors of start..stop, or of positions (B, T), to x (B, T, D).

        Positions are relative to start and below stop - start. Raises ``ValueError`` beyond the end of a learned table.
        """
        if self.table is not None:
            n_learned = len(self.table) - self.offset
            if stop > n_learned:
                raise ValueError(f"sequence length {stop} exceeds the {n_learned} learned positions")
            rows = self.table[self.offset + start : self.offset + stop]  # (T, D), the same for the whole batch
        elif self.kind == "sinusoidal":
            rows = sinusoids(start, stop, like=x)
        elif self.kind == "fairseq":
            rows = _fairseq(_rounded(stop), x.shape[-1], x.dtype, x.device)[start:stop]
        else:
            return x
        # The table is indexed: sinusoids are never computed per packed row.
        return x + (rows if positions is None else F.embedding(positions, rows))


class Rotation:
    """Rotary positions start..stop (Su 2021), with the pairs (x_i, x_(i+d/2)).

    Each pair is rotated by pos · base^(-2i/d), scaled if wanted. Given positions (B, T) below stop, each token has its
    own position.
    """

    def __init__(
        self,
        start: int,
        stop: int,
        like: Tensor,
        positions: Tensor | None = None,
        base: float = ROPE_BASE,
        scaling: RopeScaling | None = None,
    ) -> None:
        sine, cosine = _angles(_rounded(stop), like.shape[-1], like.dtype, like.device, base, scaling)
        if positions is None:
            self.sine, self.cosine = sine[start:stop], cosine[start:stop]
        else:
            self.sine, self.cosine = sine[positions].unsqueeze(1), cosine[positions].unsqueeze(1)  # (B, 1, T, d / 2)

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate x (..., T, d) by its positions."""
        first, second = x.chunk(2, dim=-1)  # (..., T, d / 2) each
        # Real and imaginary part of a rotation.
        turned = (first * self.cosine - second * self.sine, second * self.cosine + first * self.sine)
        return torch.cat(turned, dim=-1)


class AlibiBias(nn.Module):
    """ALiBi, a penalty -slope_h · |i - j|, equal in both directions (Press 2021)."""

    slopes: Tensor

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def forward(self, distance: Tensor) -> Tensor:
        """Return the bias (H, T, S) of distances j - i (T, S) int64."""
        return -self.slopes[:, None, None] * distance.abs().to(self.slopes.dtype)  # (H, 1, 1) * (T, S)


class RelativeBias(nn.Module):
    """Trained bias per head and distance bucket, one table per stack (Raffel 2020).

    Half of the buckets hold one distance each, the rest grow logarithmically up to max_distance; larger distances share
    the last one. With both_ways, as in T5's encoder, each direction has half of the buckets.
    """

    def __init__(
        self, n_heads: int, both_ways: bool, n_buckets: int = N_BUCKETS, max_distance: int = MAX_DISTANCE
    ) -> None:
        super().__init__()
        self.both_ways, self.n_buckets, self.max_distance = both_ways, n_buckets, max_distance
        self.table = nn.Parameter(torch.empty(n_buckets, n_heads).normal_(std=n_buckets**-0.5))

    def forward(self, distance: Tensor) -> Tensor:
        """Return the bias (H, T, S) of distances j - i (T, S) int64."""
        return self.table[self.buckets(distance)].permute(2, 0, 1)  # (T, S, H) to (H, T, S)

    def buckets(self, distance: Tensor) -> Tensor:
        """Return the bucket (T, S) int64 of each distance."""
        if self.both_ways:
            half = self.n_buckets // 2
            return (distance > 0) * half + self._bucket(distance.abs(), half)
        # A causal decoder never sees keys ahead: all of them share bucket 0.
        return self._bucket((-distance).clamp(min=0), self.n_buckets)

    def _bucket(self, distance: Tensor, n: int) -> Tensor:
        # Distances below this have their own buckets.
        exact = n // 2
        # Chosen such that max_distance is the end of the last bucket.
        growth = (n - exact) / math.log(self.max_distance / exact)
        steps = torch.log(distance.clamp(min=1).float() / exact) * growth
        far = exact + (steps + 1e-5).long()  # whole numbers must not be truncated to the number below
        return torch.where(distance < exact, distance, far.clamp(max=n - 1))
