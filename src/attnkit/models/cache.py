"""What a Transformer remembers while it decodes: keys and values in slots that stay put, and who descends from whom.

Each step writes one slot per beam and never moves it. A beam sees the slots of its own ancestors only, through a mask;
reordering beams gathers that small mask, not the keys and values, which are d times larger. The beams of a sentence are
queries side by side, so memory and slots are stored once per sentence.

Letters: B batch, K beams, C slots, S source length, H heads, d head width, L layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

GROWTH = 8
"""Steps that fit before the slots are copied to a larger tensor; products run over all slots, free ones masked."""


class DecodingState:
    """The state of one batch. Its methods change it in place; meant for torch.inference_mode."""

    def __init__(self, memory: Tensor, memory_mask: Tensor | None, n_beams: int, max_length: int, record: bool) -> None:
        """Take the memory's projected keys and values (2 L, B, H, S, d), layer by layer, and its mask (B, S)."""
        n_layers, batch, n_heads, _, width = memory.shape
        self.scale = width**-0.5
        # Scores of a half-precision model become float32 on adding the mask: the softmax is then faster, and exact.
        self.exact = memory.dtype if memory.dtype == torch.float64 else torch.float32
        # On a CPU one query a sentence is float32: half-precision products of one row take half as long again, and
        # push the kernels of the linear maps out of the library's memory, a shape for every length. Beams fill rows.
        kept = self.exact if memory.device.type == "cpu" and n_beams == 1 else memory.dtype
        # One copy now, or every step's products copy it anew: ``to`` alone keeps the projection's strides.
        self.memory = memory.to(kept).contiguous()
        self.memory[0::2].mul_(self.scale)
        self.memory_mask = None
        if memory_mask is not None and not bool(memory_mask.all()):
            blocked = ~memory_mask[:, None, None, :]
            lowest = torch.finfo(self.exact).min  # not -inf: a source of padding alone must not become NaN
            self.memory_mask = torch.zeros_like(blocked, dtype=self.exact).masked_fill_(blocked, lowest)
        self.n_beams, self.max_length, self.record = n_beams, max_length, record
        self.n_steps = self.n_slots = self.n_queries = 0
        self.slots = self.memory.new_zeros(n_layers, batch, n_heads, 0, width)  # (2 L, B, H, C, d)
        # (B, K, C), 0 at a beam's ancestors and -inf elsewhere
        self.ancestry = torch.zeros(batch, 1, 0, dtype=self.exact, device=memory.device)
        self.steps = torch.zeros(0, dtype=torch.int64, device=memory.device)  # (C,), the step that wrote each slot
        self.mask = self.ancestry
        self.attention: Tensor | None = None

    def reorder(self, parents: Tensor) -> DecodingState:
        """Let beam k of sentence b go on from its old beam parents[b, k]; any number of beams may follow."""
        if self.ancestry.shape[1] > 1 or parents.shape[1] > 1:
            chosen = parents[:, :, None].expand(-1, -1, self.ancestry.shape[2])
            self.ancestry = self.ancestry.gather(1, chosen)
        return self

    def keep(self, sentences: Tensor) -> DecodingState:
        """Keep only these rows of the batch, in this order."""
        self.memory = self.memory.index_select(1, sentences)
        self.slots = self.slots.index_select(1, sentences)
        self.ancestry = self.ancestry.index_select(0, sentences)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)
        if self.attention is not None:
            self.attention = self.attention.index_select(0, sentences)
        return self

    def open(self, n_queries: int) -> Tensor:
        """Make room for one slot per query and return the distances (1, C) from this step to the slots' steps."""
        if n_queries != self.ancestry.shape[1]:
            raise ValueError(f"the state holds {self.ancestry.shape[1]} beams, not {n_queries}: reorder changes them")
        if self.n_slots + n_queries > self.slots.shape[3]:
            self._grow(n_queries)
        first, last = self.n_slots, self.n_slots + n_queries
        if n_queries == 1:
            self.ancestry[:, :, first] = 0.0
        else:
            self.ancestry[:, :, first:last].diagonal(dim1=1, dim2=2).fill_(0.0)
        self.steps[first:last] = self.n_steps
        self.n_queries = n_queries
        self.mask = self.ancestry[:, None]  # (B, 1, K, C)
        return self.steps[None, :] - self.n_steps

    def close(self) -> None:
        """End the step that open began."""
        self.n_slots += self.n_queries
        self.n_steps += 1

    def own(self, layer: int, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Write this step's keys and values (B, H, K, d) and return the context (B, H, K, d) over each beam's past."""
        first, last = self.n_slots, self.n_slots + self.n_queries
        slot_keys, slot_values = self.slots[2 * layer], self.slots[2 * layer + 1]
        slot_keys[:, :, first:last] = keys
        slot_values[:, :, first:last] = values
        return self._weigh(query * self.scale, slot_keys, self.mask).to(slot_values.dtype) @ slot_values

    def cross(self, layer: int, query: Tensor) -> Tensor:
        """Return the context (B, H, K, d) of the memory for the queries of all beams."""
        weights = self._weigh(query, self.memory[2 * layer], self.memory_mask)
        if self.record and 2 * (layer + 1) == len(self.memory):
            self.attention = weights.mean(dim=1)
        return weights.to(self.memory.dtype) @ self.memory[2 * layer + 1]

    def _weigh(self, query: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        scores = query.to(keys.dtype) @ keys.transpose(-1, -2)
        if mask is None:
            return scores.softmax(-1, dtype=self.exact)
        return (scores.add_(mask) if scores.dtype == self.exact else scores + mask).softmax(-1)

    def _grow(self, n_queries: int) -> None:
        steps_left = max(1, min(GROWTH, self.max_length - self.n_steps))
        more = steps_left * max(n_queries, self.n_beams)
        shape = self.slots.shape
        wider = self.slots.new_empty((*shape[:3], shape[3] + more, shape[4]))
        wider[:, :, :, : shape[3]] = self.slots
        wider[:, :, :, shape[3] :] = 0.0  # free slots weigh 0, but 0 times what lies in fresh memory may be NaN
        self.slots = wider
        free = self.ancestry.new_full((*self.ancestry.shape[:2], more), -math.inf)
        self.ancestry = torch.cat((self.ancestry, free), dim=2)
        self.steps = torch.cat((self.steps, self.steps.new_zeros(more)))
