"""Weights of BERT and GPT in the layout of compiled loops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnkit.compiled.packed_layers import PackedLayers, SizedModel, Weights
from attnkit.kernels.simd.targets import Precision, Target
from attnkit.models.language_config import BertConfig, GptConfig
from attnkit.models.position_tables import sinusoids

# Letters: D model width, S segments, T positions.


class PackedLanguageModel(PackedLayers):
    """Owner of a BERT's or a GPT's weights in the layout of ``Model``."""

    def __init__(
        self,
        config: BertConfig | GptConfig,
        weights: Weights,
        precision: Precision = "float32",
        target: Target | None = None,
        n_words: int | None = None,
    ) -> None:
        """Pack weights, named as in the model; heads of tasks are not among them.

        ``target``: None takes the best of this processor. Ids from ``n_words`` are padding; None: there are none.
        """
        super().__init__(config, weights, precision, target)
        self.config, self.n_encoder_layers = config, config.n_layers
        if isinstance(config, BertConfig):
            self.skips_norm = int(config.embedding_norm)
            self.global_every, self.local_base = config.global_every, config.local_rope_base
            self.local_reach = (config.local_window or 0) // 2
        for i in range(config.n_layers):
            self._pack_layer(f"layers.{i}", ("attention", "feed_forward"))
        self._pack_top("norm")
        words = weights["embedding.weight"]
        self.n_words = len(words) if n_words is None else n_words
        if isinstance(config, BertConfig):
            if config.norm == "post" or config.embedding_norm:
                self.src_norm = len(self._norms)
                self._pack_norm("embedding_norm")
        else:
            self._pack_output(weights.get("output.weight", words), np.zeros(len(words), np.float32), self.n_words)
        self.vocab_size = self.src_vocab_size = len(words)
        self.words = [self._pack_words(words, 1.0)] * 2
        self._finish(["places.table.table", "segments.weight"])

    def _positions(self, n: int) -> NDArray[np.float32] | None:
        if self.config.positions == "sinusoidal":
            return sinusoids(n, self.config.d_model)
        return self._weights["places.table.table"] if self.config.positions == "learned" else None

    def position_tables(self, n: int) -> list[NDArray[np.float32] | None]:
        # The sum of segment and position: row ``segment * positions + position``, or ``segment`` alone.
        table, segments = self._positions(n), self._weights.get("segments.weight")
        if segments is not None:
            table = segments if table is None else (segments[:, None] + table).reshape(-1, self.config.d_model)
        return [table, table]

    def position_rows(
        self, sized: SizedModel, segments: NDArray[np.int64], positions: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Return the rows of a model's position table for tokens."""
        if self.config.positions not in ("learned", "sinusoidal"):
            return segments.astype(np.int32)
        n = self.config.max_length if self.config.positions == "learned" else sized.n_positions
        return (segments * n + positions).astype(np.int32)
