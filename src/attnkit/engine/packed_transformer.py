"""Weights of a Transformer in the layout of compiled loops, without torch.

Letters: D model width, A heads times head width, F inner width, H heads, d head width, V words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.layout import GELU, NORM_MASK, RELU, SILU, Model
from attnkit.kernels.simd.packing import GROUP, KEPT_BYTES, LOWEST, PackedWeights, aligned, pack, padded
from attnkit.kernels.simd.targets import HEAD_VECTORS, Precision, Target
from attnkit.models.config import TransformerConfig
from attnkit.models.position_tables import alibi_bias, relative_bias, rotations, sinusoids
from attnkit.protocols import EOS_ID

Weights = Mapping[str, NDArray[np.float32]]
ACTIVATIONS = {"relu": RELU, "gelu": GELU, "silu": SILU}


def _head_width(d_head: int) -> int:
    """Return the padded width of a head."""
    return next(16 * n for n in HEAD_VECTORS if 16 * n >= d_head)


class PackedTransformer:
    """Owner of a Transformer's weights in the layout of ``Model``."""

    def __init__(
        self, config: TransformerConfig, weights: Weights, target: Target, precision: Precision, n_words: int
    ) -> None:
        """Pack weights, named as in a checkpoint; ids from ``n_words`` are padding."""
        self.config, self.target, self.precision = config, target, precision
        self.d_head, self.d_model, self.d_inner = (
            _head_width(config.d_head),
            padded(config.d_model),
            padded(config.d_ff),
        )
        self.d_heads = padded(config.n_heads * self.d_head)
        self.lane_bytes, self.kept_bytes = 4 // GROUP[precision], KEPT_BYTES[precision]
        self._owned: list[NDArray[Any]] = []
        self._weights = weights
        self._products: list[list[int]] = []
        self._norms: list[list[int]] = []
        # In the order of ``Model``.
        for i in range(config.encoder_layers):
            self._pack_layer(f"encoder.layers.{i}", ("attention", "feed_forward"))
        self._pack_top("encoder")
        self._pack(*self._to_heads("decoder.memory", 2 * config.decoder_layers))
        for i in range(config.decoder_layers):
            self._pack_layer(f"decoder.layers.{i}", ("attention", "cross", "feed_forward"))
        self._pack_top("decoder")
        if config.embedding_norm:
            self._pack_norm("encoder.embedding.norm")
        self._pack_output(n_words)
        self.n_words = n_words
        self.tgt_words, self.vocab_size = self._embedding("decoder")
        self.src_words, self.src_vocab_size = self.tgt_words, self.vocab_size
        if config.tie_embeddings != "all":
            self.src_words, self.src_vocab_size = self._embedding("encoder")
        constants = np.zeros(NORM_MASK + self.d_model, np.float32)
        constants[:2] = 1 / config.d_model, config.norm_eps
        constants[NORM_MASK : NORM_MASK + config.d_model] = 1
        self._constants = self._own(constants)
        self._model: tuple[int, Model] | None = None
        self._n_fixed = len(self._owned)  # what follows are tables for a number of positions
        # Only tables are needed again; the rest would keep the whole checkpoint in memory.
        tables = [name for name in weights if name.endswith((".positions.table", ".bias.table"))]
        self._weights = {name: weights[name].copy() for name in tables}

    def _own(self, array: NDArray[Any]) -> int:
        """Return the address of an aligned copy that lives as long as this object."""
        self._owned.append(aligned(array))
        return self._owned[-1].ctypes.data

    def _get(self, name: str) -> NDArray[np.float32]:
        """Return a weight; of tied embeddings a checkpoint holds one."""
        for known in (name, "decoder.embedding.words.weight", "encoder.embedding.words.weight"):
            if known in self._weights:
                return self._weights[known]
        raise KeyError(name)

    def _embedding(self, side: str) -> tuple[int, int]:
        """Return the address of word vectors times the square root of D, and their number."""
        words = self._get(f"{side}.embedding.words.weight")
        table = np.zeros((len(words), self.d_model), np.float32)
        np.multiply(words, np.float32(math.sqrt(self.config.d_model)), out=table[:, : self.config.d_model])
        return self._own(table), len(words)

    def _pack_layer(self, name: str, parts: Sequence[str]) -> None:
        for part in parts:
            if part == "feed_forward":
                self._pack_named(f"{name}.{part}.up")
                self._pack_named(f"{name}.{part}.down", non_negative=self.config.activation == "relu")
            else:
                self._pack_attention(f"{name}.{part}", 1 if part == "cross" else 3)
            self._pack_norm(f"{name}.around_{part}.norm")

    def _pack_attention(self, name: str, n_parts: int) -> None:
        weight, bias = self._to_heads(f"{name}.projection", n_parts)
        # The scale of the scores goes into the query.
        for part in (weight, bias):
            part[: self.d_heads] *= np.float32(self.config.d_head**-0.5)
        self._pack(weight, bias)
        n, d = self.config.n_heads, self.config.d_head
        back = self._weights[f"{name}.output.weight"]  # (D, H d)
        wide = np.zeros((len(back), n, self.d_head), np.float32)
        wide[:, :, :d] = back.reshape(len(back), n, d)
        self._pack(wide.reshape(len(back), -1), self._weights[f"{name}.output.bias"])

    def _to_heads(self, name: str, n_parts: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return a projection (n_parts A, D) and its bias, with padded heads."""
        n, d = self.config.n_heads, self.config.d_head
        products = []
        for array in (self._weights[f"{name}.weight"], self._weights[f"{name}.bias"][:, None]):
            wide = np.zeros((n_parts, self.d_heads, array.shape[1]), np.float32)
            heads = np.zeros((n_parts, n, self.d_head, array.shape[1]), np.float32)
            heads[:, :, :d] = array.reshape(n_parts, n, d, -1)
            wide[:, : n * self.d_head] = heads.reshape(n_parts, n * self.d_head, -1)
            products.append(wide.reshape(n_parts * self.d_heads, -1))
        return products[0], products[1][:, 0]

    def _pack_named(self, name: str, non_negative: bool = False) -> None:
        self._pack(self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], non_negative=non_negative)

    def _pack(self, weight: NDArray[np.float32], bias: NDArray[np.float32], **options: Any) -> PackedWeights:
        packed = pack(weight, bias, self.target, self.precision, **options)
        self._owned += packed
        n_inputs = packed.weights.shape[1] * GROUP[self.precision]
        self._products.append([*(part.ctypes.data for part in packed), len(packed.bias), n_inputs])
        return packed

    def _pack_norm(self, name: str) -> None:
        rows = np.zeros((2, self.d_model), np.float32)
        rows[:, : self.config.d_model] = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        self._norms.append([self._own(row) for row in rows])

    def _pack_top(self, side: str) -> None:
        if self.config.norm == "pre":
            self._pack_norm(f"{side}.norm")

    def _pack_output(self, n_words: int) -> None:
        """Pack the output layer twice; the second bias masks words never chosen."""
        packed = self._pack(self._get("output.weight"), self._weights["output.bias"], padding=LOWEST)
        bias = packed.bias.copy()
        bias[:EOS_ID] = bias[n_words:] = LOWEST
        masked = self._own(bias)
        w, start, scale, _, n, k = self._products[-1]
        self._products.append([w, start if self.precision == "int8" else masked, scale, masked, n, k])

    # --- positions

    def model(self, n_positions: int) -> Model:
        """Return the model with tables for at least so many positions."""
        if self._model is None or self._model[0] < n_positions:
            n = max(64, 1 << (n_positions - 1).bit_length())
            self._model = None  # its tables are given up first
            del self._owned[self._n_fixed :]
            self._model = n, self._build(n)
        return self._model[1]

    def _build(self, n: int) -> Model:
        config = self.config
        tables: list[NDArray[np.float32] | None] = [None, None]
        biases: list[NDArray[np.float32] | None] = [None, None]
        sides = ("encoder", "decoder")
        centre, width = n - 1, 2 * n + 15  # a row is read up to a multiple of 16 floats
        distance = np.arange(width) - centre  # key minus query
        if config.positions == "sinusoidal":
            tables = [sinusoids(n, config.d_model)] * 2
        elif config.positions == "learned":
            tables = [self._weights[f"{side}.embedding.positions.table"] for side in sides]
        elif config.positions == "alibi":
            biases = [alibi_bias(config.n_heads, distance)] * 2
        elif config.positions == "relative":
            found = [self._weights[f"{side}.own.bias.table"] for side in sides]
            biases = [relative_bias(table, distance, table is found[0]) for table in found]
        addresses = []
        for table in tables:
            wide = None if table is None else np.zeros((len(table), self.d_model), np.float32)
            if wide is not None:
                wide[:, : config.d_model] = table
            addresses.append(0 if wide is None else self._own(wide))
        rotary = config.positions == "rotary"
        return Model(
            products=np.array(self._products, np.int64),
            norms=np.array(self._norms, np.int64),
            d_model=self.d_model,
            n_heads=config.n_heads,
            d_head=self.d_head,
            d_heads=self.d_heads,
            d_inner=self.d_inner,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            pre_norm=int(config.norm == "pre"),
            activation=ACTIVATIONS[config.activation],
            norm_constants=self._constants,
            src_words=self.src_words,
            tgt_words=self.tgt_words,
            src_positions=addresses[0],
            tgt_positions=addresses[1],
            rotary_half=config.d_head // 2 if rotary else 0,
            rotary=self._own(rotations(n, config.d_head)) if rotary else 0,
            src_bias=0 if biases[0] is None else self._own(biases[0]),
            tgt_bias=0 if biases[1] is None else self._own(biases[1]),
            bias_stride=4 * width,
            bias_centre=centre,
            src_norm=int(config.embedding_norm),
        )
