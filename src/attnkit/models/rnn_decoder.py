"""The recurrent decoder: layers of one cell that look at a source sentence, or are given its summary.

Three ways to use the source, after the configuration's ``alignment``, ``query`` and ``input_feeding``:

- none: the summary c (the encoder's final state) enters every step: s_t = f(s_{t-1}, [y_{t-1}; c]);
- previous (Bahdanau et al. 2015): c_t = attend(s_{t-1}), then s_t = f(s_{t-1}, [y_{t-1}; c_t]);
- current (Luong et al. 2015): s_t = f(s_{t-1}, y_{t-1}), then c_t = attend(s_t); with input feeding the features of
  step t - 1 enter beside y_{t-1}.

``concatenate`` changes what enters: without it the first two leave c and c_t out of the input, with it the third joins
the summary c to it. Features are tanh(W [y_{t-1}; s_t; c_t]) for the first two, Luong's attentional vector
tanh(W [s_t; c_t]) for the third, tanh(W [y_{t-1}; s_t]) where the source is known from the decoder's start alone. Where
no step waits for the one before it (none, and current without feeding) all T steps run in one call.

Letters: B batch, K beam (1 in training), T target length, S source length, D model width, d width of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnkit.models.attention.alignment import make_alignment
from attnkit.models.attention.attend import attend_prepared
from attnkit.models.attention.distribution import Distribution, make_distribution, softmax
from attnkit.models.config import RnnConfig
from attnkit.models.dropout import Dropout
from attnkit.models.linear import Linear
from attnkit.models.recurrent import STEPS, CellState, make_layer, run_layer, weights_of


@dataclass(frozen=True)
class EncodedSource:
    """What the decoder sees of the source sentences, computed once per sentence."""

    values: Tensor
    """(B, 1, S, d): the encoder's outputs, the 1 being the one head."""
    keys: Tensor
    """What the alignment prepared from the values."""
    mask: Tensor | None
    """(B, 1, 1, S) bool, True = a real word."""
    summary: Tensor
    """(B, 1, d): the last encoder layer's final h."""

    def select_rows(self, sentences: Tensor) -> EncodedSource:
        """Return the source of some of the sentences."""
        mask = None if self.mask is None else self.mask[sentences]
        return EncodedSource(self.values[sentences], self.keys[sentences], mask, self.summary[sentences])


@dataclass(frozen=True)
class DecoderCarry:
    """What passes from step to step, per beam."""

    layers: tuple[CellState, ...]
    """One state a layer, its tensors (B, K, d)."""
    fed: Tensor | None
    """(B, K, D): the features of the last step, where input feeding is on."""

    def map(self, function: Callable[[Tensor], Tensor]) -> DecoderCarry:
        """Return the memory with the function applied to each of its tensors."""
        layers = tuple(tuple(function(part) for part in state) for state in self.layers)
        return DecoderCarry(layers, None if self.fed is None else function(self.fed))


class RecurrentDecoder(nn.Module):
    """Embedded target words and a source in, features before the output layer out."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        d_model, d_hidden = config.d_model, config.d_hidden
        self.d_model = d_model
        self.step_cell = STEPS[config.cell]
        self.feeds = config.input_feeding
        self.looks_first = config.has_attention and config.attention_query == "previous"
        self.looks_last = config.has_attention and config.attention_query == "current"
        self.gives_context = config.gives_context
        self.blind = not config.has_attention and not config.gives_context
        self.d_given = [d_hidden] * self.gives_context + [d_model] * self.feeds
        widths = [d_model + sum(self.d_given)] + [d_hidden] * (config.decoder_layers - 1)
        self.layers = nn.ModuleList(make_layer(config.cell, width, d_hidden) for width in widths)
        self.align = None
        self.distribute: Distribution = softmax
        if config.alignment != "none":
            self.align = make_alignment(config.alignment, d_hidden, d_hidden, config.attention_options)
            self.distribute = make_distribution(config.distribution, d_hidden, config.attention_options)
        # Widths of [s; c; y], each left out where the readout does not see it.
        d_read = d_hidden + (0 if self.blind else d_hidden) + (0 if self.looks_last else d_model)
        self.readout = Linear(d_read, d_model)
        nn.init.xavier_uniform_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)
        self.dropout = Dropout(config.dropout)

    def prepare(self, outputs: Tensor, mask: Tensor | None, summary: Tensor) -> EncodedSource:
        """Return the source for encoder outputs (B, S, d), their mask (B, S) and a summary (B, d)."""
        values = outputs.unsqueeze(1)  # (B, 1, S, d): attention expects a head dimension
        keys = values if self.align is None else self.align.prepare(values)
        return EncodedSource(values, keys, None if mask is None else mask[:, None, None, :], summary.unsqueeze(1))

    def begin(self, layers: Sequence[CellState]) -> DecoderCarry:
        """Return the memory before the first step, for the layers' first states (B, d)."""
        # (B, 1, d): one beam until reordered.
        states = tuple(tuple(part.unsqueeze(1) for part in state) for state in layers)
        h = states[0][0]
        return DecoderCarry(states, h.new_zeros(h.shape[0], 1, self.d_model) if self.feeds else None)

    def forward(self, words: Tensor, source: EncodedSource, layers: Sequence[CellState]) -> Tensor:
        """Return features (B, T, D) of all steps, for embedded words (B, T, D) and the layers' first states (B, d)."""
        if self.looks_first or self.feeds:
            return self._unroll(words, source, self.begin(layers))
        summary = source.summary.expand(-1, words.shape[1], -1)  # (B, T, d)
        hidden = torch.cat([words, summary], dim=-1) if self.gives_context else words  # (B, T, D + d) or (B, T, D)
        for index, (layer, state) in enumerate(zip(self.layers, layers, strict=True)):
            assert isinstance(layer, nn.RNNBase)
            hidden, _ = run_layer(layer, self.dropout(hidden) if index else hidden, state)
        context = self._attend(hidden, source)[0] if self.looks_last else summary
        return self._read(words, hidden, context)

    def step(
        self, words: Tensor, source: EncodedSource, memory: DecoderCarry
    ) -> tuple[Tensor, DecoderCarry, Tensor | None]:
        """Return features (B, K, D), the memory after them and attention weights (B, K, S), for words (B, K, D)."""
        gates, given_weights = self._share_of_words(words)
        top, context, memory, weights = self._advance(gates, given_weights, source, memory)
        features = self._read(words, top, context)
        return features, replace(memory, fed=features if self.feeds else None), weights

    def _unroll(self, words: Tensor, source: EncodedSource, memory: DecoderCarry) -> Tensor:
        """Return features (B, T, D) step by step; what no step waits for is computed before or after the loop."""
        # W [y; c; f] is a sum of products: the tokens' part of all steps is one product outside the loop.
        gates, given_weights = self._share_of_words(words)
        tops, contexts, features = [], [], []
        for gate in torch.split(gates, 1, dim=1):  # each (B, 1, G · d)
            top, context, memory, _ = self._advance(gate, given_weights, source, memory)
            if self.feeds:
                features.append(self._read(None, top, context))
                memory = replace(memory, fed=features[-1])
            else:
                tops.append(top)
                contexts.append(context)
        if self.feeds:
            return torch.cat(features, dim=1)
        return self._read(words, torch.cat(tops, dim=1), torch.cat(contexts, dim=1))

    def _share_of_words(self, words: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the words' part of the first layer's input product (B, T, G*d), and the weights of its other parts."""
        # G gates per cell: 1 for Elman's, 3 for the GRU, 4 for the LSTM.
        weights = weights_of(self.layers[0])
        word_weight, *given_weights = torch.split(weights.input, [self.d_model, *self.d_given], dim=1)
        return F.linear(words, word_weight, weights.input_bias), given_weights

    def _advance(
        self, gates: Tensor, given_weights: list[Tensor], source: EncodedSource, memory: DecoderCarry
    ) -> tuple[Tensor, Tensor, DecoderCarry, Tensor | None]:
        """Take one step of all layers.

        Returns the top h (B, K, d), the context (B, K, d), the memory after the step and attention weights (B, K, S).
        """
        context, alignment = source.summary, None  # (B, 1, d)
        if self.looks_first:
            # Bahdanau et al. 2015: the query is the top state before this step.
            context, alignment = self._attend(memory.layers[-1][0], source)
        given = ([context] if self.gives_context else []) + ([] if memory.fed is None else [memory.fed])
        for part, weight in zip(given, given_weights, strict=True):
            gates = gates + F.linear(part, weight)  # (B, K, G · d)
        states: list[CellState] = []
        for layer, state in zip(self.layers, memory.layers, strict=True):
            weights = weights_of(layer)
            if states:
                gates = F.linear(self.dropout(states[-1][0]), weights.input, weights.input_bias)
            # (B, K, d) per part
            states.append(self.step_cell(gates, F.linear(state[0], weights.hidden, weights.hidden_bias), state))
        top = states[-1][0]
        if self.looks_last:
            # Luong et al. 2015: the query is the top state after this step.
            context, alignment = self._attend(top, source)
        return top, context.expand_as(top), DecoderCarry(tuple(states), memory.fed), alignment

    def _attend(self, query: Tensor, source: EncodedSource) -> tuple[Tensor, Tensor]:
        """Return context (B, T, d) and weights (B, T, S) for queries (B, T, d)."""
        assert self.align is not None
        context, weights = attend_prepared(
            # (B, 1, T, d) queries against (B, 1, S, d) keys
            query.unsqueeze(1),
            source.keys,
            source.values,
            self.align,
            self.distribute,
            source.mask,
        )
        return context.squeeze(1), weights.squeeze(1)  # without the head dimension

    def _read(self, words: Tensor | None, top: Tensor, context: Tensor) -> Tensor:
        """Return features (B, T, D): g(y, s, c), or g(s, c) where the query is the current state, or g(y, s)."""
        parts = [top] if self.blind else [top, context]
        if words is not None and not self.looks_last:
            parts.insert(0, words)
        return torch.as_tensor(self.dropout(torch.tanh(self.readout(torch.cat(parts, dim=-1)))))
