"""Multi-head attention (Vaswani et al. 2017, section 3.2.2).

Letters: B batch, H heads, T queries, S keys, D model width, d head width, by default D / H.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from attnkit.models.attention.alignment import AlignmentModule, make_alignment
from attnkit.models.attention.attend import AttentionFunction, AttentionScope, PackedAttention
from attnkit.models.attention.config import AlignmentName, AttentionOptions, DistributionName, per_head
from attnkit.models.attention.distribution import Distribution, make_distribution
from attnkit.models.linear import Linear, init_xavier

Mix = Callable[..., Tensor] | PackedAttention
"""Attention function: (heads, projections (B, H, T, d)) -> context (B, H, T, d), or one of the fused projection."""
PreparedKeys = list[Tensor]  #: prepared keys per head group, (B, H of the group, S, width of the group)


class HeadGroup(nn.Module):
    """Heads that share an alignment and a distribution function, but no weights."""

    def __init__(self, indices: list[int], n_heads: int, align: AlignmentModule, distribute: Distribution) -> None:
        super().__init__()
        self.indices, self.all = indices, len(indices) == n_heads
        # Consecutive heads can be taken as a view.
        self.consecutive = indices == list(range(indices[0], indices[-1] + 1))
        self.align, self.distribute = align, distribute

    @property
    def function(self) -> AttentionFunction:
        """Return the alignment and distribution functions as one object."""
        return AttentionFunction(self.align, self.distribute)

    def pick(self, x: Tensor) -> Tensor:
        """Select the group's heads from (..., H, T, d); a view if they are consecutive."""
        if self.all:
            return x
        if self.consecutive:
            return x.narrow(-3, self.indices[0], len(self.indices))
        return x.index_select(-3, torch.tensor(self.indices, device=x.device))

    def pick_scope(self, scope: AttentionScope) -> AttentionScope:
        """Select the group's heads from the mask and the bias of a scope."""
        if self.all:
            return scope
        # A mask or bias without a head dimension applies to every group.
        mask, bias = (
            part if part is None or part.dim() < 3 or part.shape[-3] == 1 else self.pick(part)
            for part in (scope.mask, scope.bias)
        )
        return AttentionScope(mask, scope.causal, bias, scope.bounds)


class HeadGroups(nn.Module):
    """Heads of width d, grouped by their alignment and distribution functions."""

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
            indices = [index for index, name in enumerate(names) if name == (align, distribute)]
            functions = (
                make_alignment(align, width, width, options, len(indices)),
                make_distribution(distribute, width, options, len(indices)),
            )
            self.groups.append(HeadGroup(indices, n_heads, *functions))
        # Groups are computed one after another; self.order restores the order of the heads.
        order = [index for group in self.head_groups for index in group.indices]
        self.order = None if order == sorted(order) else [order.index(head) for head in range(n_heads)]

    @property
    def head_groups(self) -> list[HeadGroup]:
        """Return the groups as a typed list."""
        return [group for group in self.groups if isinstance(group, HeadGroup)]

    def context(
        self, query: Tensor, keys: Tensor, values: Tensor, scope: AttentionScope, dropout: float = 0.0
    ) -> Tensor:
        """Return the context (B, H, T, d), using the fastest form for each group."""
        parts = []
        for group in self.head_groups:
            q, k, v = (group.pick(part) for part in (query, keys, values))  # (B, H of the group, T or S, d)
            parts.append(group.function.context(q, k, v, group.pick_scope(scope), dropout))
        return self._join(parts)

    def prepare(self, keys: Tensor, at: int | None = None) -> PreparedKeys:
        """Precompute the part of the scores that depends on the keys (B, H, S, d) only.

        ``at`` is the common position of all keys; None means positions 0, 1, 2, ...
        """
        return [group.align.prepare(group.pick(keys), at) for group in self.head_groups]

    def weights(self, query: Tensor, prepared: PreparedKeys, scope: AttentionScope) -> Tensor:
        """Return the weights (B, H, T, S), computed from the definition."""
        groups = zip(self.head_groups, prepared, strict=True)
        return self._join([g.function.weights(g.pick(query), keys, g.pick_scope(scope)) for g, keys in groups])

    def _join(self, parts: list[Tensor]) -> Tensor:
        """Concatenate the outputs of the groups in the order of the heads, (B, H, ...)."""
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)  # (B, H, T, ...), group by group
        return joined if self.order is None else joined.index_select(1, torch.tensor(self.order, device=joined.device))


def attend_within(
    scope: AttentionScope, dropout: float = 0.0, seen: list[Tensor] | None = None
) -> Callable[..., Tensor]:
    """Return the attention function for a scope.

    With ``seen``, weights are computed explicitly and appended to it, and dropout is disabled.
    """

    def mix(heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if seen is None:
            return heads.context(query, keys, values, scope, dropout)
        weights = heads.weights(query, heads.prepare(keys), scope)
        seen.append(weights)  # (B, H, T, S)
        return weights @ values

    return mix


FULL_ATTENTION = attend_within(AttentionScope())  #: every query attends to every key


class MultiHeadAttention(nn.Module):
    """Multi-head attention with one fused input projection.

    Self-attention projects three parts (query, keys, values). Cross-attention projects only the query: the decoder
    computes keys and values of the memory for all layers at once.

    >>> attention = MultiHeadAttention(32, 4, alignment=["scaled_dot", "scaled_dot", "additive", "general"])
    >>> attention(torch.randn(2, 7, 32), attend_within(AttentionScope(causal=True))).shape
    torch.Size([2, 7, 32])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_parts: int = 3,
        alignment: AlignmentName | Sequence[AlignmentName] = "scaled_dot",
        distribution: DistributionName | Sequence[DistributionName] = "softmax",
        options: AttentionOptions | None = None,
        bias: bool = True,
        n_kept_heads: int | None = None,
        d_head: int | None = None,
    ) -> None:
        """Build the maps; ``n_kept_heads`` are those of keys and values, by default all.

        Raises ``ValueError`` if heads do not divide the width and have none of their own, or kept heads the heads.
        """
        super().__init__()
        if d_head is None and d_model % n_heads:
            raise ValueError(f"d_model ({d_model}) must be a multiple of n_heads ({n_heads})")
        if n_kept_heads is not None and n_heads % n_kept_heads:
            raise ValueError(f"n_heads ({n_heads}) must be a multiple of n_kept_heads ({n_kept_heads})")
        self.n_heads, self.n_parts = n_heads, n_parts
        self.d_head = d_head = d_head or d_model // n_heads
        inner = n_heads * d_head
        # With fewer heads of keys and values, parts differ in width: (H, Hk, Hk) heads of d.
        kept = n_kept_heads or n_heads
        self.sizes = None if kept == n_heads else [inner, *[kept * d_head] * (n_parts - 1)]
        # Rows: queries of all heads, then keys, then values.
        self.projection = Linear(d_model, sum(self.sizes or [n_parts * inner]), bias=bias)
        self.output = Linear(inner, d_model, bias=bias)
        self.heads = HeadGroups(n_heads, d_head, alignment, distribution, options)
        initialise_parts(self.projection, self.sizes or [inner] * n_parts)
        init_xavier(self.output)

    def forward(self, x: Tensor, mix: Mix = FULL_ATTENTION, positions: Tensor | None = None) -> Tensor:
        """Return (B, T, D) for x (B, T, D), or (N, D) for the given positions only.

        ``mix`` is called with the heads and the n_parts projections of x. ``positions`` (N,) index the flattened rows.
        """
        # Query, keys and values in one product: a wide matrix keeps the cores busy.
        projected = self.projection(x)  # (B, T, n_parts · H · d)
        if isinstance(mix, PackedAttention):
            merged = mix.context(projected, self.n_heads)
        else:
            context = mix(self.heads, *self._parts(projected))  # (B, H, T, d)
            # One copy restores both memory order and precision.
            merged = context.transpose(1, 2).to(x.dtype, memory_format=torch.contiguous_format)
            merged = merged.reshape(*x.shape[:2], -1)  # (B, T, H · d)
        return self.output(merged if positions is None else take(merged, positions))

    def _parts(self, projected: Tensor) -> Sequence[Tensor]:
        """Return queries (B, H, T, d), and keys and values (B, Hk, T, d)."""
        if self.sizes is None:
            return split_heads(projected, self.n_parts, self.n_heads).unbind(0)
        parts = torch.split(projected, self.sizes, dim=-1)
        return [part.view(*part.shape[:2], -1, self.d_head).transpose(1, 2) for part in parts]


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Select positions (N,) of the flattened rows of x (B, T, D); return (N, D)."""
    return x.flatten(0, 1).index_select(0, positions)


def split_heads(projected: Tensor, n_parts: int, n_heads: int) -> Tensor:
    """Return a view (n_parts, B, H, T, d) of projected (B, T, n_parts · H · d)."""
    batch, length, _ = projected.shape
    return projected.view(batch, length, n_parts, n_heads, -1).permute(2, 0, 3, 1, 4)  # (n_parts, B, H, T, d)


def spread_groups(kept: Tensor, n_heads: int) -> Tensor:
    """Repeat each head of keys or values (B, Hk, S, d) for its group, (B, H, S, d)."""
    batch, n_kept, length, width = kept.shape
    if n_kept == n_heads:
        return kept
    return kept[:, :, None].expand(-1, -1, n_heads // n_kept, -1, -1).reshape(batch, n_heads, length, width)


def initialise_parts(projection: nn.Linear, sizes: Sequence[int] | None = None) -> None:
    """Initialise each block of rows of a fused projection, Xavier with gain 1/√2.

    Blocks are square unless ``sizes`` has their rows.

    For three parts, this equals Xavier on the fused matrix, as in nn.MultiheadAttention.
    """
    weight = projection.weight.data
    for block in torch.split(weight, projection.in_features if sizes is None else list(sizes)):
        nn.init.xavier_uniform_(block, gain=2**-0.5)
    if projection.bias is not None:
        nn.init.zeros_(projection.bias)
