"""The heads of one attention: each has an alignment and a distribution, and those alike are computed together.

Letters: B batch, H heads, T queries, S keys, d head width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from attnkit.models.attention.alignment import make_alignment
from attnkit.models.attention.attend import AttentionFunction
from attnkit.models.attention.base import AlignmentModule
from attnkit.models.attention.config import AlignmentName, AttentionOptions, DistributionName, per_head
from attnkit.models.attention.distribution import Distribution, make_distribution
from attnkit.models.attention.scaled_dot_product import AttentionScope

Mix = Callable[..., Tensor]
"""From heads and the projected parts, (B, H, T, d) each, to the context (B, H, T, d)."""
Prepared = list[Tensor]
"""What each group of heads has prepared of the keys, (B, H of the group, S, width of the group)."""


class HeadGroup(nn.Module):
    """Heads that share an alignment function and a distribution function, with weights of their own."""

    def __init__(self, places: list[int], n_heads: int, align: AlignmentModule, distribute: Distribution) -> None:
        super().__init__()
        self.places, self.all = places, len(places) == n_heads
        self.together = places == list(range(places[0], places[-1] + 1))
        self.align, self.distribute = align, distribute

    @property
    def pair(self) -> AttentionFunction:
        """Return both functions."""
        return AttentionFunction(self.align, self.distribute)

    def pick(self, x: Tensor) -> Tensor:
        """Return the group's heads of (..., H, T, d)."""
        if self.all:
            return x
        # Neighbouring heads are a view; others are copied.
        if self.together:
            return x.narrow(-3, self.places[0], len(self.places))
        return x.index_select(-3, torch.tensor(self.places, device=x.device))

    def within(self, scope: AttentionScope) -> AttentionScope:
        """Return the scope of the group's heads."""
        if self.all:
            return scope
        mask, bias = (
            part if part is None or part.dim() < 3 or part.shape[-3] == 1 else self.pick(part)
            for part in (scope.mask, scope.bias)
        )
        return AttentionScope(mask, scope.causal, bias, scope.bounds)


class HeadGroups(nn.Module):
    """Heads of width d, each with its alignment and its distribution function."""

    def __init__(
        self,
        n_heads: int,
        width: int,
        alignment: AlignmentName | Sequence[AlignmentName] = "scaled_dot",
        distribution: DistributionName | Sequence[DistributionName] = "softmax",
        options: AttentionOptions | None = None,
    ) -> None:
        super().__init__()
        options = options or AttentionOptions()
        names = list(zip(per_head(alignment, n_heads), per_head(distribution, n_heads), strict=True))
        self.groups = nn.ModuleList()
        # dict.fromkeys keeps the order of first occurrence: state-dict names depend on it.
        for align, distribute in dict.fromkeys(names):
            places = [place for place, name in enumerate(names) if name == (align, distribute)]
            functions = (
                make_alignment(align, width, width, options, len(places)),
                make_distribution(distribute, width, options, len(places)),
            )
            self.groups.append(HeadGroup(places, n_heads, *functions))
        order = [place for group in self.head_groups for place in group.places]
        self.order = None if order == sorted(order) else [order.index(place) for place in range(n_heads)]

    @property
    def head_groups(self) -> list[HeadGroup]:
        """Return the groups."""
        return [group for group in self.groups if isinstance(group, HeadGroup)]

    def context(
        self, query: Tensor, keys: Tensor, values: Tensor, scope: AttentionScope, dropout: float = 0.0
    ) -> Tensor:
        """Return the context (B, H, T, d), each group's by its fastest form."""
        parts = []
        for group in self.head_groups:
            q, k, v = (group.pick(part) for part in (query, keys, values))
            parts.append(group.pair.context(q, k, v, group.within(scope), dropout))
        return self._join(parts)

    def prepare(self, keys: Tensor, at: int | None = None) -> Prepared:
        """Return what depends on the keys (B, H, S, d) alone, which all stand at one position or at 0, 1, 2, ..."""
        return [group.align.prepare(group.pick(keys), at) for group in self.head_groups]

    def weights(self, query: Tensor, prepared: Prepared, scope: AttentionScope) -> Tensor:
        """Return the weights (B, H, T, S), computed as they are written."""
        parts = []
        for group, keys in zip(self.head_groups, prepared, strict=True):
            parts.append(group.pair.weights(group.pick(query), keys, group.within(scope)))
        return self._join(parts)

    def _join(self, parts: list[Tensor]) -> Tensor:
        """Return the groups' heads (B, H of the group, ...) in their order, (B, H, ...)."""
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)  # (B, H, T, ...), group by group
        return joined if self.order is None else joined.index_select(1, torch.tensor(self.order, device=joined.device))


def attend_within(scope: AttentionScope, dropout: float = 0.0, seen: list[Tensor] | None = None) -> Mix:
    """Return the mix of heads within a scope; with a list, weights are computed as written and each call's added to it.

    Weights are added before any dropout.
    """

    def mix(heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if seen is None:
            return heads.context(query, keys, values, scope, dropout)
        weights = heads.weights(query, heads.prepare(keys), scope)
        seen.append(weights)
        return weights @ values

    return mix
