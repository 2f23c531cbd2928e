"""GPT: a Transformer decoder that predicts the next token (Radford et al. 2018, 2019), with a sliding window."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.multihead import HeadGroups, Mix
from attnkit.models.bert import STD
from attnkit.models.kv_cache import BeamSlots, DecodingState, GenericDecodingState
from attnkit.models.language_config import GptConfig
from attnkit.models.layers import EncoderLayer
from attnkit.models.linear import Dropout, Linear, some_outputs, without_dropout
from attnkit.models.packing import AttentionWeights, PackedLayout, PositionEmbedding, SelfAttentionContext


@dataclass
class PromptState:
    """Decoding state of prompts: the key-value cache and the token to read next."""

    cache: DecodingState | GenericDecodingState
    last: Tensor | None
    """(B, 1), the prompts' last words, until the first step has read them."""

    @property
    def attention(self) -> Tensor | None:
        """Return None: a language model has no source."""
        return None

    def reorder_beams(self, parents: Tensor) -> PromptState:
        """Let beam k of sentence b continue the old beam parents[b, k]."""
        self.cache.reorder_beams(parents)
        return self

    def select_rows(self, sentences: Tensor) -> PromptState:
        """Keep only these rows of the batch, in this order."""
        self.cache.select_rows(sentences)
        return self


class Gpt(nn.Module):
    """Ids in, features of every token out, each of its left context and itself; ``output`` gives the next word.

    Word vectors are not scaled, as in GPT-2.
    """

    def __init__(self, config: GptConfig, vocab_size: int) -> None:
        super().__init__()
        # Plain attention has a faster cache.
        self.fused, self.n_heads = config.plain_attention, config.n_heads
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.places = PositionEmbedding(config)
        self.dropout = Dropout(config.dropout)
        self.sight = SelfAttentionContext(config, causal=True)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        # Post-norm layers end in a norm of their own.
        pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps) if pre else nn.Identity()
        # No bias, as in GPT-2: weights convert to and from its checkpoints one to one.
        self.output = Linear(config.d_model, vocab_size, bias=False)
        nn.init.normal_(self.embedding.weight, std=STD)
        nn.init.normal_(self.output.weight, std=STD)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight

    def word_vectors(self) -> list[Tensor]:
        """Return the embeddings, (V, D)."""
        return [self.embedding.weight]

    def hidden(
        self, ids: Tensor, layout: PackedLayout, seen: AttentionWeights | None = None, layers: int | None = None
    ) -> Tensor:
        """Return the features (B, T, D) of ids (B, T).

        Args:
            ids: the tokens.
            layout: what they may see.
            seen: each layer's attention weights (B, H, T, T) are added to it.
            layers: stop after so many layers, 0 gives the embeddings; the last norm is left out then.
        """
        # (B, T, D)
        x: Tensor = self.dropout(self.places(F.embedding(ids, self.embedding.weight), layout.positions))
        return self._through(x, [self.sight(x, layout, seen)] * (len(self.layers) if layers is None else layers))

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of features (..., D), or only the columns of the given words."""
        if ids is not None:
            return some_outputs(self.output, hidden, ids)
        logits: Tensor = self.output(hidden)
        return logits

    @torch.no_grad()
    def attention_weights(self, ids: Tensor, layout: PackedLayout) -> dict[str, Tensor]:
        """Return the weights of every layer, (B, L, H, T, T), under the name decoder. Dropout is off."""
        seen: AttentionWeights = []
        with without_dropout(self):
            self.hidden(ids, layout, seen)
        return {"decoder": torch.stack(seen, dim=1)}  # (B, L, H, T, T)

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> PromptState:
        """Read prompts (B, T) of one length, at least one token each, and return the state that continues from them.

        The first step reads the prompts' last tokens, whatever it is given. ValueError where there is padding.
        """
        if src_mask is not None and not bool(src_mask.all()):
            raise ValueError("prompts of different lengths do not go together")
        # The last token is read by the first step, which gives the first prediction.
        past, last = src[:, :-1], src[:, -1:]
        length = past.shape[1]
        # Heads, keys and values (B, H, T, d) of each layer.
        kept: list[tuple[HeadGroups, Tensor, Tensor]] = []
        x = self.places(F.embedding(past, self.embedding.weight), None)
        mix = self.sight(x, PackedLayout.unpacked(len(src)))
        if length:
            self._through(x, [self._keeping(mix, kept)] * len(self.layers))
        # Head width d.
        width = x.shape[-1] // self.n_heads
        # A language model has no memory: cross-attention's cache is empty.
        none = x.new_zeros(2 * len(self.layers), len(src), self.n_heads, 0, width)
        cache: DecodingState | GenericDecodingState
        if self.fused:
            cache = DecodingState(none, None, n_beams, length + max_length, record=False)
        else:
            beams = BeamSlots(len(src), n_beams, length + max_length, torch.float32, x.device)
            heads = [layer.attention.heads for layer in self.layers if isinstance(layer, EncoderLayer)]
            cache = GenericDecodingState(heads, none, None, beams, record=False)
        if length:
            cache.begin([keys for _, keys, _ in kept], [values for _, _, values in kept])
        return PromptState(cache, last)

    def step(self, prev: Tensor, state: PromptState) -> tuple[Tensor, PromptState]:
        """Return features (B, K, D) after the words prev (B, K), and the state that has taken them in."""
        # The first step reads the prompt's last token instead of the begin symbol.
        words, state.last = (prev, None) if state.last is None else (state.last, None)
        cache = state.cache
        # Position of this token.
        at = cache.n_steps
        x = self.places.at(F.embedding(words, self.embedding.weight), at)
        # (1, C): key step minus query step, for C cache slots.
        distance = cache.begin_step(x.shape[1])
        if self.sight.bias is not None:
            cache.add_bias(self.sight.bias(distance))
        mixes: list[Mix] = [partial(cache.self_attend, layer) for layer in range(cache.n_layers)]
        if self.sight.rotary:
            turn = self.sight.rotation(at, at + 1, x)
            mixes = [
                lambda heads, query, keys, values, mix=mix: mix(heads, turn(query), turn(keys), values) for mix in mixes
            ]
        features = self._through(x, mixes)  # (B, K, D)
        cache.end_step()
        return features, state

    def _through(self, x: Tensor, mixes: list[Mix]) -> Tensor:
        """Return the features after as many layers as there are mixes; those of the last one are normed."""
        for layer, mix in zip(self.layers, mixes, strict=False):
            x = layer(x, mix)
        # Fewer mixes: an inner layer's features, not normed.
        if len(mixes) < len(self.layers):
            return x
        features: Tensor = self.norm(x)
        return features

    def _keeping(self, mix: Mix, kept: list[tuple[HeadGroups, Tensor, Tensor]]) -> Mix:
        """Return a mix that also keeps each layer's keys, turned where positions turn them, and values."""

        def kept_mix(heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            # Keys are cached turned: later steps turn their queries only.
            turn = self.sight.rotation(0, keys.shape[-2], keys) if self.sight.rotary else None
            kept.append((heads, keys if turn is None else turn(keys), values))
            return mix(heads, query, keys, values)

        return kept_mix


@dataclass
class WindowState:
    """What the model has read, and the words that it has read it in."""

    inner: PromptState
    words: Tensor
    """(B, T) what is in the window."""

    @property
    def attention(self) -> Tensor | None:
        """Return None: a language model has no source."""
        return None

    def reorder_beams(self, parents: Tensor) -> WindowState:
        """Stay: there is one beam a text."""
        return self

    def select_rows(self, sentences: Tensor) -> WindowState:
        """Keep only these rows of the batch, in this order."""
        self.inner, self.words = self.inner.select_rows(sentences), self.words.index_select(0, sentences)
        return self


class SlidingWindowLM:
    """A GPT that sees at most ``window`` tokens, whatever becomes of the text; for searches of one beam a text.

    The n-th word is predicted from those that a naive reader has before it who, whenever more than ``window`` tokens
    are before him, forgets all but the last ``window // 2``.
    """

    def __init__(self, model: Gpt, window: int) -> None:
        """Take the model, and the most tokens that it is to see at once, 2 or more."""
        self.model, self.window = model, window

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> WindowState:
        """Read the last ``window`` tokens of prompts (B, T) of one length; the first step reads the very last.

        Raises:
            ValueError: more beams than one are asked for, or there is padding.
        """
        if n_beams != 1:
            raise ValueError("a sliding window takes one beam per text: repeat the text in several rows")
        # (B, at most window)
        words = src[:, -self.window :]
        # Room for as many steps as the window has left.
        return WindowState(self.model.start(words, src_mask, 1, self.window - words.shape[1]), words)

    def step(self, prev: Tensor, state: WindowState) -> tuple[Tensor, WindowState]:
        """Return features (B, 1, D) after the words prev (B, 1), and the state that has taken them in."""
        if state.inner.last is None:
            state.words = torch.cat((state.words, prev), dim=1)
            # Positions are absolute, so cached keys cannot be shifted: the newer half is read again.
            if state.words.shape[1] > self.window:
                state.words = state.words[:, -(self.window // 2) :]
                state.inner = self.model.start(state.words, None, 1, self.window - state.words.shape[1])
        hidden, state.inner = self.model.step(prev, state.inner)
        return hidden, state

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of features (..., D)."""
        return self.model.head(hidden, ids)
