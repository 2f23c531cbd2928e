"""GPT in compiled loops, over a sliding window of tokens.

It has the interface of ``models.gpt.SlidingWindowLM``, but takes prompts of different lengths together.

Letters: B texts, T tokens, M rows, D model width, V vocabulary, C tokens in the cache of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnkit.compiled.output_layer import OutputLayer
from attnkit.compiled.packed_language_model import PackedLanguageModel
from attnkit.compiled.packed_layers import PackedLayers
from attnkit.compiled.rows import FIRST_STEPS, KeyValueCache, check_ids, number_of_tokens, part_of
from attnkit.compiled.search import ENCODED_TOKENS, MAX_TOKENS, CompiledSearch, reason_against_search
from attnkit.compiled.workers import Job, Workers
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.hypothesis import Hypothesis
from attnkit.decoding.stopping import StopCheck
from attnkit.kernels.layout import States


class TextState:
    """Texts so far, and the keys and values of their tokens in the window."""

    attention: Tensor | None = None  #: always None: a language model has no source

    def __init__(self, packed: PackedLayers, ids: NDArray[np.int64], lengths: NDArray[np.int64], n_cached: int) -> None:
        """Take prompts (B, T) and their lengths; each text has room for C tokens."""
        self.words = np.zeros((len(ids), n_cached + 1), np.int64)  # (B, C + 1)
        for row, prompt, n in zip(self.words, ids, lengths, strict=True):
            row[: min(n, n_cached)] = prompt[:n][-n_cached:]
        self.lengths = np.minimum(lengths, n_cached)
        self.n_cached = np.zeros(len(ids), np.int64)  # tokens whose keys and values are known
        self.cache = KeyValueCache(
            packed, packed.n_encoder_layers, len(ids), min(n_cached, int(lengths.max()) + FIRST_STEPS)
        )
        self.max_cached = n_cached
        # Scores are made of four keys.
        self.places = np.arange(-(-n_cached // 4) * 4, dtype=np.int32)
        self.sized = packed.model(n_cached)
        self.begun = False

    def add(self, words: NDArray[np.int64], window: int) -> None:
        """Append words (B,); of a full window keep the newer half, to be read again."""
        self.words[np.arange(len(words)), self.lengths] = words
        self.lengths += 1
        for row in np.flatnonzero(self.lengths > window):
            # Positions are absolute, so cached keys cannot be shifted.
            n, kept = self.lengths[row], window // 2
            self.words[row, :kept] = self.words[row, n - kept : n].copy()
            self.lengths[row], self.n_cached[row] = kept, 0

    def new_rows(self) -> tuple[States, NDArray[np.int64]]:
        """Return rows for all tokens that are not cached, and their number per text."""
        counts = self.lengths - self.n_cached
        if (longest := int(self.lengths.max())) > self.cache.n_places:
            self.cache.make_room(min(2 * longest, self.max_cached))
        text = np.repeat(np.arange(len(counts)), counts)
        position = np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts) + self.n_cached[text]
        none = np.zeros(len(text), np.int64)
        rows = States(
            word=self.words[text, position],
            position=position,
            new_place=position,
            cache=self.cache.addresses()[text],
            memory=none,
            n_source=none,
            n_places=position + 1,
            places=np.full(len(text), self.places.ctypes.data),
            weights=none,
        )
        self.n_cached = self.lengths.copy()
        return rows, counts

    def reorder_beams(self, parents: Tensor) -> TextState:
        """Keep all texts: each has one beam."""
        return self

    def select_rows(self, sentences: Tensor) -> TextState:
        """Keep only the given rows of the batch, in the given order."""
        rows = sentences.numpy()
        self.words, self.lengths = self.words[rows], self.lengths[rows]
        self.n_cached, self.cache.slots = self.n_cached[rows], self.cache.slots[rows]
        return self


class GreedyGenerator(CompiledSearch):
    """Greedy search over prompts, as a whole; texts must fit into the window."""

    n_appended = 0


class CompiledGenerator:
    """GPT in compiled loops."""

    def __init__(
        self,
        packed: PackedLanguageModel,
        window: int,
        *,
        n_threads: int = 1,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Load the loops for a packed model.

        Args:
            packed: a GPT.
            window: maximum context in tokens, at least 2.
            n_threads: threads of each step.
            notify: receives a note before the loops are compiled.

        Raises:
            SystemFailure: the loops cannot be compiled.
            ValueError: the window is below 2 or above the model's positions.
        """
        longest = packed.config.max_positions
        if window < 2 or (longest is not None and window > longest):
            raise ValueError(f"window must be at least 2 and at most the model's positions, not {window}")
        self.packed, self.config, self.window = packed, packed.config, window
        self._workers = Workers("generator", packed, n_threads, notify)
        self._output = OutputLayer(packed, self._workers, packed.vocab_size)
        self._greedy = GreedyGenerator(packed, n_threads=n_threads, library=self._workers.library)

    def can_search_whole(self, n_tokens: int, limit: int, search: SearchConfig) -> bool:
        """Return whether ``search`` takes prompts of ``n_tokens`` and such a limit."""
        fits = n_tokens + limit - 1 <= min(self.window, MAX_TOKENS)
        return fits and search.beam_size == 1 and reason_against_search(search) is None

    def search(
        self,
        prompts: Sequence[Sequence[int]],
        limits: Sequence[int],
        search: SearchConfig,
        stops: StopCheck | None = None,
    ) -> list[Hypothesis]:
        """Return the most probable text after each prompt, chosen token by token.

        ``stops`` says which texts are to end; those have no words. Raises ``ValueError`` for a setting that the loops
        do not have, an empty prompt, an unknown id, or a text that may exceed the window.
        """
        for row, limit in zip(prompts, limits, strict=True):
            if not self.can_search_whole(len(row), limit, search):
                raise ValueError("a whole search is greedy, and its texts fit into the window")
        return [found[0] for found in self._greedy.search(prompts, limits, search, stops)]

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> TextState:
        """Take prompts (B, T), padded on the right; the first step reads them.

        Raises ``ValueError`` if ``n_beams`` is not 1, for an empty prompt, or an id outside of the vocabulary.
        """
        if n_beams != 1:
            raise ValueError("a sliding window supports one beam per text only: repeat the text in several rows")
        lengths = number_of_tokens(src, src_mask)
        if not len(lengths) or lengths.min() < 1:
            raise ValueError("a prompt must have 1 or more tokens")
        with self._workers.lock:
            room = min(self.window, int(lengths.max()) + max_length)
            return TextState(self.packed, src.numpy(), lengths, room)

    def step(self, prev: Tensor, state: TextState) -> tuple[Tensor, TextState]:
        """Return features (B, 1, D) after the tokens prev (B, 1), and the state.

        The first step reads the prompts instead of ``prev``.
        """
        if state.begun:
            check_ids(prev.numpy().reshape(-1), self.packed.vocab_size)
            state.add(prev.numpy()[:, 0], self.window)
        state.begun = True
        if state.lengths.max() > state.max_cached:
            raise ValueError(f"this state has room for {state.max_cached} tokens")
        rows, counts = state.new_rows()
        check_ids(rows.word, self.packed.vocab_size)
        ends = np.cumsum(counts)
        found = torch.empty(len(rows.word), self.packed.d_model)
        with self._workers.lock:
            longest = max(ENCODED_TOKENS, int(counts.max()))
            buffers = self._workers.buffers(longest, state.max_cached)

            def run(first: int, last: int) -> Job:
                begin, end = int(ends[first] - counts[first]), int(ends[last - 1])
                out, part = found.data_ptr() + 4 * begin * found.shape[1], part_of(rows, begin, end)
                return lambda thread: self._workers.library.call(
                    "extend", state.sized.prepared, end - begin, part, state.cache.n_places, buffers[thread], out
                )

            # Whole texts, as a token sees those before it.
            self._workers.run([run(*each) for each in self._workers.ranges(counts, ENCODED_TOKENS)])
        last_tokens = found[torch.from_numpy(ends - 1)]
        return last_tokens[:, None, : self.config.d_model], state

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or (..., len(ids)) for ``ids``."""
        return self._output.logits(hidden, ids)
