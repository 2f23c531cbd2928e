"""BERT's encoder in compiled loops.

Letters: B rows, T tokens of a row, N chosen tokens, D model width.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from attnkit.compiled.packed_language_model import PackedLanguageModel
from attnkit.compiled.rows import make_sentences, number_of_tokens
from attnkit.compiled.search import ENCODED_TOKENS
from attnkit.compiled.workers import Job, Workers
from attnkit.models.bert import Bert
from attnkit.models.language_config import BertConfig
from attnkit.models.layers import PackedLayout


class CompiledEncoder:
    """BERT's encoder in compiled loops, without its heads."""

    def __init__(
        self, packed: PackedLanguageModel, *, n_threads: int = 1, notify: Callable[[str], None] = lambda text: None
    ) -> None:
        """Load the loops for a packed model.

        ``notify`` receives a note before they are compiled. Raises ``SystemFailure`` if they cannot be.
        """
        assert isinstance(packed.config, BertConfig)
        self.packed, self.config = packed, packed.config
        self._workers = Workers("encoder", packed, n_threads, notify)

    def hidden(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        layers: int | None = None,
    ) -> Tensor:
        """Return features as ``Bert.hidden`` does: (B, T, D), or (N, D) of ``positions``.

        ``mask`` (B, T) is False at padding, on the right, where features are 0. Raises ``ValueError`` for an id outside
        of the vocabulary, a segment that the model lacks, or too many positions.
        """
        packed, config, n_tokens = self.packed, self.config, number_of_tokens(ids, mask)
        n_layers = config.n_layers if layers is None else min(layers, config.n_layers)
        if n_layers == 0 and positions is not None:  # it is the last layer that is computed for chosen tokens
            return self.hidden(ids, mask, segments, None, 0).flatten(0, 1)[positions]
        sentences = make_sentences(ids, n_tokens, packed.vocab_size)
        longest, begins = int(n_tokens.max()), sentences.begins
        if config.max_positions is not None and longest > config.max_positions:
            raise ValueError(f"the model has {config.max_positions} positions, not {longest}")
        real = np.arange(ids.shape[1]) < n_tokens[:, None]
        of_tokens = np.zeros(begins[-1], np.int64) if segments is None else segments.numpy()[real]
        if of_tokens.min() < 0 or of_tokens.max() >= config.n_segments:
            raise ValueError(f"segments must be between 0 and {config.n_segments - 1}")
        places = np.flatnonzero(real) if positions is None else positions.numpy()
        order = np.argsort(places, kind="stable")
        row, column = np.divmod(places[order], ids.shape[1])
        if len(row) and not (row[0] >= 0 and row[-1] < len(ids) and bool(real[row, column].all())):
            raise ValueError("positions must be those of tokens, not of padding")
        if bool((np.diff(places[order]) == 0).any()):
            raise ValueError("positions must differ")
        chosen = begins[row] + column  # (N,), ascending
        found = torch.empty(len(places), packed.d_model)
        with self._workers.lock:
            sized = packed.model(longest)
            sentences = sentences._replace(positions=packed.position_rows(sized, of_tokens, sentences.positions))
            buffers = self._workers.buffers(max(ENCODED_TOKENS, longest), longest)
            jobs: list[Job] = []

            def add(first: int, last: int) -> None:
                start, stop = np.searchsorted(chosen, (begins[first], begins[last])).tolist()
                own = chosen[:0] if positions is None else chosen[start:stop] - begins[first]  # none: all
                what = (sized.prepared, sentences, first, last, n_layers, own)
                out = found.data_ptr() + 4 * start * found.shape[1]
                if stop > start:
                    jobs.append(lambda n: self._workers.library.call("features", *what, buffers[n], out))

            for part in self._workers.ranges(n_tokens, ENCODED_TOKENS):
                add(*part)
            self._workers.run(jobs)
        features, to = found[:, : config.d_model], torch.from_numpy(places[order])
        if positions is None and bool(real.all()):
            return features.view(*ids.shape, -1)
        if positions is None:
            result = torch.zeros(*ids.shape, config.d_model)
            result.view(-1, config.d_model)[to] = features
            return result
        result = torch.empty_like(features)
        result[torch.from_numpy(order)] = features
        return result


def compile_encoder(bert: Bert, encoder: CompiledEncoder) -> None:
    """Let ``bert.hidden`` run in compiled loops, except for attention weights."""
    by_torch = bert.hidden

    def hidden(
        ids: Tensor,
        layout: PackedLayout,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        seen: list[Tensor] | None = None,
        layers: int | None = None,
    ) -> Tensor:
        if seen is not None or layout.positions is not None:
            return by_torch(ids, layout, segments, positions, seen, layers)
        mask = None if layout.mask is None else layout.mask[:, 0, 0]
        return encoder.hidden(ids, mask, segments, positions, layers)

    bert.hidden = hidden  # type: ignore[method-assign]
