"""GPT, a causal Transformer language model (Radford et al. 2018, 2019).

Letters: B rows, T tokens of a row, D model width, V vocabulary, K beams, H heads, d head width, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.multihead import Mix
from attnkit.models.bert import STD, build_positions
from attnkit.models.kv_cache import DecodingState, GenericDecodingState
from attnkit.models.language_config import GptConfig
from attnkit.models.layers import EncoderLayer, KeysAndValues, PackedLayout, SelfAttentionContext, top_norm
from attnkit.models.linear import Dropout, LayerDropout, Linear, some_outputs, without_dropout


@dataclass
class PromptState:
    """Decoding state of prompts: the key-value cache and the token to read next."""

    cache: DecodingState | GenericDecodingState
    last: Tensor | None  #: (B, 1), last tokens of the prompts, until the first step has read them
    window: Tensor | None = None  #: (B, T), the tokens in the sliding window
    attention: Tensor | None = None  #: always None: a language model has no source

    def reorder_beams(self, parents: Tensor) -> PromptState:
        """Continue beam k of sentence b from its old beam parents[b, k]."""
        self.cache.reorder_beams(parents)
        return self

    def select_rows(self, sentences: Tensor) -> PromptState:
        """Keep only the given rows of the batch, in the given order."""
        self.cache.select_rows(sentences)
        if self.window is not None:
            self.window = self.window.index_select(0, sentences)
        return self


class Gpt(nn.Module):
    """GPT decoder from token ids to features; ``output`` predicts the next token.

    Embeddings are not scaled, as in GPT-2.
    """

    def __init__(self, config: GptConfig, vocab_size: int) -> None:
        super().__init__()
        # Scaled dot x softmax has a faster cache.
        self.fused, self.n_kept_heads, self.d_head = config.plain_attention, config.n_kept_heads, config.d_head
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.places = build_positions(config)
        self.dropout = Dropout(config.dropout)
        self.self_attention = SelfAttentionContext(config, causal=True)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.layer_dropout = LayerDropout(config.layer_dropout, config.n_layers)
        self.norm = top_norm(config)
        # No bias, as in GPT-2, so that weights convert to and from its checkpoints one to one.
        self.output = Linear(config.d_model, vocab_size, bias=False)
        nn.init.normal_(self.embedding.weight, std=STD)
        nn.init.normal_(self.output.weight, std=STD)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight

    def hidden(
        self, ids: Tensor, layout: PackedLayout, seen: list[Tensor] | None = None, layers: int | None = None
    ) -> Tensor:
        """Return the features (B, T, D) of ids (B, T), masked according to the layout.

        Each layer's attention weights (B, H, T, T) are appended to ``seen``. ``layers`` is the number of layers to run,
        0 for the embeddings; the final norm is applied only after all layers.
        """
        x = self.dropout(self._embed(ids, 0, ids.shape[1], layout.positions))  # (B, T, D)
        mix = self.self_attention(x, layout, seen)
        return self._run_layers(x, [mix] * (len(self.layers) if layers is None else layers))

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or only those of the given ids."""
        return some_outputs(self.output, hidden, ids)

    @torch.no_grad()
    def attention_weights(self, ids: Tensor, layout: PackedLayout) -> dict[str, Tensor]:
        """Return {"decoder": weights (B, L, H, T, T)} of all layers, without dropout."""
        seen: list[Tensor] = []
        with without_dropout(self):
            self.hidden(ids, layout, seen)
        return {"decoder": torch.stack(seen, dim=1)}  # (B, L, H, T, T)

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> PromptState:
        """Encode prompts (B, T) of equal length, T ≥ 1, and return the decoding state.

        The first step reads the last token of each prompt and ignores its input. Raises ``ValueError`` for padding.
        """
        if src_mask is not None and not bool(src_mask.all()):
            raise ValueError("prompts must have the same length")
        # The last token is left to the first step, which returns the first prediction.
        past, last = src[:, :-1], src[:, -1:]
        length = past.shape[1]
        x = self._embed(past, 0, length)
        kept: KeysAndValues = []
        if length:
            mix = self.self_attention(x, PackedLayout.unpacked(len(src)), kept=kept)
            self._run_layers(x, [mix] * len(self.layers))
        # A language model has no memory, so the cache of cross-attention is empty.
        none = x.new_zeros(2 * len(self.layers), len(src), self.n_kept_heads, 0, self.d_head)
        cache: DecodingState | GenericDecodingState
        if self.fused:
            cache = DecodingState(none, None, n_beams, length + max_length, record=False)
        else:
            heads = [layer.attention.heads for layer in self.layers if isinstance(layer, EncoderLayer)]
            cache = GenericDecodingState(heads, none, None, n_beams, length + max_length, record=False)
        if length:
            cache.begin([keys for keys, _ in kept], [values for _, values in kept])
        return PromptState(cache, last)

    def step(self, prev: Tensor, state: PromptState) -> tuple[Tensor, PromptState]:
        """Return features (B, K, D) after the tokens prev (B, K), and the new state."""
        # The first step reads the prompt's last token instead of the begin symbol.
        words, state.last = (prev, None) if state.last is None else (state.last, None)
        at = state.cache.n_steps
        x = self._embed(words, at, at + 1)
        features = self._run_layers(x, self.self_attention.step(x, state.cache))  # (B, K, D)
        state.cache.end_step()
        return features, state

    def _embed(self, ids: Tensor, start: int, stop: int, positions: Tensor | None = None) -> Tensor:
        words = F.embedding(ids, self.embedding.weight)
        x: Tensor = self.places["table"](words, start, stop, positions)
        return x

    def _run_layers(self, x: Tensor, mixes: list[Mix]) -> Tensor:
        """Run one layer per mix; apply the final norm only after all layers."""
        for i, (layer, mix) in enumerate(zip(self.layers, mixes, strict=False)):
            if self.layer_dropout.keeps(i):
                x = layer(x, mix)
        # With fewer mixes, return the features of an inner layer without the final norm.
        features: Tensor = x if len(mixes) < len(self.layers) else self.norm(x)
        return features


class SlidingWindowLM:
    """GPT decoding over a sliding window of at most ``window`` tokens, with one beam.

    When the text exceeds the window, its last ``window // 2`` tokens are encoded again and all earlier ones dropped.
    """

    def __init__(self, model: Gpt, window: int) -> None:
        """Wrap a model; ``window`` is the maximum context in tokens, at least 2."""
        self.model, self.window = model, window

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> PromptState:
        """Encode the last ``window`` tokens of prompts (B, T) of equal length.

        Raises:
            ValueError: ``n_beams`` is not 1, or there is padding.
        """
        if n_beams != 1:
            raise ValueError("a sliding window supports one beam per text only: repeat the text in several rows")
        return self._read(src[:, -self.window :], src_mask)

    def step(self, prev: Tensor, state: PromptState) -> tuple[Tensor, PromptState]:
        """Return features (B, 1, D) after the tokens prev (B, 1), and the new state."""
        if state.last is None and state.window is not None:
            state.window = torch.cat((state.window, prev), dim=1)
            # Positions are absolute, so cached keys cannot be shifted: the newer half is encoded again.
            if state.window.shape[1] > self.window:
                state = self._read(state.window[:, -(self.window // 2) :], None)
        return self.model.step(prev, state)

    def _read(self, words: Tensor, mask: Tensor | None) -> PromptState:
        """Encode the window (B, T); return a state with capacity for the remaining steps."""
        return replace(self.model.start(words, mask, 1, self.window - words.shape[1]), window=words)

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or only those of the given ids."""
        return self.model.head(hidden, ids)
