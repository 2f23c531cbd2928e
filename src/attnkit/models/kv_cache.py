"""Key-value caches for beam search, with any attention functions.

Keys and values are never copied between beams: each stays in its slot, and a mask marks the ancestors of each beam.

Letters: B sentences, K beams, C slots of the cache, S source length, H heads, d head width, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnkit.models.attention.attend import AttentionScope
from attnkit.models.attention.multihead import HeadGroups

GROWTH = 8
"""Steps by which the cache grows at a time; products run over all slots, with the free ones masked."""


class BeamState:
    """Decoding state of one batch: cached keys and values, and the ancestry of beams.

    Its methods modify it in place. It is meant for torch.inference_mode.
    """

    memory: list[Tensor]  #: cached keys and values of the memory, (layers, B, heads, S, width) each
    slots: list[Tensor]  #: cached keys and values of past steps, (layers, B, heads, C, width) each

    def __init__(
        self,
        memory: Tensor,
        dtype: torch.dtype,
        memory_mask: Tensor | None,
        n_beams: int,
        max_length: int,
        record: bool,
    ) -> None:
        """Start with one beam per sentence of memory (2 L, B, ...), later up to n_beams.

        ``memory_mask`` (B, 1, 1, S) is for subclasses; ``record`` keeps the last step's weights in ``attention``.
        """
        self.n_layers, batch = len(memory) // 2, memory.shape[1]
        self.memory_mask, self.record = memory_mask, record
        self.attention: Tensor | None = None
        # The cache grows in steps, so that short translations need little memory.
        self.n_beams, self.max_length = n_beams, max_length
        self.n_steps = self.n_slots = self.n_queries = 0
        # (B, K, C), 0 at a beam's ancestors and -inf elsewhere
        self.ancestry = torch.zeros(batch, 1, 0, dtype=dtype, device=memory.device)
        self.steps = torch.zeros(0, dtype=torch.int64, device=memory.device)  # (C,), the step that wrote each slot

    def reorder_beams(self, parents: Tensor) -> BeamState:
        """Continue beam k of sentence b from its old beam parents[b, k]; K may change."""
        if self.ancestry.shape[1] > 1 or parents.shape[1] > 1:
            # (B, K', C): a child inherits its parent's row of the mask; keys and values stay where they are.
            chosen = parents[:, :, None].expand(-1, -1, self.ancestry.shape[2])
            self.ancestry = self.ancestry.gather(1, chosen)
        return self

    def select_rows(self, sentences: Tensor) -> BeamState:
        """Keep only the given rows of the batch, in the given order."""
        self.memory = [part.index_select(1, sentences) for part in self.memory]
        self.slots = [part.index_select(1, sentences) for part in self.slots]
        self.ancestry = self.ancestry.index_select(0, sentences)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)
        if self.attention is not None:
            self.attention = self.attention.index_select(0, sentences)
        return self

    def begin(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Fill the cache with T past steps: keys and values (B, H, T, d) of each layer."""
        self.slots = self.to_slots(keys, values)
        n_steps = self.slots[0].shape[-2]
        # All beams descend from these slots.
        self.ancestry = self.ancestry.new_zeros(len(self.ancestry), 1, n_steps)
        self.steps = torch.arange(n_steps, device=self.steps.device)
        self.n_steps = self.n_slots = n_steps

    def begin_step(self, n_queries: int) -> Tensor:
        """Open a step with one slot per query; return the distances (1, C) to all slots.

        A distance is the slot's step minus this step. Raises ``ValueError`` if n_queries is not the number of beams.
        """
        if n_queries != self.ancestry.shape[1]:
            raise ValueError(f"the state has {self.ancestry.shape[1]} beams, not {n_queries}: call reorder_beams")
        first, last = self.n_slots, self.n_slots + n_queries
        if last > self.ancestry.shape[2]:
            # Never beyond max_length: products run over free slots too.
            more = max(1, min(GROWTH, self.max_length - self.n_steps)) * max(n_queries, self.n_beams)
            self.slots = [widen(part, more) for part in self.slots]
            free = self.ancestry.new_full((*self.ancestry.shape[:2], more), -math.inf)  # no beam descends from these
            self.ancestry = torch.cat((self.ancestry, free), dim=2)
            self.steps = torch.cat((self.steps, self.steps.new_zeros(more)))
        if n_queries == 1:
            self.ancestry[:, :, first] = 0.0
        else:
            # Beam k sees only its own new slot, not those of the sentence's other beams.
            self.ancestry[:, :, first:last].diagonal(dim1=1, dim2=2).fill_(0.0)
        self.steps[first:last] = self.n_steps
        self.n_queries = n_queries
        return self.steps[None, :] - self.n_steps

    @property
    def current(self) -> slice:
        """Return the slots of the current step, one per beam."""
        return slice(self.n_slots, self.n_slots + self.n_queries)

    def end_step(self) -> None:
        """Close the step that begin_step opened."""
        self.n_slots += self.n_queries
        self.n_steps += 1

    def to_slots(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
        """Return the cache entries of each layer's keys and values (B, H, T, d)."""
        raise NotImplementedError


class DecodingState(BeamState):
    """Decoding state for dot x softmax, scaled or not."""

    def __init__(
        self,
        memory: Tensor,
        memory_mask: Tensor | None,
        n_beams: int,
        max_length: int,
        record: bool,
        scale: float | None = None,
    ) -> None:
        """Cache keys and values of the memory (2 L, B, H, S, d), with its mask (B, S).

        ``scale`` is the factor of q·k, by default 1 / √d.
        """
        # Adding the float32 mask promotes half-precision scores: the softmax is then faster and more accurate.
        self.exact = memory.dtype if memory.dtype == torch.float64 else torch.float32
        added = None
        if memory_mask is not None and not bool(memory_mask.all()):
            blocked = ~memory_mask[:, None, None, :]  # (B, 1, 1, S)
            lowest = torch.finfo(self.exact).min  # not -inf: a source of padding only must not give NaN
            added = torch.zeros_like(blocked, dtype=self.exact).masked_fill_(blocked, lowest)
        super().__init__(memory, self.exact, added, n_beams, max_length, record)
        # On a CPU, one query per sentence is computed in float32: half-precision products of one row take 1.5 times as
        # long and, with a new shape for every length, evict the kernels of the linear maps from the library's cache.
        kept = self.exact if memory.device.type == "cpu" and n_beams == 1 else memory.dtype
        # Copied once here, or each step would copy it again: ``to`` alone keeps the strides of the projection.
        memory = memory.to(kept).contiguous()
        # Keys, at even indices, are scaled once here, which saves scaling the queries of cross-attention.
        self.scale = memory.shape[-1] ** -0.5 if scale is None else scale
        memory[0::2].mul_(self.scale)
        self.memory, self.slots = [memory], [memory[..., :0, :]]  # (2 L, B, H, S or C, d)
        self.mask = self.ancestry

    def to_slots(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
        parts = [part for pair in zip(keys, values, strict=True) for part in pair]
        return [torch.stack(parts).to(self.slots[0].dtype)]  # (2 L, B, H, T, d)

    def begin_step(self, n_queries: int) -> Tensor:
        distances = super().begin_step(n_queries)
        self.mask = self.ancestry[:, None]  # (B, 1, K, C)
        return distances

    def add_bias(self, bias: Tensor) -> None:
        """Add a bias (H, 1, C) to the self-attention scores of the current step."""
        self.mask = self.mask + bias  # (B, H, K, C)

    def self_attend(self, layer: int, heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Cache this step's keys and values; return the context (B, H, K, d) of the past.

        Queries are (B, H, K, d); keys and values (B, H, K, d), or (B, Hk, K, d) with a head per group of queries.
        ``heads`` is unused: they all use dot x softmax.
        """
        # Views: writing to them fills the cache.
        slot_keys, slot_values = self.slots[0][2 * layer], self.slots[0][2 * layer + 1]
        slot_keys[:, :, self.current] = keys
        slot_values[:, :, self.current] = values
        n_heads, n_kept = query.shape[1], keys.shape[1]
        if n_heads == n_kept:
            return self._weigh(query * self.scale, slot_keys, self.mask).to(slot_values.dtype) @ slot_values
        # The queries of a group are rows of one product, so that the cache is never copied.
        batch, _, n_queries, width = query.shape
        rows = (query * self.scale).reshape(batch, n_kept, -1, width)  # (B, Hk, H / Hk · K, d)
        scores = rows.to(slot_keys.dtype) @ slot_keys.transpose(-1, -2)  # (B, Hk, H / Hk · K, C)
        weights = (scores.view(batch, n_heads, n_queries, -1) + self.mask).softmax(-1).to(slot_values.dtype)
        context: Tensor = weights.view(scores.shape) @ slot_values
        return context.view(batch, n_heads, n_queries, width)

    def cross_attend(self, layer: int, heads: HeadGroups, query: Tensor) -> Tensor:
        """Return the context (B, H, K, d) of the memory for the queries of all beams."""
        (memory,) = self.memory
        weights = self._weigh(query, memory[2 * layer], self.memory_mask)
        if self.record and layer + 1 == self.n_layers:
            self.attention = weights.mean(dim=1)  # (B, K, S): heads averaged
        return weights.to(memory.dtype) @ memory[2 * layer + 1]

    def _weigh(self, query: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        # (B, H, K, d) @ (B, H, d, C or S)
        scores = query.to(keys.dtype) @ keys.transpose(-1, -2)
        if mask is None:
            return scores.softmax(-1, dtype=self.exact)
        # In place if the dtypes agree; otherwise the addition promotes to float32.
        return (scores.add_(mask) if scores.dtype == self.exact else scores + mask).softmax(-1)


def widen(slots: Tensor, more: int) -> Tensor:
    """Append ``more`` free slots of zeros to slots (..., C, d)."""
    wider = slots.new_empty((*slots.shape[:-2], slots.shape[-2] + more, slots.shape[-1]))
    wider[..., : slots.shape[-2], :] = slots
    wider[..., slots.shape[-2] :, :] = 0.0  # free slots have weight 0, but 0 times uninitialised memory may be NaN
    return wider


class GenericDecodingState(BeamState):
    """Decoding state for any alignment and distribution functions."""

    def __init__(
        self,
        heads: list[HeadGroups],
        memory: Tensor,
        memory_mask: Tensor | None,
        n_beams: int,
        max_length: int,
        record: bool,
    ) -> None:
        """Cache keys and values of the memory (2 L, B, H, S, d) for each layer's heads."""
        mask = None if memory_mask is None else memory_mask[:, None, None, :]
        super().__init__(memory, torch.float32, mask, n_beams, max_length, record)
        self.heads = heads
        # memory alternates keys and values: even rows are a layer's keys, odd ones its values.
        self.memory = self.to_slots(memory[0::2].unbind(0), memory[1::2].unbind(0))
        self.slots = [part[..., :0, :] for part in self.memory]
        self.scope = AttentionScope()

    def to_slots(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
        """Return prepared keys per head group, (L, B, H of group, T, width), and values.

        Prepared keys never change, so they are computed only once.
        """
        prepared = [heads.prepare(own) for heads, own in zip(self.heads, keys, strict=True)]
        return [torch.stack(parts) for parts in (*zip(*prepared, strict=True), tuple(values))]

    def begin_step(self, n_queries: int) -> Tensor:
        distances = super().begin_step(n_queries)
        self.scope = AttentionScope(self.ancestry[:, None] == 0)  # (B, 1, K, C)
        return distances

    def add_bias(self, bias: Tensor) -> None:
        """Add a bias (H, 1, C) to the self-attention scores of the current step."""
        self.scope = AttentionScope(self.scope.mask, bias=bias)

    def self_attend(self, layer: int, heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Cache this step's keys and values; return the context (B, H, K, d) of the past."""
        slots = [part[layer] for part in self.slots]  # views: writing to them fills the cache
        for slot, part in zip(slots, (*heads.prepare(keys, self.n_steps), values), strict=True):
            slot[:, :, self.current] = part
        return heads.weights(query, slots[:-1], self.scope) @ slots[-1]  # (B, H, K, C) @ (B, H, C, d)

    def cross_attend(self, layer: int, heads: HeadGroups, query: Tensor) -> Tensor:
        """Return the context (B, H, K, d) of the memory for the queries of all beams."""
        *prepared, values = (part[layer] for part in self.memory)
        weights = heads.weights(query, prepared, AttentionScope(self.memory_mask))  # (B, H, K, S)
        if self.record and layer + 1 == self.n_layers:
            self.attention = weights.mean(dim=1)  # (B, K, S): heads averaged
        return weights @ values
