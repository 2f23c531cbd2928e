"""GPT: a Transformer decoder that predicts the next token (Radford et al. 2018, 2019), with a sliding window.

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
from attnkit.models.linear import Dropout, Linear, some_outputs, without_dropout


@dataclass
class PromptState:
    """Decoding state of prompts: the key-value cache and the token to read next."""

    cache: DecodingState | GenericDecodingState
    last: Tensor | None  #: (B, 1), the prompts' last words, until the first step has read them
    window: Tensor | None = None  #: (B, T), the tokens in the sliding window
    attention: Tensor | None = None  #: always None: no source

    def reorder_beams(self, parents: Tensor) -> PromptState:
        """Let beam k of sentence b continue the old beam parents[b, k]."""
        self.cache.reorder_beams(parents)
        return self

    def select_rows(self, sentences: Tensor) -> PromptState:
        """Keep only these rows of the batch, in this order."""
        self.cache.select_rows(sentences)
        if self.window is not None:
            self.window = self.window.index_select(0, sentences)
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
        self.places = build_positions(config)
        self.dropout = Dropout(config.dropout)
        self.self_attention = SelfAttentionContext(config, causal=True)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.norm = top_norm(config)
        # No bias, as in GPT-2: weights convert to and from its checkpoints one to one.
        self.output = Linear(config.d_model, vocab_size, bias=False)
        nn.init.normal_(self.embedding.weight, std=STD)
        nn.init.normal_(self.output.weight, std=STD)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight

    def hidden(
        self, ids: Tensor, layout: PackedLayout, seen: list[Tensor] | None = None, layers: int | None = None
    ) -> Tensor:
        """Return the features (B, T, D) of ids (B, T), which may see what the layout says.

        Each layer's attention weights (B, H, T, T) are added to seen. Features after so many layers alone, 0 being the
        embeddings, lack the last norm.
        """
        x = self.dropout(self._embed(ids, 0, ids.shape[1], layout.positions))  # (B, T, D)
        mix = self.self_attention(x, layout, seen)
        return self._run_layers(x, [mix] * (len(self.layers) if layers is None else layers))

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of features (..., D), or only the columns of the given words."""
        return some_outputs(self.output, hidden, ids)

    @torch.no_grad()
    def attention_weights(self, ids: Tensor, layout: PackedLayout) -> dict[str, Tensor]:
        """Return the weights of every layer, (B, L, H, T, T), under the name decoder. Dropout is off."""
        seen: list[Tensor] = []
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
            raise ValueError("prompts must have the same length")
        # The last token is read by the first step, which gives the first prediction.
        past, last = src[:, :-1], src[:, -1:]
        length = past.shape[1]
        x = self._embed(past, 0, length)
        kept: KeysAndValues = []
        if length:
            mix = self.self_attention(x, PackedLayout.unpacked(len(src)), kept=kept)
            self._run_layers(x, [mix] * len(self.layers))
        # A language model has no memory: cross-attention's cache is empty.
        none = x.new_zeros(2 * len(self.layers), len(src), self.n_heads, 0, x.shape[-1] // self.n_heads)
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
        """Return features (B, K, D) after the words prev (B, K), and the state that has taken them in."""
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
        """Return the features after as many layers as there are mixes; those of the last one are normed."""
        for layer, mix in zip(self.layers, mixes, strict=False):
            x = layer(x, mix)
        # Fewer mixes: an inner layer's features, not normed.
        features: Tensor = x if len(mixes) < len(self.layers) else self.norm(x)
        return features


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
    ) -> PromptState:
        """Encode the last ``window`` tokens of equally long prompts (B, T); the first step reads the final one.

        Raises:
            ValueError: more than one beam is requested, or there is padding.
        """
        if n_beams != 1:
            raise ValueError("a sliding window takes one beam per text: repeat the text in several rows")
        return self._read(src[:, -self.window :], src_mask)

    def step(self, prev: Tensor, state: PromptState) -> tuple[Tensor, PromptState]:
        """Return features (B, 1, D) after the words prev (B, 1), and the state that has taken them in."""
        if state.last is None and state.window is not None:
            state.window = torch.cat((state.window, prev), dim=1)
            # Positions are absolute, so cached keys cannot be shifted: the newer half is read again.
            if state.window.shape[1] > self.window:
                state = self._read(state.window[:, -(self.window // 2) :], None)
        return self.model.step(prev, state)

    def _read(self, words: Tensor, mask: Tensor | None) -> PromptState:
        """Encode the words (B, T) in the window; return a state with capacity for the remaining steps."""
        return replace(self.model.start(words, mask, 1, self.window - words.shape[1]), window=words)

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of features (..., D)."""
        return self.model.head(hidden, ids)
