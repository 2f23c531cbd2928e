"""Key-value cache for decoding with any alignment and distribution functions.

As `kv_cache`, but slots and memory hold keys as each group of heads has prepared them, and the weights follow the
formulas as they are written.

Letters: B batch, K beams, C slots, S source length, H heads, d head width, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnkit.models.attention.heads import HeadGroups, Prepared
from attnkit.models.attention.scaled_dot_product import AttentionScope
from attnkit.models.kv_cache import BeamSlots, BeamState, widen


class GenericDecodingState(BeamState):
    """The state of one batch with any functions of attention."""

    def __init__(
        self, layers: list[HeadGroups], memory: Tensor, memory_mask: Tensor | None, beams: BeamSlots, record: bool
    ) -> None:
        """Take the layers' heads, the memory's keys and values (2 L, B, H, S, d) for them, and its mask (B, S)."""
        super().__init__(beams, None if memory_mask is None else memory_mask[:, None, None, :], record)
        self.heads = layers
        # memory alternates keys and values: even rows are a layer's keys, odd ones its values.
        pairs = zip(layers, memory[0::2].unbind(0), strict=True)
        self.prepared = [[part.contiguous() for part in heads.prepare(keys)] for heads, keys in pairs]
        self.values = memory[1::2].contiguous()  # (L, B, H, S, d)
        self.slots: list[Prepared] = [[] for _ in layers]  # a layer, a group: (B, H of the group, C, its width)
        self.slot_values = self.values[..., :0, :]  # (L, B, H, C, d)
        self.scope = AttentionScope()

    @property
    def n_layers(self) -> int:
        """Return how many layers the decoder has."""
        return len(self.prepared)

    def select_rows(self, sentences: Tensor) -> BeamState:
        """Keep only these rows of the batch, in this order."""
        self.prepared = [[part.index_select(0, sentences) for part in layer] for layer in self.prepared]
        self.slots = [[part.index_select(0, sentences) for part in layer] for layer in self.slots]
        self.values = self.values.index_select(1, sentences)
        self.slot_values = self.slot_values.index_select(1, sentences)
        return super().select_rows(sentences)

    def begin(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Take keys and values (B, H, T, d) of each layer as a past of T steps, before the first step."""
        self.slots = [
            [part.contiguous() for part in heads.prepare(k)] for heads, k in zip(self.heads, keys, strict=True)
        ]
        self.slot_values = torch.stack(list(values))  # (L, B, H, T, d)
        self.beams.begin(self.slot_values.shape[-2])

    def begin_step(self, n_queries: int) -> Tensor:
        """Make room for one slot per query and return the distances (1, C) from this step to the slots' steps."""
        if more := self.beams.missing(n_queries):
            self.slots = [[widen(part, more) for part in layer] for layer in self.slots]
            self.slot_values = widen(self.slot_values, more)
            self.beams.grow(more)
        distances = self.beams.begin_step(n_queries)
        self.scope = AttentionScope(self.beams.ancestry[:, None] == 0)  # (B, 1, K, C)
        return distances

    def add_bias(self, bias: Tensor) -> None:
        """Add a bias (H, 1, C) to the scores of the step's own attention."""
        self.scope = AttentionScope(self.scope.mask, bias=bias)

    def self_attend(self, layer: int, heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Write this step's keys and values (B, H, K, d) and return the context (B, H, K, d) over each beam's past."""
        new, slot_values = heads.prepare(keys, self.n_steps), self.slot_values[layer]
        # The widths of what a function prepares are known only when it has prepared the first keys.
        if not self.slots[layer]:
            n_slots = slot_values.shape[-2]
            self.slots[layer] = [part.new_zeros(*part.shape[:2], n_slots, part.shape[-1]) for part in new]
        for part, slots in zip(new, self.slots[layer], strict=True):
            slots[:, :, self.beams.current] = part
        slot_values[:, :, self.beams.current] = values
        return heads.weights(query, self.slots[layer], self.scope) @ slot_values  # (B, H, K, C) @ (B, H, C, d)

    def cross_attend(self, layer: int, heads: HeadGroups, query: Tensor) -> Tensor:
        """Return the context (B, H, K, d) of the memory for the queries of all beams."""
        # (B, H, K, S)
        weights = heads.weights(query, self.prepared[layer], AttentionScope(self.memory_mask))
        if self.record and layer + 1 == self.n_layers:
            self.attention = weights.mean(dim=1)  # (B, K, S): heads averaged
        return weights @ self.values[layer]
