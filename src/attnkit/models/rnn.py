"""The recurrent encoder-decoder (Sutskever et al. 2014, Bahdanau et al. 2015, Luong et al. 2015), as one class.

Ids in, features and logits out. Knows nothing of losses or search; the parts are in `recurrent` and `rnn_decoder`.

Letters: B batch, K beam, S source length, T target length, D model width, d width of a state, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attnkit.models.config import RnnConfig
from attnkit.models.dropout import Dropout, without_dropout
from attnkit.models.linear import Linear, some_outputs
from attnkit.models.recurrent import CellState, RecurrentEncoder
from attnkit.models.rnn_decoder import DecoderCarry, EncodedSource, RecurrentDecoder
from attnkit.protocols import DecoderState


@dataclass(frozen=True)
class RecurrentState:
    """Decoding state: what is stored once per sentence, and once per beam."""

    source: EncodedSource
    memory: DecoderCarry
    record: bool
    attention: Tensor | None = None
    """(B, K, S): the last step's weights, if recording was requested and the model has attention."""

    def reorder_beams(self, parents: Tensor) -> RecurrentState:
        """Let beam k of sentence b go on from its old beam parents[b, k] (B, K); the first call may widen 1 to K."""

        def gather(part: Tensor) -> Tensor:
            return part.gather(1, parents.unsqueeze(-1).expand(-1, -1, part.shape[-1]))

        attention = None if self.attention is None else gather(self.attention)
        return replace(self, memory=self.memory.map(gather), attention=attention)

    def select_rows(self, sentences: Tensor) -> RecurrentState:
        """Keep only the given rows of the batch, in the given order; sentences is (n,) int64."""
        attention = None if self.attention is None else self.attention[sentences]
        memory = self.memory.map(lambda part: part[sentences])
        return replace(self, source=self.source.select_rows(sentences), memory=memory, attention=attention)


class Bridge(nn.Module):
    """The decoder's first states as tanh(W h + b) of the encoder's final ones, for any number of layers of each."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        d_from, self.d_hidden = config.encoder_layers * config.d_hidden, config.d_hidden
        n_parts = 2 if config.cell == "lstm" else 1
        self.maps = nn.ModuleList(Linear(d_from, config.decoder_layers * config.d_hidden) for _ in range(n_parts))

    def forward(self, finals: Sequence[CellState]) -> list[CellState]:
        """Return one state a decoder layer, tensors (B, d), for one final state an encoder layer."""
        parts = []
        for index, linear in enumerate(self.maps):
            joined = torch.cat([state[index] for state in finals], dim=-1)  # (B, layers * d)
            parts.append(torch.split(torch.tanh(linear(joined)), self.d_hidden, dim=-1))  # one (B, d) per decoder layer
        # From one list per part (h, c) to one state per layer.
        return list(zip(*parts, strict=True))


class RnnTranslator(nn.Module):
    """A recurrent translation model; satisfies TranslationModel."""

    def __init__(self, config: RnnConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__()
        if config.tie_embeddings == "all" and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"tie_embeddings all needs one joint vocabulary, not {src_vocab_size} and {tgt_vocab_size} words"
            )
        self.start_from = config.decoder_init
        self.decoder_layers = config.decoder_layers
        self.src_embedding = nn.Embedding(src_vocab_size, config.d_model)
        self.tgt_embedding = (
            self.src_embedding if config.tie_embeddings == "all" else nn.Embedding(tgt_vocab_size, config.d_model)
        )
        self.encoder = RecurrentEncoder(
            config.cell,
            config.d_model,
            config.d_hidden,
            config.encoder_layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        self.bridge = Bridge(config) if config.decoder_init == "bridge" else None
        self.decoder = RecurrentDecoder(config)
        self.output = Linear(config.d_model, tgt_vocab_size)
        self.dropout = Dropout(config.dropout)
        # Embeddings enter multiplied by sqrt(D), so that one matrix has the right size as input and as output layer.
        self.scale = config.d_model**0.5
        for weight in (self.src_embedding.weight, self.tgt_embedding.weight, self.output.weight):
            nn.init.normal_(weight, std=config.d_model**-0.5)
        nn.init.zeros_(self.output.bias)
        if config.tie_embeddings != "none":
            self.output.weight = self.tgt_embedding.weight

    def word_vectors(self) -> list[Tensor]:
        """Return the embeddings of the source and of the target, one where they are one matrix; (V, D) each."""
        src, tgt = self.src_embedding.weight, self.tgt_embedding.weight
        return [src] if src is tgt else [src, tgt]

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return the features (B, T, D) that output turns into logits, for src (B, S) and tgt_in (B, T).

        src_mask (B, S) is True at real tokens, with padding on the right only; None means that there is none.
        """
        source, layers = self._encode(src, src_mask)
        return torch.as_tensor(self.decoder(self._embed(self.tgt_embedding, tgt_in), source, layers))

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or only those of the given words (..., len(ids))."""
        if ids is None:
            return torch.as_tensor(self.output(hidden))
        return some_outputs(self.output, hidden, ids)

    @torch.no_grad()
    def attention_weights(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Return cross: the weights (B, 1, 1, T, S) over the source, of one layer and one head; nothing without."""
        with without_dropout(self):
            # Step by step, as in decoding: the pass over all steps at once keeps no weights.
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
        """Encode the sources once and return a state; it grows with the beams and needs no room for max_length."""
        source, layers = self._encode(src, src_mask)
        return RecurrentState(source, self.decoder.begin(layers), record)

    def step(self, prev: Tensor, state: DecoderState) -> tuple[Tensor, RecurrentState]:
        """Return the features (B, K, D) after the words prev (B, K): K is 1 until reorder has widened the state."""
        assert isinstance(state, RecurrentState)
        words = self._embed(self.tgt_embedding, prev)  # (B, K, D)
        features, memory, weights = self.decoder.step(words, state.source, state.memory)
        return features, replace(state, memory=memory, attention=weights if state.record else None)

    def _embed(self, embedding: nn.Module, ids: Tensor) -> Tensor:
        return torch.as_tensor(self.dropout(embedding(ids) * self.scale))

    def _encode(self, src: Tensor, src_mask: Tensor | None) -> tuple[EncodedSource, list[CellState]]:
        """Return what the decoder sees of the sources, and its layers' first states (B, d)."""
        outputs, finals = self.encoder(self._embed(self.src_embedding, src), src_mask)  # outputs (B, S, d)
        source = self.decoder.prepare(self.dropout(outputs), src_mask, finals[-1][0])
        if self.bridge is not None:
            return source, self.bridge(finals)
        if self.start_from == "layers":
            return source, finals
        first = finals[-1]
        if self.start_from == "zeros":
            first = tuple(torch.zeros_like(part) for part in first)
        return source, [first] * self.decoder_layers
