"""Weights of Transformer layers in the layout of compiled loops, without torch.

Letters: D model width, A heads times head width, A' those of keys and values, F inner width, H heads, d head width, P
padded head width, V words.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.layout import BIAS, GELU, GELU_TANH, NORM_MASK, RELU, SILU, Model
from attnkit.kernels.native import PreparedArgument
from attnkit.kernels.simd import packing
from attnkit.kernels.simd.packing import GROUP, KEPT_BYTES, LOWEST, PackedWeights, aligned, column_lengths, pack, padded
from attnkit.kernels.simd.targets import HEAD_VECTORS, NumberFormat, Precision, Target, choose_target
from attnkit.models.layer_config import LayerConfig
from attnkit.models.position_tables import alibi_bias, relative_bias, rotations
from attnkit.protocols import EOS_ID

Weights = Mapping[str, NDArray[np.float32]]
ACTIVATIONS = {"relu": RELU, "gelu": GELU, "silu": SILU, "gelu_tanh": GELU_TANH}
MIN_SCREENED = 2048  #: words of the smallest vocabulary with screening: a smaller one takes little time anyway
MAX_HEAD = 16 * HEAD_VECTORS[-1]  #: widest head with compiled loops


class SizedModel(NamedTuple):
    """A model with position tables of some length.

    Whoever uses the addresses of the model must keep this object.
    """

    model: Model
    n_positions: int
    tables: list[NDArray[Any]]
    prepared: PreparedArgument  #: the model for calls


class PackedLayers:
    """Owner of a stack's weights in the layout of ``Model``; subclasses pack them."""

    n_encoder_layers: int
    n_decoder_layers: int = 0
    src_norm: int = 0  #: row of ``Model.norms`` of the source's embeddings, 0 if they have none
    tgt_norm: int = 0  #: that of the target's embeddings
    skips_norm: int = 0  #: 1: the first layer has no norm before its attention
    local_reach: int = 0  #: tokens per side that a token of a local layer attends to
    global_every: int = 1  #: every n-th layer is none of these
    local_base: float = 0.0  #: of their rotary positions
    n_words: int  #: ids from here on are padding
    src_vocab_size: int
    vocab_size: int

    def __init__(self, config: LayerConfig, weights: Weights, precision: Precision, target: Target | None) -> None:
        target = target or choose_target()
        self.sizes, self.target, self.precision = config, target, precision
        self.tile = target.tile(precision)
        self.d_head = next(16 * n for n in HEAD_VECTORS if 16 * n >= config.d_head)
        self.d_model, self.d_inner = padded(config.d_model), padded(config.d_ff)
        self.d_heads, self.d_kept = (padded(n * self.d_head) for n in (config.n_heads, config.n_kept_heads))
        self.gated = int(config.glu)
        self.lane_bytes, self.kept_bytes = 4 // GROUP[precision], KEPT_BYTES[precision]
        self._owned: list[NDArray[Any]] = []
        self._weights = weights
        self._products: list[list[int]] = []
        self._norms: list[list[int]] = []
        self.words = [0, 0]  #: addresses of the word vectors of source and target
        self._screens = [(0.0, 0.0), (0.0, 0.0)]  #: of both products for screening: lengths of columns and errors
        self._sized: SizedModel | None = None
        self._lock = threading.Lock()  # of the position tables: several searches may share the weights

    def _own(self, array: NDArray[Any]) -> int:
        """Return the address of an aligned copy that lives as long as this object."""
        self._owned.append(aligned(array))
        return self._owned[-1].ctypes.data

    def _widen(self, table: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
        """Return a table with padded columns."""
        if table is None:
            return None
        wide = np.zeros((len(table), self.d_model), np.float32)
        wide[:, : table.shape[1]] = table
        return wide

    def _pack_words(self, words: NDArray[np.float32], factor: float) -> int:
        """Return the address of word vectors times a factor."""
        table = packing.zeros((len(words), self.d_model), np.float32)
        np.multiply(words, np.float32(factor), out=table[:, : self.sizes.d_model])
        self._owned.append(table)
        return int(table.ctypes.data)

    def _pack_layer(self, name: str, parts: Sequence[str]) -> None:
        for before, part in zip((None, *parts), parts, strict=False):
            if part == "feed_forward":
                last = part if self.sizes.norm == "pre" else before
                self._pack_feed_forward(f"{name}.{part}", f"{name}.around_{last}.norm")
            else:
                self._pack_attention(f"{name}.{part}", is_cross=part == "cross")
            if self.skips_norm and not self._norms:
                self._norms.append([0, 0])  # in its place, never read
            else:
                self._pack_norm(f"{name}.around_{part}.norm")

    def _pack_attention(self, name: str, is_cross: bool) -> None:
        n_kept = self.sizes.n_kept_heads
        sizes = [self.sizes.n_heads] if is_cross else [self.sizes.n_heads, n_kept, n_kept]
        n_rotated = 2 if self.sizes.positions == "rotary" and not is_cross else 0
        weight, bias = self._to_heads(f"{name}.projection", sizes, n_rotated)
        # The scale of the scores goes into the query.
        scale = self.sizes.score_scale
        assert scale is not None
        for part in (weight, bias):
            part[: self.d_heads] *= np.float32(scale)
        self._pack(weight, bias)
        n, d = self.sizes.n_heads, self.sizes.d_head
        back = self._weights[f"{name}.output.weight"]  # (D, H d)
        wide = np.zeros((len(back), n, self.d_head), np.float32)
        wide[:, :, :d] = back.reshape(len(back), n, d)
        self._pack(wide.reshape(len(back), -1), self._bias(f"{name}.output", len(back)))

    def _to_heads(
        self, name: str, sizes: Sequence[int], n_rotated: int = 0
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return a projection and its bias, with padded heads.

        It has a part of each size, in heads. The first ``n_rotated`` parts have each half of a head at the beginning of
        a half of a padded one.
        """
        d, half, weight = self.sizes.d_head, self.sizes.d_head // 2, self._weights[f"{name}.weight"]
        wholes = []
        for array in (weight, self._bias(name, len(weight))[:, None]):
            parts = []
            for i, part in enumerate(np.split(array, np.cumsum(sizes)[:-1] * d)):
                wide = np.zeros((padded(sizes[i] * self.d_head), array.shape[1]), np.float32)
                heads = wide[: sizes[i] * self.d_head].reshape(sizes[i], self.d_head, -1)  # (n, P, D), a view
                own = part.reshape(sizes[i], d, -1)
                if i < n_rotated:
                    heads[:, :half] = own[:, :half]
                    heads[:, self.d_head // 2 : self.d_head // 2 + half] = own[:, half:]
                else:
                    heads[:, :d] = own
                parts.append(wide)
            wholes.append(np.concatenate(parts))
        return wholes[0], wholes[1][:, 0]

    def _pack_feed_forward(self, name: str, norm: str) -> None:
        """Pack a feed-forward sublayer, whose inputs come from a norm."""
        weight, bias = self._named(f"{name}.up")
        back, back_bias = self._named(f"{name}.down")
        has_zeros = self.sizes.activation == "relu" and not self.gated
        if has_zeros and GROUP[self.precision] > 1:
            order = np.argsort(self._expected(weight, bias, norm))
            weight, bias, back = weight[order], bias[order], back[:, order]
        if self.gated:
            parts = ((weight, bias), self._named(f"{name}.gate"))
            n = 2 * self.d_inner  # the gates are the columns from F on
            weight, bias = np.zeros((n, weight.shape[1]), np.float32), np.zeros(n, np.float32)
            for begin, (own, own_bias) in zip((0, self.d_inner), parts, strict=True):
                weight[begin : begin + len(own)], bias[begin : begin + len(own)] = own, own_bias
        self._pack(weight, bias)
        self._pack(back, back_bias, non_negative=has_zeros)

    def _expected(self, weight: NDArray[np.float32], bias: NDArray[np.float32], norm: str) -> NDArray[np.float32]:
        """Return the mean of each output of a normed input, in standard deviations.

        Units that ReLU mostly makes zero are then neighbours: the product leaves out groups of zeros.
        """
        scale = self._weights[f"{norm}.weight"]
        mean = weight @ self._bias(norm, len(scale)) + bias
        expected: NDArray[np.float32] = mean / (np.linalg.norm(weight * scale, axis=1) + 1e-9)
        return expected

    def _named(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return a weight and its bias."""
        weight = self._weights[f"{name}.weight"]
        return weight, self._bias(name, len(weight))

    def _bias(self, name: str, n: int) -> NDArray[np.float32]:
        """Return the bias (n,) of a map or a norm; zeros where it has none."""
        return self._weights.get(f"{name}.bias", np.zeros(n, np.float32))

    def _pack(
        self,
        weight: NDArray[np.float32],
        bias: NDArray[np.float32],
        *,
        number_format: NumberFormat | None = None,
        **options: Any,
    ) -> PackedWeights:
        number_format = number_format or self.precision
        packed = pack(weight, bias, self.target, number_format, **options)
        self._owned += packed
        n_inputs = packed.weights.shape[1] * GROUP[number_format]
        self._products.append([*(part.ctypes.data for part in packed), len(packed.bias), n_inputs])
        return packed

    def _pack_norm(self, name: str) -> None:
        rows = np.zeros((2, self.d_model), np.float32)
        rows[:, : self.sizes.d_model] = self._named(name)
        self._norms.append([self._own(row) for row in rows])

    def _pack_top(self, name: str) -> None:
        if self.sizes.norm == "pre":
            self._pack_norm(name)

    def _pack_output(self, weight: NDArray[np.float32], bias: NDArray[np.float32], n_words: int) -> None:
        """Pack the output layer twice; the second bias masks words never chosen.

        Before that in the formats of screening, if there is any.
        """
        masks = np.full(padded(len(bias)), LOWEST, np.float32)
        masks[EOS_ID:n_words] = bias[EOS_ID:n_words]
        masked = self._own(masks)
        if self.target.peak_format(self.precision) is not None and len(weight) >= MIN_SCREENED:
            self._pack_screens(weight, bias, masked)
        self.output = self._pack(weight, bias, padding=LOWEST)
        w, start, scale, _, n, k = self._products[-1]
        self._products.append([w, start if self.precision == "int8" else masked, scale, masked, n, k])

    def _pack_screens(self, weight: NDArray[np.float32], bias: NDArray[np.float32], masked: int) -> None:
        for_sums, for_peaks = self.target.sum_format(self.precision), self.target.peak_format(self.precision)
        # The rows of both are always there, so that their places do not depend on the target.
        self._screens[0] = self._pack_screen(weight, bias, for_sums or for_peaks)
        if for_sums in (None, for_peaks):
            self._products.append(self._products[-1].copy())
            self._screens[1] = self._screens[0]
        else:
            self._screens[1] = self._pack_screen(weight, bias, for_peaks)
        self._products[-1][BIAS] = masked

    def _pack_screen(
        self, weight: NDArray[np.float32], bias: NDArray[np.float32], number_format: NumberFormat | None
    ) -> tuple[float, float]:
        """Pack the output layer; return the largest lengths of columns and errors."""
        packed = self._pack(weight, bias, number_format=number_format, padding=LOWEST)
        return column_lengths(weight, packed)

    def _finish(self, kept: Sequence[str]) -> None:
        """Pack the norms' constants; of the weights keep the named tables alone."""
        constants = np.zeros(NORM_MASK + self.d_model, np.float32)
        share = 1 / self.sizes.d_model
        constants[:3] = share, self.sizes.norm_eps, 0 if self.sizes.normalization == "rms" else share
        constants[NORM_MASK : NORM_MASK + self.sizes.d_model] = 1
        self._constants = self._own(constants)
        # The rest would keep the whole checkpoint in memory.
        self._weights = {name: self._weights[name].copy() for name in kept if name in self._weights}

    # --- positions

    def model(self, n_positions: int) -> SizedModel:
        """Return the model with tables for at least so many positions."""
        with self._lock:
            if self._sized is None or self._sized.n_positions < n_positions:
                self._sized = self._build(max(64, 1 << (n_positions - 1).bit_length()))
            return self._sized

    def position_tables(self, n: int) -> list[NDArray[np.float32] | None]:
        """Return what is added to the embeddings of source and target: (rows, D) or None."""
        raise NotImplementedError

    def bias_tables(self) -> list[NDArray[np.float32]]:
        """Return the tables of relative positions of source and target."""
        raise NotImplementedError

    def _rotations(self, n: int, base: float) -> NDArray[np.float32] | None:
        """Return sines, then cosines of n positions, (n, 2, P / 2); None if not rotary."""
        config = self.sizes
        if config.positions != "rotary":
            return None
        table = np.zeros((n, 2, self.d_head // 2), np.float32)
        table[:, :, : config.d_head // 2] = rotations(n, config.d_head, base, config.rope_scaling)
        return table

    def _build(self, n: int) -> SizedModel:
        config = self.sizes
        kept: list[NDArray[Any]] = []

        def keep(table: NDArray[np.float32] | None) -> int:
            """Return the address of a copy, 0 without a table."""
            if table is None:
                return 0
            kept.append(aligned(table))
            return kept[-1].ctypes.data

        biases: list[NDArray[np.float32] | None] = [None, None]
        centre, width = n - 1, 2 * n + 15  # a row is read up to a multiple of 16 floats
        distance = np.arange(width) - centre  # key minus query
        if config.positions == "alibi":
            biases = [alibi_bias(config.n_heads, distance)] * 2
        elif config.positions == "relative":
            found = self.bias_tables()
            farthest = config.relative_distance
            biases = [relative_bias(table, distance, table is found[0], farthest) for table in found]
        tables = self.position_tables(n)
        positions = [keep(self._widen(tables[0]))]
        positions.append(positions[0] if tables[1] is tables[0] else keep(self._widen(tables[1])))
        model = Model(
            products=np.array(self._products, np.int64),
            norms=np.array(self._norms, np.int64),
            d_model=self.d_model,
            n_heads=config.n_heads,
            d_head=self.d_head,
            d_heads=self.d_heads,
            group=config.n_heads // config.n_kept_heads,
            d_kept=self.d_kept,
            d_inner=self.d_inner,
            gated=self.gated,
            encoder_layers=self.n_encoder_layers,
            decoder_layers=self.n_decoder_layers,
            pre_norm=int(config.norm == "pre"),
            skips_norm=self.skips_norm,
            activation=ACTIVATIONS[config.activation],
            norm_constants=self._constants,
            src_words=self.words[0],
            tgt_words=self.words[1],
            src_positions=positions[0],
            tgt_positions=positions[1],
            rotary=keep(self._rotations(n, config.rope_base)),
            local_rotary=keep(self._rotations(n, self.local_base) if self.local_reach else None),
            local_reach=self.local_reach,
            global_every=self.global_every,
            src_bias=keep(biases[0]),
            tgt_bias=keep(biases[1]),
            bias_stride=4 * width,
            bias_centre=centre,
            src_norm=self.src_norm,
            tgt_norm=self.tgt_norm,
            peak_norm=self._screens[1][0],
            peak_error=self._screens[1][1],
            sum_norm=self._screens[0][0],
            sum_error=self._screens[0][1],
        )
        return SizedModel(model, n, kept, PreparedArgument(model))
