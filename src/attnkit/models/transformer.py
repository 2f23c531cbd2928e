"""Encoder-decoder Transformer (Vaswani et al. 2017), post-norm or pre-norm.

Letters: B batch, S source length, T target length, D model width, V vocabulary, K beams, H heads, d head width,
L layers.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.attend import AttentionScope
from attnkit.models.attention.multihead import HeadGroups, attend_within, initialise_parts, split_heads
from attnkit.models.attention.patterns import make_pattern
from attnkit.models.config import DecoderStart, TransformerConfig
from attnkit.models.kv_cache import DecodingState, GenericDecodingState
from attnkit.models.layer_config import ties_sides
from attnkit.models.layers import DecoderLayer, EncoderLayer, PackedLayout, SelfAttentionContext, build_norm, top_norm
from attnkit.models.linear import Dropout, LayerDropout, Linear, WordDropout, init_xavier, without_dropout
from attnkit.models.positions import PositionEmbedding
from attnkit.models.translation import TranslationModel
from attnkit.protocols import BOS_ID, EOS_ID

TransformerState = DecodingState | GenericDecodingState
Seen = list[Tensor]  #: attention weights (B, H, T, S) per layer
MASKED = -1e9  #: output bias of words without a logit, whose probability is then 0


class Embedding(nn.Module):
    """Word vectors, usually times √D, plus positions, with optional norm and dropout."""

    def __init__(
        self, config: TransformerConfig, vocab_size: int, normed: bool = False, start: DecoderStart = "bos"
    ) -> None:
        """Build the embeddings of a side; ``start`` tells what BOS becomes in a decoder."""
        super().__init__()
        self.words = nn.Embedding(vocab_size, config.d_model)
        nn.init.normal_(self.words.weight, std=config.embedding_deviation)
        self.start = start
        if start == "zero":
            with torch.no_grad():
                self.words.weight[:EOS_ID] = 0  # padding and BOS
        # Embeddings have unit variance: weights of standard deviation 1/√D, or of 1 (T5).
        self.scale = math.sqrt(config.d_model) if config.scaled_input else 1.0
        self.word_dropout = WordDropout(config.word_dropout)
        self.positions = PositionEmbedding(config.positions, config.max_length, config.d_model, config.position_offset)
        self.norm = build_norm(config) if normed else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Return embeddings (B, T, D) of ids (B, T) at positions 0, 1, ..."""
        return self.dropout(self.norm(self.embed_at(ids, 0, ids.shape[1])))

    def embed_at(self, ids: Tensor, start: int, stop: int) -> Tensor:
        """Embed ids (B, K) at positions start..stop, (B, K, D); beams share one position."""
        if self.start == "eos":
            ids = torch.where(ids == BOS_ID, EOS_ID, ids)
        # A row of padding gets no gradient, so that the vector of BOS stays zero.
        fixed = BOS_ID if self.start == "zero" else None
        x = F.embedding(ids, self.words.weight, fixed)  # (B, T, D)
        if self.scale != 1.0:
            x = x * self.scale  # times √D: Vaswani et al. 2017, 3.4
        return self.positions(self.word_dropout(x), start, stop)


def build_context(config: TransformerConfig, causal: bool) -> SelfAttentionContext:
    """Build the self-attention settings of encoder or decoder."""
    if config.pattern == "none":
        return SelfAttentionContext(config, causal)
    pattern = make_pattern(config.pattern, config.pattern_size, causal, config.pattern_globals)
    return SelfAttentionContext(config, causal, pattern)


class Encoder(nn.Module):
    """Transformer encoder from source ids to memory."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.embedding = Embedding(config, vocab_size, config.embedding_norm)
        self.own = build_context(config, causal=False)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.layer_dropout = LayerDropout(config.layer_dropout, config.encoder_layers)
        self.norm = top_norm(config)
        self.dropout = Dropout(config.stack_dropout)

    def forward(self, src: Tensor, src_mask: Tensor | None, seen: Seen | None = None) -> Tensor:
        """Return the memory (B, S, D) of src (B, S)."""
        x: Tensor = self.embedding(src)  # (B, S, D)
        n_unmixed, mask = (len(src), None) if src_mask is None else (0, src_mask[:, None, None, :])  # (B, 1, 1, S)
        own = self.own(x, PackedLayout(len(src), n_unmixed, mask), seen)  # one mix for all layers
        for i, layer in enumerate(self.layers):
            if self.layer_dropout.keeps(i):
                x = layer(x, own)
        memory: Tensor = self.dropout(self.norm(x))
        return memory


class Decoder(nn.Module):
    """Transformer decoder from target ids and memory to features."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.n_heads, self.attention_dropout = config.n_heads, config.attention_dropout
        self.embedding = Embedding(config, vocab_size, config.target_embedding_norm, config.decoder_start)
        self.own = build_context(config, causal=True)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.layer_dropout = LayerDropout(config.layer_dropout, config.decoder_layers)
        self.norm = top_norm(config)
        self.dropout = Dropout(config.stack_dropout)
        self.divisor = math.sqrt(config.d_model) if config.scaled_output else 1.0
        # Keys and values of all layers in one product: rows 2l·A.. are layer l's keys, (2l+1)·A.. its values, with A
        # the width of all heads, usually D.
        inner, n_parts = config.n_heads * config.d_head, 2 * config.decoder_layers
        self.memory = Linear(config.d_model, n_parts * inner, bias=config.bias)
        initialise_parts(self.memory, [inner] * n_parts)

    def project(self, memory: Tensor) -> Tensor:
        """Return keys and values of the memory for all layers, (2 L, B, H, S, d), a view."""
        return split_heads(self.memory(memory), 2 * len(self.layers), self.n_heads)

    def forward(
        self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None, seen: tuple[Seen, Seen] | None = None
    ) -> Tensor:
        """Return features (B, T, D); causality alone masks padding, which is on the right.

        The weights of self-attention and of cross-attention are appended to the two lists of ``seen``.
        """
        own_seen, cross_seen = seen or (None, None)
        x: Tensor = self.embedding(tgt_in)  # (B, T, D)
        own = self.own(x, PackedLayout.unpacked(len(x)), own_seen)
        scope = AttentionScope(None if src_mask is None else src_mask[:, None, None, :])  # (B, 1, 1, S)
        mix = attend_within(scope, self.attention_dropout if self.training else 0.0, cross_seen)
        parts = self.project(memory).unbind(0)  # 2 L tensors (B, H, S, d)
        for i, layer in enumerate(self.layers):
            if self.layer_dropout.keeps(i):
                x = layer(x, own, partial(mix, keys=parts[2 * i], values=parts[2 * i + 1]))
        return self._features(x)

    def _features(self, x: Tensor) -> Tensor:
        """Return what the output layer maps, (B, T, D), of the last layer's output."""
        features: Tensor = self.dropout(self.norm(x))
        return features if self.divisor == 1.0 else features * (1 / self.divisor)

    def step(self, prev: Tensor, state: TransformerState) -> Tensor:
        """Return features (B, K, D) after the tokens prev (B, K)."""
        x = self.embedding.norm(self.embedding.embed_at(prev, state.n_steps, state.n_steps + 1))  # (B, K, D)
        for i, (layer, own) in enumerate(zip(self.layers, self.own.step(x, state), strict=True)):
            x = layer(x, own, partial(state.cross_attend, i))
        state.end_step()
        return self._features(x)


class Transformer(TranslationModel):
    """Transformer translation model."""

    def __init__(self, config: TransformerConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__()
        if ties_sides(config.tie_embeddings) and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"tie_embeddings={config.tie_embeddings} requires a joint vocabulary, "
                f"not two with {src_vocab_size} and {tgt_vocab_size} entries"
            )
        self.score_scale = config.score_scale
        self.encoder = Encoder(config, src_vocab_size)
        self.decoder = Decoder(config, tgt_vocab_size)
        self.output = Linear(config.d_model, tgt_vocab_size)
        init_xavier(self.output)
        if config.tie_embeddings in ("target", "all"):
            self.output.weight = self.decoder.embedding.words.weight
        if ties_sides(config.tie_embeddings):
            self.encoder.embedding.words.weight = self.decoder.embedding.words.weight
        if not config.output_bias:  # a constant, so that all models have one: padding has no logit
            self.first_target = BOS_ID
            self.output.bias.requires_grad_(False)
            with torch.no_grad():
                self.output.bias[:BOS_ID] = MASKED
        if config.decoder_start == "zero":
            self.first_target = EOS_ID
            with torch.no_grad():
                self.output.weight[:EOS_ID], self.output.bias[:EOS_ID] = 0, MASKED

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return decoder features (B, T, D); ``src_mask`` (B, S) is False at padding."""
        # Teacher forcing: all target positions at once.
        features: Tensor = self.decoder(tgt_in, self.encoder(src, src_mask), src_mask)
        return features

    @torch.no_grad()
    def attention_weights(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Return encoder, decoder and cross weights, (B, L, H, T, S) each; no dropout."""
        own: Seen = []
        decoder: tuple[Seen, Seen] = ([], [])
        with without_dropout(self):
            self.decoder(tgt_in, self.encoder(src, src_mask, own), src_mask, decoder)
        return {
            name: torch.stack(weights, dim=1)
            for name, weights in zip(("encoder", "decoder", "cross"), (own, *decoder), strict=True)
        }

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> TransformerState:
        """Encode the sources once and return the decoding state."""
        # Without a mask the fused kernel takes its faster path; the check waits for the device once per batch.
        if src_mask is not None and bool(src_mask.all()):
            src_mask = None
        memory = self.decoder.project(self.encoder(src, src_mask))  # (2 L, B, H, S, d), per sentence, not per beam
        if self.score_scale is not None:
            # Dot, scaled or not, x softmax has its own cache, which needs fewer operations.
            return DecodingState(memory, src_mask, n_beams, max_length, record, self.score_scale)
        # Any other pair of functions computes its weights from the definition.
        heads: list[HeadGroups] = [layer.cross.heads for layer in self.decoder.layers]  # type: ignore[misc,union-attr]
        return GenericDecodingState(heads, memory, src_mask, n_beams, max_length, record)

    def step(self, prev: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Return features (B, K, D) after the tokens prev (B, K), and the new state."""
        return self.decoder.step(prev, state), state
