"""The encoder-decoder Transformer (Vaswani et al. 2017), post- or pre-norm, with six kinds of positions.

Letters: B batch, S source length, T target length, D model width, V vocabulary, K beams, H heads, L layers.
Knows no text and no search: ids in, features out.
"""

from __future__ import annotations

import math
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.kernel import Scope, scaled_dot
from attnkit.models.attention.multihead import Mix, initialise_parts, split_heads
from attnkit.models.cache import DecodingState
from attnkit.models.config import TransformerConfig
from attnkit.models.dropout import Dropout
from attnkit.models.layers import DecoderLayer, EncoderLayer
from attnkit.models.linear import Linear
from attnkit.models.positions import AlibiBias, LearnedPositions, RelativeBias, Rotation, distances, sinusoids


class Embedding(nn.Module):
    """Word vectors times √D, plus positions where the model adds them, with dropout."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, config.d_model)
        nn.init.normal_(self.words.weight, std=config.d_model**-0.5)
        self.scale = math.sqrt(config.d_model)
        self.sinusoidal = config.positions == "sinusoidal"
        learned = config.positions == "learned"
        self.positions = LearnedPositions(config.max_length, config.d_model) if learned else None
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Return (B, T, D) for ids (B, T) at positions start..start + T."""
        x: Tensor = self.dropout(self.place(ids, start, start + ids.shape[1]))
        return x

    def place(self, ids: Tensor, start: int, stop: int) -> Tensor:
        """Return (B, K, D) for ids (B, K) at positions start..stop; one position serves all K beams."""
        x = F.embedding(ids, self.words.weight) * self.scale
        if self.sinusoidal:
            x = x + sinusoids(start, stop, like=x)
        elif self.positions is not None:
            x = x + self.positions(start, stop)
        return x


class Own(nn.Module):
    """How the positions of one sequence see each other, shared by the layers of a stack: bias, rotation, causality."""

    def __init__(self, config: TransformerConfig, causal: bool) -> None:
        super().__init__()
        self.causal, self.dropout = causal, config.attention_dropout
        self.rotary = config.positions == "rotary"
        self.d_head = config.d_model // config.n_heads
        self.bias: AlibiBias | RelativeBias | None = None
        if config.positions == "alibi":
            self.bias = AlibiBias(config.n_heads)
        elif config.positions == "relative":
            self.bias = RelativeBias(config.n_heads, both_ways=not causal)

    def forward(self, x: Tensor, mask: Tensor | None) -> Mix:
        """Return the mix of one pass over x (B, T, D) whose keys mask (B, T) allows."""
        bias = None if self.bias is None else self.bias(distances(x.shape[1], x.device))
        scope = Scope(None if mask is None else mask[:, None, None, :], self.causal, bias)
        mix = partial(scaled_dot, scope=scope, dropout=self.dropout if self.training else 0.0)
        if not self.rotary:
            return mix
        turn = self.rotation(0, x.shape[1], x)
        return lambda query, keys, values: mix(turn(query), turn(keys), values)

    def rotation(self, start: int, stop: int, x: Tensor) -> Rotation:
        """Return the rotation of positions start..stop for heads of x (..., D)."""
        return Rotation(start, stop, x[..., : self.d_head])

    def step(self, x: Tensor, state: DecodingState) -> list[Mix]:
        """Return each layer's mix for one step over x (B, K, D), and open the state's slots for it."""
        distance = state.open(x.shape[1])
        if self.bias is not None:
            state.mask = state.mask + self.bias(distance)  # (B, H, K, C)
        mixes: list[Mix] = [partial(state.own, layer) for layer in range(len(state.memory) // 2)]
        if not self.rotary:
            return mixes
        turn = self.rotation(state.n_steps, state.n_steps + 1, x)

        def turned(mix: Mix, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            return mix(turn(query), turn(keys), values)

        return [partial(turned, mix) for mix in mixes]


class Encoder(nn.Module):
    """Source ids to memory."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.embedding = Embedding(config, vocab_size)
        self.own = Own(config, causal=False)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """Return the memory (B, S, D)."""
        x: Tensor = self.embedding(src)
        own = self.own(x, src_mask)
        for layer in self.layers:
            x = layer(x, own)
        memory: Tensor = self.norm(x)
        return memory


class Decoder(nn.Module):
    """Target ids and memory to features."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.n_heads, self.dropout = config.n_heads, config.attention_dropout
        self.embedding = Embedding(config, vocab_size)
        self.own = Own(config, causal=True)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
        # Keys and values of all layers in one product: rows 2l·D.. are layer l's keys, (2l+1)·D.. its values.
        self.memory = Linear(config.d_model, 2 * config.decoder_layers * config.d_model)
        initialise_parts(self.memory)

    def project(self, memory: Tensor) -> Tensor:
        """Return the memory's keys and values for all layers, (2 L, B, H, S, d), a view."""
        return split_heads(self.memory(memory), 2 * len(self.layers), self.n_heads)

    def forward(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        """Return features (B, T, D). Padding stands at the end of a target, so causality alone hides it."""
        x: Tensor = self.embedding(tgt_in)
        own = self.own(x, None)
        scope = Scope(None if src_mask is None else src_mask[:, None, None, :])
        mix = partial(scaled_dot, scope=scope, dropout=self.dropout if self.training else 0.0)
        parts = self.project(memory).unbind(0)
        for i, layer in enumerate(self.layers):
            x = layer(x, own, partial(mix, keys=parts[2 * i], values=parts[2 * i + 1]))
        features: Tensor = self.norm(x)
        return features

    def step(self, prev: Tensor, state: DecodingState) -> Tensor:
        """Return features (B, K, D) after the words prev (B, K)."""
        x = self.embedding.place(prev, state.n_steps, state.n_steps + 1)
        for i, (layer, own) in enumerate(zip(self.layers, self.own.step(x, state), strict=True)):
            x = layer(x, own, partial(state.cross, i))
        state.close()
        features: Tensor = self.norm(x)
        return features


class Transformer(nn.Module):
    """A translation model (see models.translation for the contract of its methods)."""

    def __init__(self, config: TransformerConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__()
        if config.tied == "all" and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"tied: all needs one joint vocabulary, not {src_vocab_size} source and {tgt_vocab_size} target words"
            )
        self.encoder = Encoder(config, src_vocab_size)
        self.decoder = Decoder(config, tgt_vocab_size)
        self.output = Linear(config.d_model, tgt_vocab_size)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        if config.tied != "none":
            self.output.weight = self.decoder.embedding.words.weight
        if config.tied == "all":
            self.encoder.embedding.words.weight = self.decoder.embedding.words.weight

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return features (B, T, D) of the training pass; src_mask (B, S) is True at real tokens, None if all are."""
        features: Tensor = self.decoder(tgt_in, self.encoder(src, src_mask), src_mask)
        return features

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V), or only the columns of the given words."""
        if ids is not None:
            return F.linear(hidden, self.output.weight[ids], self.output.bias[ids])
        logits: Tensor = self.output(hidden)
        return logits

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> DecodingState:
        """Encode the sources once and project their keys and values for all layers."""
        if src_mask is not None and bool(src_mask.all()):
            src_mask = None
        memory = self.decoder.project(self.encoder(src, src_mask))
        return DecodingState(memory, src_mask, n_beams, max_length, record)

    def step(self, prev: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """Return features (B, K, D) after the words prev (B, K), and the state that has taken them in."""
        return self.decoder.step(prev, state), state
