"""Feature maps φ for kernel attention, whose scores are φ(q)·φ(k) (Tsai 2019; Katharopoulos 2020; Choromanski 2021).

Letters: d width of queries and keys, m number of features. All features are positive, so scores may be normalised by
their sum. A map says its features as mantissa and logarithm of a scale, each vector its own: what is a product of
large and small exponentials stays finite, and no vector's features depend on any other vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

HALF = (torch.bfloat16, torch.float16)


class FeatureMap(Protocol):
    """From vectors (..., d) to positive features (..., m)."""

    def scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(x) · e^(-c) (..., m), of moderate size, and c (..., 1), which gradients do not pass."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """Return φ(x) (..., m); it may underflow to zeros for long vectors, where ``scaled`` does not."""
        ...


class FavorFeatures(nn.Module):
    """Positive random features of the softmax kernel, FAVOR+ (Choromanski 2021, lemma 1 and section 2.4).

    φ(x) = exp(ω x̂ - |x̂|² / 2) / √m for m directions ω, with x̂ = x / d^(1/4): the mean of φ(q)·φ(k) over the draws of
    ω is exp(q·k / √d), so that kernel x normalize approximates scaled dot x softmax. The directions come in blocks of d
    orthogonal ones, as long as Gaussian ones are. They are a buffer, saved with the model.
    """

    directions: Tensor

    def __init__(self, width: int, n_features: int, seed: int = 0) -> None:
        super().__init__()
        self.scale = width**-0.25
        self.register_buffer("directions", torch.empty(n_features, width))
        self.redraw(seed)

    def redraw(self, seed: int) -> None:
        """Take other directions, which follow from the seed alone; no other random numbers are touched."""
        if not self.directions.is_meta:
            with torch.no_grad():
                n, width = self.directions.shape
                self.directions.copy_(orthogonal_directions(n, width, seed))

    def scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features over their largest, and the logarithm of the largest; half precision becomes float32."""
        x = (x.float() if x.dtype in HALF else x) * self.scale
        inner = x @ self.directions.to(x.dtype).t()  # (..., m)
        largest = inner.detach().amax(-1, keepdim=True)
        half_square = x.square().sum(-1, keepdim=True) / 2
        unscaled = half_square.detach()  # its value stands in the scale, its gradient in the features
        # A floor far below rounding: the features of two long vectors may share no direction, and a sum of their
        # products that underflows to zero could not be divided by.
        features = (inner - (largest + half_square - unscaled)).exp() + torch.finfo(x.dtype).tiny ** 0.45
        return features, largest - unscaled - math.log(len(self.directions)) / 2

    def forward(self, x: Tensor) -> Tensor:
        """Return φ(x) (..., m)."""
        features, scale = self.scaled(x)
        return (features * scale.exp()).to(x.dtype)


class EluFeatures(nn.Module):
    """φ(x) = elu(x) + 1, number by number (Katharopoulos 2020, eq. 7): m = d. n_features and seed are not used."""

    def __init__(self, width: int, n_features: int = 0, seed: int = 0) -> None:
        super().__init__()
        self.width = width

    def scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(x) and zeros: these features need no scale."""
        x = x.float() if x.dtype in HALF else x
        return self.forward(x), x.new_zeros((*x.shape[:-1], 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return φ(x) (..., d)."""
        # For x << 0 elu(x) + 1 would round e^x away.
        return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def orthogonal_directions(n: int, width: int, seed: int) -> Tensor:
    """Return n directions (n, width) in float64, every ``width`` of them orthogonal, their lengths those of Gaussians.

    Each alone is distributed as a standard normal vector (Choromanski 2021, section 2.4).
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    shape = (2, -(-n // width), width, width)
    drawn, others = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    basis, triangle = torch.linalg.qr(drawn)
    # Householder's signs are not random: undone, the basis is uniform over all rotations and reflections.
    basis = basis * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    lengths = others.norm(dim=-1, keepdim=True)
    rows: Tensor = (basis.transpose(-1, -2) * lengths).reshape(-1, width)
    return rows[:n]


FEATURE_MAPS: dict[str, Callable[[int, int, int], FavorFeatures | EluFeatures]] = {
    "favor": FavorFeatures,
    "elu": EluFeatures,
}
"""Name -> feature map, made from the width of queries and keys, the number of random features, and a seed."""
