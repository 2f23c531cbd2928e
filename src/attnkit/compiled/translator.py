"""A translation model in compiled loops for any search of ``attnkit.decoding``.

It has the interface of the torch model in evaluation mode (``protocols.Decodable``, and ``hidden``): probabilities come
from compiled loops, torch chooses. ``search`` has whole searches in compiled loops, for those that they support.

Letters: B sentences, S source length, T target length or steps, K beams, M rows, D model width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from attnkit.compiled.output_layer import OutputLayer
from attnkit.compiled.packed_layers import SizedModel
from attnkit.compiled.packed_transformer import PackedTransformer
from attnkit.compiled.rows import KeyValueCache, PastTokens, check_ids, make_sentences, number_of_tokens, part_of
from attnkit.compiled.search import ENCODED_TOKENS
from attnkit.compiled.workers import Job, Workers
from attnkit.kernels.layout import States
from attnkit.protocols import PAD_ID

MIN_ROWS = 8  #: rows of a step below which a thread more would cost more than it saves


class TranslationState:
    """Decoding state of a batch; ``attention`` (B, K, S) is that of the last step."""

    def __init__(self, sized: SizedModel, memory: KeyValueCache, past: PastTokens, record: bool) -> None:
        self.sized, self.memory, self.past, self.record = sized, memory, past, record
        self.attention: Tensor | None = None
        self.n_source = np.zeros(0, np.int64)  # (B,)

    def reorder_beams(self, parents: Tensor) -> TranslationState:
        """Continue beam k of sentence b from its old beam parents[b, k]; K may change."""
        self.past.reorder_beams(parents)
        return self

    def select_rows(self, sentences: Tensor) -> TranslationState:
        """Keep only the given rows of the batch, in the given order."""
        rows = sentences.numpy()
        self.past.select_rows(rows)
        self.memory.slots, self.n_source = self.memory.slots[rows], self.n_source[rows]
        if self.attention is not None:
            self.attention = self.attention[sentences]
        return self


class CompiledTranslator:
    """A Transformer in compiled loops, with the interface of the torch model."""

    def __init__(
        self, packed: PackedTransformer, *, n_threads: int = 1, notify: Callable[[str], None] = lambda text: None
    ) -> None:
        """Load the loops for a packed model.

        ``notify`` receives a note before they are compiled. Raises ``SystemFailure`` if they cannot be.
        """
        self.packed = packed
        self._workers = Workers("steps", packed, n_threads, notify)
        self._output = OutputLayer(packed, self._workers, packed.vocab_size)
        # Of features; the packed output layer has it in its weights.
        self._scale = packed.config.d_model**-0.5 if packed.config.scaled_output else 1.0

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> TranslationState:
        """Encode sources (B, S); return a state for up to n_beams and max_length steps.

        Raises ``ValueError`` for an id outside of the vocabulary or more positions than the model has.
        """
        packed, n_source = self.packed, number_of_tokens(src, src_mask)
        sentences = make_sentences(src, n_source, packed.src_vocab_size)
        longest = max(int(n_source.max()), max_length)
        if packed.config.max_positions is not None and longest > packed.config.max_positions:
            raise ValueError(f"the model has {packed.config.max_positions} positions, not {longest}")
        past = PastTokens(packed, packed.n_decoder_layers, len(src), n_beams, max_length)
        memory = KeyValueCache(packed, packed.n_decoder_layers, len(src), int(n_source.max()))
        with self._workers.lock:
            sized = packed.model(longest)
            state = TranslationState(sized, memory, past, record)
            state.n_source = n_source
            begin = int(memory.addresses()[0])
            buffers = self._workers.buffers(max(ENCODED_TOKENS, memory.n_places), longest)

            def run(first: int, last: int) -> Job:
                slots = np.arange(first, last)
                where = (slots, begin, memory.n_places)
                return lambda thread: self._workers.library.call(
                    "encode", sized.prepared, sentences, first, last, *where, buffers[thread]
                )

            self._workers.run([run(*each) for each in self._workers.ranges(n_source, ENCODED_TOKENS)])
        return state

    def step(self, prev: Tensor, state: TranslationState) -> tuple[Tensor, TranslationState]:
        """Return the features (B, K, D) after the tokens prev (B, K), and the state."""
        words, n_beams = prev.numpy(), prev.shape[1]
        check_ids(words.reshape(-1), self.packed.vocab_size)
        shown = np.zeros(prev.numel(), np.int64)
        if state.record:
            # Read and written up to a multiple of 16.
            seen = torch.zeros(*prev.shape, -(-state.memory.n_places // 16) * 16)
            shown = seen.data_ptr() + 4 * seen.shape[2] * np.arange(prev.numel())
            state.attention = seen[..., : state.memory.n_places]
        states = States(
            **state.past.next_rows(words),
            memory=np.repeat(state.memory.addresses(), n_beams),
            n_source=np.repeat(state.n_source, n_beams),
            weights=shown,
        )
        # Beams do not read each other's step: any rows can go to any thread.
        share = max(MIN_ROWS, -(-len(states.word) // self._workers.n_threads))
        parts = [(first, min(first + share, len(states.word))) for first in range(0, len(states.word), share)]
        return self._decode(states, parts, state).view(*prev.shape, -1), state

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return features (B, T, D) for src (B, S) and tgt_in (B, T); 0 at padding."""
        state = self.start(src, src_mask, 1, tgt_in.shape[1])
        words = tgt_in.numpy()
        real = np.cumsum((words != PAD_ID)[:, ::-1], 1)[:, ::-1] > 0  # up to the last word
        n_words = real.sum(1)
        check_ids(words[real], self.packed.vocab_size)
        row, position = map(np.ascontiguousarray, np.nonzero(real))
        past = state.past
        past.cache.make_room(past.max_length)
        past.places[:] = np.arange(past.places.shape[2])
        states = States(
            word=words[real].astype(np.int64),
            position=position,
            new_place=position,
            cache=past.cache.addresses()[row],
            memory=state.memory.addresses()[row],
            n_source=state.n_source[row],
            n_places=position + 1,
            places=past.places.ctypes.data + 4 * past.places.shape[2] * row,
            weights=np.zeros(len(row), np.int64),
        )
        begins = np.concatenate([[0], np.cumsum(n_words)])
        parts = [(int(begins[i]), int(begins[j])) for i, j in self._workers.ranges(n_words, ENCODED_TOKENS)]
        found = torch.zeros(*tgt_in.shape, self.packed.config.d_model)
        found[torch.from_numpy(real)] = self._decode(states, parts, state)
        return found

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or (..., len(ids)) for ``ids``."""
        return self._output.logits(hidden if self._scale == 1.0 else hidden / self._scale, ids)

    def _decode(self, states: States, parts: list[tuple[int, int]], state: TranslationState) -> Tensor:
        """Return the features (M, D) of a step's rows, computed part by part."""
        found = torch.empty(len(states.word), self.packed.d_model)
        with self._workers.lock:
            positions = max(state.memory.n_places, state.past.max_length)
            sizes = state.memory.n_places, state.past.cache.n_places
            buffers = self._workers.buffers(max(last - first for first, last in parts), positions)

            def run(first: int, last: int) -> Job:
                out = found.data_ptr() + 4 * first * found.shape[1]
                part = part_of(states, first, last)
                return lambda thread: self._workers.library.call(
                    "decode", state.sized.prepared, last - first, part, *sizes, buffers[thread], out
                )

            self._workers.run([run(*each) for each in parts])
        features = found[:, : self.packed.config.d_model]
        return features if self._scale == 1.0 else features * self._scale
