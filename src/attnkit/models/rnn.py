"""Recurrent encoder-decoder (Sutskever 2014, Bahdanau 2015, Luong 2015).

Letters: B batch, K beams, S source length, T target length, D width of embeddings, d width of a state, V vocabulary,
G number of gates (gru 3, lstm 4, rnn 1).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnkit.models.attention.alignment import make_alignment
from attnkit.models.attention.attend import AttentionFunction, AttentionScope
from attnkit.models.attention.distribution import Distribution, make_distribution, softmax
from attnkit.models.config import RnnConfig
from attnkit.models.linear import Dropout, Linear, WordDropout, init_xavier, without_dropout
from attnkit.models.recurrent import (
    STEPS,
    CellState,
    EncodedSource,
    RecurrentEncoder,
    RecurrentState,
    adapters_added,
    make_layer,
    map_states,
    run_layers,
    step_layers,
    weights_of,
)
from attnkit.models.translation import TranslationModel
from attnkit.protocols import DecoderState


class RecurrentDecoder(nn.Module):
    """Recurrent decoder from embedded target words and a source to features."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        d_model, d_hidden = config.d_model, config.d_hidden
        self.d_model = d_model
        self.step_cell = STEPS[config.cell]
        self.feeds = config.input_feeding
        # Bahdanau's order: attend, then step; Luong's: step, then attend.
        self.looks_first = config.has_attention and config.attention_query == "previous"
        self.looks_last = config.has_attention and config.attention_query == "current"
        self.gives_context = config.gives_context
        self.blind = not config.has_attention and not config.gives_context
        # Widths of the step inputs besides the word: context and fed-back features.
        self.d_extra = [d_hidden] * self.gives_context + [d_model] * self.feeds
        widths = [d_model + sum(self.d_extra)] + [d_hidden] * (config.decoder_layers - 1)
        self.layers = nn.ModuleList(make_layer(config.cell, width, d_hidden) for width in widths)
        self.align = None
        self.distribute: Distribution = softmax
        if config.alignment != "none":
            self.align = make_alignment(config.alignment, d_hidden, d_hidden, config.attention_options)
            self.distribute = make_distribution(config.distribution, d_hidden, config.attention_options)
        # Width of [s; c; y], without the parts that the readout does not see.
        d_read = d_hidden + (0 if self.blind else d_hidden) + (0 if self.looks_last else d_model)
        self.readout = Linear(d_read, d_model)
        init_xavier(self.readout)
        self.dropout = Dropout(config.dropout)

    def begin(self, source: EncodedSource, layers: Sequence[CellState], record: bool = False) -> RecurrentState:
        """Return the decoding state before the first step, from initial states (B, d)."""
        states = map_states(layers, lambda part: part.unsqueeze(1))  # (B, 1, d): one beam until reordered
        h = states[0][0]
        fed = h.new_zeros(h.shape[0], 1, self.d_model) if self.feeds else None
        return RecurrentState(source, states, fed, record)

    def forward(self, words: Tensor, source: EncodedSource, layers: Sequence[CellState]) -> Tensor:
        """Return features (B, T, D) of words (B, T, D), given the initial states (B, d)."""
        if not self.looks_first and not self.feeds:
            summary = source.summary.expand(-1, words.shape[1], -1)  # (B, T, d)
            inputs = torch.cat([words, summary], dim=-1) if self.gives_context else words  # (B, T, D + d) or (B, T, D)
            hidden = run_layers(self.layers, inputs, layers, self.dropout)  # (B, T, d)
            context = self._attend(hidden, source)[0] if self.looks_last else summary
            return self._read(words, hidden, context)
        # Each step depends on the previous one, so no layer can run over all steps at once. W [y; c; f] is a sum of
        # products: the word part of all steps is one product outside the loop, and so is the readout if not fed back.
        state = self.begin(source, layers)
        gates, extra_weights = self._project_words(words)
        tops, contexts, features = [], [], []
        for gate in torch.split(gates, 1, dim=1):  # each (B, 1, G*d)
            top, context, state = self._advance(gate, extra_weights, state)
            if self.feeds:
                features.append(self._read(None, top, context))
                state = replace(state, fed=features[-1])
            else:
                tops.append(top)
                contexts.append(context)
        if self.feeds:
            return torch.cat(features, dim=1)
        return self._read(words, torch.cat(tops, dim=1), torch.cat(contexts, dim=1))

    def step(self, words: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return features (B, K, D) after embedded words (B, K, D), and the new state."""
        gates, extra_weights = self._project_words(words)
        top, context, state = self._advance(gates, extra_weights, state)
        features = self._read(words, top, context)
        return features, replace(state, fed=features if self.feeds else None)

    def _project_words(self, words: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the word part of the input product (B, T, G*d), and the other weights."""
        weights = weights_of(self.layers[0])
        word_weight, *extra_weights = torch.split(weights.input, [self.d_model, *self.d_extra], dim=1)
        return F.linear(words, word_weight, weights.input_bias), extra_weights

    def _advance(
        self, gates: Tensor, extra_weights: list[Tensor], state: RecurrentState
    ) -> tuple[Tensor, Tensor, RecurrentState]:
        """Run one step of all layers; return top h (B, K, d), context (B, K, d) and state."""
        source = state.source
        assert source is not None
        context, weights = source.summary, None  # (B, 1, d)
        if self.looks_first:
            # Bahdanau et al. 2015: the query is the top state before this step.
            context, weights = self._attend(state.layers[-1][0], source)
        extra = ([context] if self.gives_context else []) + ([] if state.fed is None else [state.fed])
        for part, weight in zip(extra, extra_weights, strict=True):
            gates = gates + F.linear(part, weight)  # (B, K, G*d)
        layers = step_layers(self.layers, self.step_cell, gates, state.layers, self.dropout)
        top = layers[-1][0]
        if self.looks_last:
            # Luong et al. 2015: the query is the top state after this step.
            context, weights = self._attend(top, source)
        state = replace(state, layers=layers, attention=weights if state.record else None)
        return top, context.expand_as(top), state

    def _attend(self, query: Tensor, source: EncodedSource) -> tuple[Tensor, Tensor]:
        """Return context (B, T, d) and weights (B, T, S) for queries (B, T, d)."""
        assert self.align is not None
        function, scope = AttentionFunction(self.align, self.distribute), AttentionScope(source.mask)
        weights = function.weights(query.unsqueeze(1), source.keys, scope)  # (B, 1, T, S): one head
        return (weights @ source.values).squeeze(1), weights.squeeze(1)

    def _read(self, words: Tensor | None, top: Tensor, context: Tensor) -> Tensor:
        """Return features (B, T, D): g(y, s, c), Luong's g(s, c), or g(y, s) if blind."""
        parts = [top] if self.blind else [top, context]
        if words is not None and not self.looks_last:
            parts.insert(0, words)
        return self.dropout(torch.tanh(self.readout(torch.cat(parts, dim=-1))))


class Bridge(nn.Module):
    """Initial decoder states tanh(W h + b) from all final encoder states h."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        # All final states are concatenated.
        d_from, self.d_hidden = config.encoder_layers * config.d_hidden, config.d_hidden
        # h and c, or h alone; each has its own map.
        n_parts = 2 if config.cell == "lstm" else 1
        self.maps = nn.ModuleList(Linear(d_from, config.decoder_layers * config.d_hidden) for _ in range(n_parts))

    def forward(self, finals: Sequence[CellState]) -> list[CellState]:
        """Map one final state per encoder layer to one state per decoder layer, (B, d)."""
        parts = []
        for index, linear in enumerate(self.maps):
            joined = torch.cat([state[index] for state in finals], dim=-1)  # (B, layers * d)
            parts.append(torch.split(torch.tanh(linear(joined)), self.d_hidden, dim=-1))  # one (B, d) per decoder layer
        # From one list per part (h, c) to one state per layer.
        return list(zip(*parts, strict=True))


class RnnTranslator(TranslationModel):
    """Recurrent translation model."""

    def __init__(self, config: RnnConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__()
        joint = config.tie_embeddings == "all"
        if joint and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                "tie_embeddings=all requires a joint vocabulary, "
                f"not two with {src_vocab_size} and {tgt_vocab_size} entries"
            )
        self.start_from, self.decoder_layers = config.decoder_init, config.decoder_layers
        self.src_embedding = nn.Embedding(src_vocab_size, config.d_model)
        self.tgt_embedding = self.src_embedding if joint else nn.Embedding(tgt_vocab_size, config.d_model)
        sizes = config.cell, config.d_model, config.d_hidden, config.encoder_layers
        self.encoder = RecurrentEncoder(*sizes, bidirectional=config.bidirectional, dropout=config.dropout)
        self.bridge = Bridge(config) if config.decoder_init == "bridge" else None
        self.decoder = RecurrentDecoder(config)
        self.output = Linear(config.d_model, tgt_vocab_size)
        self.word_dropout, self.dropout = WordDropout(config.word_dropout), Dropout(config.dropout)
        # Embeddings are multiplied by sqrt(D), so that a tied matrix has the right scale as input and output layer.
        self.scale = config.d_model**0.5
        for weight in (self.src_embedding.weight, self.tgt_embedding.weight, self.output.weight):
            nn.init.normal_(weight, std=config.d_model**-0.5)
        nn.init.zeros_(self.output.bias)
        if config.tie_embeddings != "none":
            self.output.weight = self.tgt_embedding.weight

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return decoder features (B, T, D) for src (B, S) and tgt_in (B, T)."""
        with adapters_added(self):
            source, layers = self._encode(src, src_mask)
            features: Tensor = self.decoder(self._embed(self.tgt_embedding, tgt_in), source, layers)
        return features

    @torch.no_grad()
    def attention_weights(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Return {"cross": weights (B, 1, 1, T, S)}, or {} for models without attention."""
        with without_dropout(self):
            # Step by step, as in decoding: the training pass does not keep weights.
            state = self.start(src, src_mask, 1, tgt_in.shape[1], record=True)
            seen = []
            for at in range(tgt_in.shape[1]):
                _, state = self.step(tgt_in[:, at : at + 1], state)
                if state.attention is not None:
                    seen.append(state.attention)
        return {"cross": torch.cat(seen, dim=1)[:, None, None]} if seen else {}  # (B, 1, 1, T, S)

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> RecurrentState:
        """Encode the sources and return the initial state; ``max_length`` is unused."""
        source, layers = self._encode(src, src_mask)
        return self.decoder.begin(source, layers, record)

    def step(self, prev: Tensor, state: DecoderState) -> tuple[Tensor, RecurrentState]:
        """Return features (B, K, D) after the tokens prev (B, K), and the new state."""
        assert isinstance(state, RecurrentState)
        return self.decoder.step(self._embed(self.tgt_embedding, prev), state)

    def _embed(self, embedding: nn.Module, ids: Tensor) -> Tensor:
        return self.dropout(self.word_dropout(embedding(ids) * self.scale))

    def _encode(self, src: Tensor, src_mask: Tensor | None) -> tuple[EncodedSource, list[CellState]]:
        """Return the encoded sources and the initial decoder states (B, d)."""
        outputs, finals = self.encoder(self._embed(self.src_embedding, src), src_mask)  # outputs (B, S, d)
        values = self.dropout(outputs).unsqueeze(1)  # (B, 1, S, d): attention expects a head dimension
        keys = values if self.decoder.align is None else self.decoder.align.prepare(values)
        mask = None if src_mask is None else src_mask[:, None, None, :]
        source = EncodedSource(values, keys, mask, finals[-1][0].unsqueeze(1))
        if self.bridge is not None:
            return source, self.bridge(finals)
        if self.start_from == "layers":
            return source, finals
        first = finals[-1]  # the encoder's top layer
        if self.start_from == "zeros":
            first = tuple(torch.zeros_like(part) for part in first)
        return source, [first] * self.decoder_layers
