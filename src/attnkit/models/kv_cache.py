"""Key-value caches for decoding: fixed slots with each beam's ancestry, and one for any alignment function.

Beams never copy keys and values: a slot stays where it was written, and a mask says which beams descend from it.

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
"""Steps that fit before the slots are copied to a larger tensor; products run over all slots, free ones masked."""


class BeamState:
    """The state of one batch: keys and values in slots, and which slots the beams of each sentence descend from.

    Its methods change it in place; meant for torch.inference_mode.
    """

    memory: list[Tensor]  #: what is kept of the memory's keys and values, (layers, B, heads, S, width) each
    slots: list[Tensor]  #: what is kept of past keys and values, (layers, B, heads, C, width) each

    def __init__(
        self,
        memory: Tensor,
        dtype: torch.dtype,
        memory_mask: Tensor | None,
        n_beams: int,
        max_length: int,
        record: bool,
    ) -> None:
        """Start with one beam per sentence of the memory (2 L, B, ...), at most ``n_beams`` later.

        memory_mask (B, 1, 1, S) is for subclasses; ``record`` lets attention hold each step's weights.
        """
        self.n_layers, batch = len(memory) // 2, memory.shape[1]
        self.memory_mask, self.record = memory_mask, record
        self.attention: Tensor | None = None
        # Room is added in steps: short translations never pay for long ones.
        self.n_beams, self.max_length = n_beams, max_length
        self.n_steps = self.n_slots = self.n_queries = 0
        # (B, K, C), 0 at a beam's ancestors and -inf elsewhere
        self.ancestry = torch.zeros(batch, 1, 0, dtype=dtype, device=memory.device)
        self.steps = torch.zeros(0, dtype=torch.int64, device=memory.device)  # (C,), the step that wrote each slot

    def reorder_beams(self, parents: Tensor) -> BeamState:
        """Let beam k of sentence b continue the old beam parents[b, k]; any number of beams may follow."""
        if self.ancestry.shape[1] > 1 or parents.shape[1] > 1:
            # (B, K', C): a child inherits its parent's row of the mask; keys and values stay where they are.
            chosen = parents[:, :, None].expand(-1, -1, self.ancestry.shape[2])
            self.ancestry = self.ancestry.gather(1, chosen)
        return self

    def select_rows(self, sentences: Tensor) -> BeamState:
        """Keep only these rows of the batch, in this order."""
        self.memory = [part.index_select(1, sentences) for part in self.memory]
        self.slots = [part.index_select(1, sentences) for part in self.slots]
        self.ancestry = self.ancestry.index_select(0, sentences)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)
        if self.attention is not None:
            self.attention = self.attention.index_select(0, sentences)
        return self

    def begin(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Take keys and values (B, H, T, d) of each layer as a past of T steps, before the first step."""
        self.slots = self.to_slots(keys, values)
        n_steps = self.slots[0].shape[-2]
        # Every beam descends from these.
        self.ancestry = self.ancestry.new_zeros(len(self.ancestry), 1, n_steps)
        self.steps = torch.arange(n_steps, device=self.steps.device)
        self.n_steps = self.n_slots = n_steps

    def begin_step(self, n_queries: int) -> Tensor:
        """Make room for one slot per query and return the distances (1, C) from this step to the slots' steps.

        Distances feed position biases. ValueError if there are not so many beams.
        """
        if n_queries != self.ancestry.shape[1]:
            raise ValueError(f"the state has {self.ancestry.shape[1]} beams, not {n_queries}: call reorder")
        first, last = self.n_slots, self.n_slots + n_queries
        if last > self.ancestry.shape[2]:
            # Never beyond max_length: products run over free slots too.
            more = max(1, min(GROWTH, self.max_length - self.n_steps)) * max(n_queries, self.n_beams)
            self.slots = [widen(part, more) for part in self.slots]
            free = self.ancestry.new_full((*self.ancestry.shape[:2], more), -math.inf)  # nobody descends from these
            self.ancestry = torch.cat((self.ancestry, free), dim=2)
            self.steps = torch.cat((self.steps, self.steps.new_zeros(more)))
        if n_queries == 1:
            self.ancestry[:, :, first] = 0.0
        else:
            # Beam k sees its own new slot only, not those of the sentence's other beams.
            self.ancestry[:, :, first:last].diagonal(dim1=1, dim2=2).fill_(0.0)
        self.steps[first:last] = self.n_steps
        self.n_queries = n_queries
        return self.steps[None, :] - self.n_steps

    @property
    def current(self) -> slice:
        """Return the slots of the step that is being taken, one per beam."""
        return slice(self.n_slots, self.n_slots + self.n_queries)

    def end_step(self) -> None:
        """End the step that begin_step began."""
        self.n_slots += self.n_queries
        self.n_steps += 1

    def to_slots(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
        """Return what slots keep of each layer's keys and values (B, H, T, d)."""
        raise NotImplementedError


class DecodingState(BeamState):
    """The state of one batch whose attention is scaled dot x softmax."""

    def __init__(self, memory: Tensor, memory_mask: Tensor | None, n_beams: int, max_length: int, record: bool) -> None:
        """Take the memory's projected keys and values (2 L, B, H, S, d), layer by layer, and its mask (B, S)."""
        # Scores of a half-precision model become float32 on adding the mask: the softmax is then faster, and exact.
        self.exact = memory.dtype if memory.dtype == torch.float64 else torch.float32
        added = None
        if memory_mask is not None and not bool(memory_mask.all()):
            blocked = ~memory_mask[:, None, None, :]  # (B, 1, 1, S)
            lowest = torch.finfo(self.exact).min  # not -inf: a source of padding alone must not become NaN
            added = torch.zeros_like(blocked, dtype=self.exact).masked_fill_(blocked, lowest)
        super().__init__(memory, self.exact, added, n_beams, max_length, record)
        # On a CPU one query a sentence is float32: half-precision products of one row take half as long again, and
        # push the kernels of the linear maps out of the library's memory, a shape for every length. Beams fill rows.
        kept = self.exact if memory.device.type == "cpu" and n_beams == 1 else memory.dtype
        # One copy now, or every step's products copy it anew: ``to`` alone keeps the projection's strides.
        memory = memory.to(kept).contiguous()
        # Keys, at even places, are scaled once here, which saves scaling the queries at every step.
        self.scale = memory.shape[-1] ** -0.5
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
        """Add a bias (H, 1, C) to the scores of the step's own attention."""
        self.mask = self.mask + bias  # (B, H, K, C)

    def self_attend(self, layer: int, heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Write this step's keys and values (B, H, K, d) and return the context (B, H, K, d) over each beam's past.

        The heads must be of scaled dot x softmax, which is what is computed.
        """
        # Views: writing into them fills the cache.
        slot_keys, slot_values = self.slots[0][2 * layer], self.slots[0][2 * layer + 1]
        slot_keys[:, :, self.current] = keys
        slot_values[:, :, self.current] = values
        return self._weigh(query * self.scale, slot_keys, self.mask).to(slot_values.dtype) @ slot_values

    def cross_attend(self, layer: int, heads: HeadGroups, query: Tensor) -> Tensor:
        """Return the context (B, H, K, d) of the memory for the queries of all beams, by scaled dot x softmax."""
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
        # In place where dtypes agree; otherwise the addition itself widens to float32.
        return (scores.add_(mask) if scores.dtype == self.exact else scores + mask).softmax(-1)


def widen(slots: Tensor, more: int) -> Tensor:
    """Return slots (..., C, d) followed by so many free ones."""
    wider = slots.new_empty((*slots.shape[:-2], slots.shape[-2] + more, slots.shape[-1]))
    wider[..., : slots.shape[-2], :] = slots
    wider[..., slots.shape[-2] :, :] = 0.0  # free slots weigh 0, but 0 times what lies in fresh memory may be NaN
    return wider


class GenericDecodingState(BeamState):
    """The state of one batch with any functions of attention."""

    def __init__(
        self,
        heads: list[HeadGroups],
        memory: Tensor,
        memory_mask: Tensor | None,
        n_beams: int,
        max_length: int,
        record: bool,
    ) -> None:
        """Take each layer's heads, the memory's keys and values (2 L, B, H, S, d) for them, and its mask (B, S)."""
        mask = None if memory_mask is None else memory_mask[:, None, None, :]
        super().__init__(memory, torch.float32, mask, n_beams, max_length, record)
        self.heads = heads
        # memory alternates keys and values: even rows are a layer's keys, odd ones its values.
        self.memory = self.to_slots(memory[0::2].unbind(0), memory[1::2].unbind(0))
        self.slots = [part[..., :0, :] for part in self.memory]
        self.scope = AttentionScope()

    def to_slots(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
        """Return what each group of heads prepares of the keys, (L, B, H of the group, T, its width), and the values.

        What an alignment computes of a key never changes, so it is computed once.
        """
        prepared = [heads.prepare(own) for heads, own in zip(self.heads, keys, strict=True)]
        return [torch.stack(parts) for parts in (*zip(*prepared, strict=True), tuple(values))]

    def begin_step(self, n_queries: int) -> Tensor:
        distances = super().begin_step(n_queries)
        self.scope = AttentionScope(self.ancestry[:, None] == 0)  # (B, 1, K, C)
        return distances

    def add_bias(self, bias: Tensor) -> None:
        """Add a bias (H, 1, C) to the scores of the step's own attention."""
        self.scope = AttentionScope(self.scope.mask, bias=bias)

    def self_attend(self, layer: int, heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Write this step's keys and values (B, H, K, d) and return the context (B, H, K, d) over each beam's past."""
        slots = [part[layer] for part in self.slots]  # views: writing into them fills the cache
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
