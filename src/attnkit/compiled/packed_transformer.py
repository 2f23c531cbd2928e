"""Weights of a translating Transformer in the layout of compiled loops."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from attnkit.compiled.packed_layers import PackedLayers, Weights
from attnkit.kernels.simd.targets import Precision, Target
from attnkit.models.config import TransformerConfig
from attnkit.models.layer_config import ties_sides
from attnkit.models.position_tables import fairseq_sinusoids, sinusoids
from attnkit.protocols import BOS_ID, EOS_ID

SIDES = ("encoder", "decoder")


class PackedTransformer(PackedLayers):
    """Owner of a Transformer's weights in the layout of ``Model``."""

    def __init__(
        self,
        config: TransformerConfig,
        weights: Weights,
        n_words: int,
        precision: Precision = "float32",
        target: Target | None = None,
    ) -> None:
        """Pack weights, named as in a checkpoint; ids from ``n_words`` are padding.

        ``target``: None takes the best of this processor.
        """
        super().__init__(config, weights, precision, target)
        self.config, self.n_words = config, n_words
        self.n_encoder_layers, self.n_decoder_layers = config.encoder_layers, config.decoder_layers
        # In the order of ``Model``.
        for i in range(config.encoder_layers):
            self._pack_layer(f"encoder.layers.{i}", ("attention", "feed_forward"))
        self._pack_top("encoder.norm")
        self._pack(*self._to_heads("decoder.memory", [config.n_heads] * 2 * config.decoder_layers))
        for i in range(config.decoder_layers):
            self._pack_layer(f"decoder.layers.{i}", ("attention", "cross", "feed_forward"))
        self._pack_top("decoder.norm")
        if config.embedding_norm:
            self.src_norm = len(self._norms)
            self._pack_norm("encoder.embedding.norm")
        if config.target_embedding_norm:
            self.tgt_norm = len(self._norms)
            self._pack_norm("decoder.embedding.norm")
        width = math.sqrt(config.d_model)
        output = self._get("output.weight") * np.float32(1 / width if config.scaled_output else 1)
        self._pack_output(output, weights["output.bias"], n_words)
        tables = [self._get(f"{side}.embedding.words.weight") for side in SIDES]
        self.src_vocab_size, self.vocab_size = map(len, tables)
        # Embeddings are word vectors times √D (Vaswani et al. 2017, 3.4), but in T5.
        factor = width if config.scaled_input else 1.0
        self.words[1] = self._pack_words(tables[1], factor)
        if config.decoder_start == "eos":  # BOS, which no source has, takes the vector of EOS
            self._owned[-1][BOS_ID] = self._owned[-1][EOS_ID]
        shared = ties_sides(config.tie_embeddings)
        self.words[0] = self.words[1] if shared else self._pack_words(tables[0], factor)
        self._finish([name for name in weights if name.endswith((".positions.table", ".bias.table"))])

    def _get(self, name: str) -> NDArray[np.float32]:
        """Return a weight; of tied embeddings a checkpoint holds one."""
        for known in (name, "decoder.embedding.words.weight", "encoder.embedding.words.weight"):
            if known in self._weights:
                return self._weights[known]
        raise KeyError(name)

    def position_tables(self, n: int) -> list[NDArray[np.float32] | None]:
        if self.config.positions == "sinusoidal":
            return [sinusoids(n, self.config.d_model)] * 2
        if self.config.positions == "fairseq":
            return [fairseq_sinusoids(n, self.config.d_model)] * 2
        if self.config.positions == "learned":
            return [self._weights[f"{side}.embedding.positions.table"][self.config.position_offset :] for side in SIDES]
        return [None, None]

    def bias_tables(self) -> list[NDArray[np.float32]]:
        return [self._weights[f"{side}.own.bias.table"] for side in SIDES]
