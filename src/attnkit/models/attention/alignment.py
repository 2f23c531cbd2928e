"""Alignment functions a(q, k): how well a query fits each key. One class each, all with the same face.

Letters: B batch, H heads, T queries, S keys. Each class splits its work: ``prepare`` is what depends on the keys alone
and is done once per sentence, ``score`` is the rest; calling the module does both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from attnkit.models.linear import Linear


class Alignment(Protocol):
    """Scores of queries (B, H, T, d_query) against keys (B, H, S, d_key)."""

    def prepare(self, keys: Tensor) -> Tensor:
        """Return what depends on the keys alone, (B, H, S, ...)."""
        ...

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (B, H, T, S) of a query against prepared keys."""
        ...

    def __call__(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S)."""
        ...


class Dot(nn.Module):
    """The dot product q·k (Luong 2015, eq. 8). Queries and keys must be equally wide; d_hidden is not used."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        _same_width("dot", d_query, d_key)

    def prepare(self, keys: Tensor) -> Tensor:
        """Return the keys as they are."""
        return keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return q·k."""
        return query @ prepared.transpose(-1, -2)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S)."""
        return self.score(query, self.prepare(keys))


class ScaledDot(nn.Module):
    """The scaled dot product q·k / √d_key (Vaswani 2017, eq. 1). d_hidden is not used."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        _same_width("scaled_dot", d_query, d_key)
        self.scale = 1.0 / math.sqrt(d_key)

    def prepare(self, keys: Tensor) -> Tensor:
        """Return the keys as they are: the scale goes to the query, which is smaller."""
        return keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return q·k / √d_key."""
        return (query * self.scale) @ prepared.transpose(-1, -2)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S)."""
        return self.score(query, self.prepare(keys))


class General(nn.Module):
    """The bilinear form qᵀWk (Luong 2015, eq. 8); widths may differ. d_hidden is not used."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.keys = Linear(d_key, d_query, bias=False)
        nn.init.xavier_uniform_(self.keys.weight)

    def prepare(self, keys: Tensor) -> Tensor:
        """Return Wk, (B, H, S, d_query)."""
        prepared: Tensor = self.keys(keys)
        return prepared

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return q·Wk."""
        return query @ prepared.transpose(-1, -2)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S)."""
        return self.score(query, self.prepare(keys))


class Additive(nn.Module):
    """A small network w·tanh(W₁q + W₂k + b) of width d_hidden (Bahdanau 2015, appendix A.1.2)."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.query = Linear(d_query, d_hidden, bias=False)
        self.keys = Linear(d_key, d_hidden)
        self.weight = nn.Parameter(torch.empty(d_hidden))
        nn.init.xavier_uniform_(self.query.weight)
        nn.init.xavier_uniform_(self.keys.weight)
        nn.init.zeros_(self.keys.bias)
        nn.init.normal_(self.weight, std=d_hidden**-0.5)

    def prepare(self, keys: Tensor) -> Tensor:
        """Return W₂k + b, (B, H, S, d_hidden)."""
        prepared: Tensor = self.keys(keys)
        return prepared

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return w·tanh(W₁q + W₂k + b); builds (B, H, T, S, d_hidden), so T is best small."""
        inner = self.query(query).unsqueeze(-2) + prepared.unsqueeze(-3)  # (B, H, T, S, d_hidden)
        scores: Tensor = inner.tanh_() @ self.weight
        return scores

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S)."""
        return self.score(query, self.prepare(keys))


def _same_width(name: str, d_query: int, d_key: int) -> None:
    if d_query != d_key:
        raise ValueError(f"{name} needs queries and keys of one width, not {d_query} and {d_key}")


ALIGNMENTS: dict[str, Callable[[int, int, int], Dot | ScaledDot | General | Additive]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "additive": Additive,
}
