"""Auto-encoders with a narrow code, for token sequences and for vectors.

The sequence auto-encoder implements ``translation.TranslationModel``, so the same search decodes its reconstructions:
it "translates" a line into itself, and only the code is passed to the decoder.

Letters: B batch, K beam, S source length, T target length, D model width, d width of a state, C width of the code, V
vocabulary, G number of gates (gru 3, lstm 4, rnn 1).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnkit.models.linear import Dropout, Linear, init_xavier
from attnkit.models.recurrent import (
    STEPS,
    CellState,
    RecurrentEncoder,
    RecurrentState,
    make_layer,
    map_states,
    run_layers,
    step_layers,
    weights_of,
)
from attnkit.models.recurrent_config import MlpAutoencoderConfig, RnnAutoencoderConfig
from attnkit.models.translation import TranslationModel
from attnkit.protocols import DecoderState


class CodeDecoder(nn.Module):
    """Recurrent decoder with a code as initial state and input (Cho et al. 2014)."""

    def __init__(self, config: RnnAutoencoderConfig) -> None:
        super().__init__()
        self.d_hidden = config.d_hidden
        self.n_parts = 2 if config.cell == "lstm" else 1
        # The step function is for decoding; torch.nn layers process whole sequences.
        self.step_cell = STEPS[config.cell]
        widths = [config.d_model + config.d_code] + [config.d_hidden] * (config.decoder_layers - 1)
        self.layers = nn.ModuleList(make_layer(config.cell, width, config.d_hidden) for width in widths)
        # Initial states of all layers in one product, split in begin.
        self.first = Linear(config.d_code, config.decoder_layers * self.n_parts * config.d_hidden)
        # The readout sees the code too, so the recurrent state need not carry it to the last step.
        self.readout = Linear(config.d_hidden + config.d_code, config.d_model)
        init_xavier(self.first, self.readout)
        self.dropout = Dropout(config.dropout)

    def begin(self, code: Tensor) -> tuple[CellState, ...]:
        """Return the initial state of each layer, tensors (B, d), for codes (B, C)."""
        parts = torch.split(torch.tanh(self.first(code)), self.d_hidden, dim=-1)  # layers * parts times (B, d)
        return tuple(tuple(parts[i : i + self.n_parts]) for i in range(0, len(parts), self.n_parts))

    def forward(self, words: Tensor, code: Tensor) -> Tensor:
        """Return features (B, T, D) for embedded words (B, T, D) and codes (B, C)."""
        codes = code.unsqueeze(1).expand(-1, words.shape[1], -1)  # (B, T, C), a view
        inputs = torch.cat([words, codes], dim=-1)  # (B, T, D + C)
        return self._read(run_layers(self.layers, inputs, self.begin(code), self.dropout), codes)

    def step(self, words: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return features (B, K, D) after embedded words (B, K, D), and the new state."""
        weights, code = weights_of(self.layers[0]), state.fed
        assert code is not None
        inputs = torch.cat([words, code], dim=-1)  # (B, K, D + C)
        gates = F.linear(inputs, weights.input, weights.input_bias)  # (B, K, G*d)
        layers = step_layers(self.layers, self.step_cell, gates, state.layers, self.dropout)
        return self._read(layers[-1][0], code), replace(state, layers=layers)

    def _read(self, hidden: Tensor, codes: Tensor) -> Tensor:
        return self.dropout(torch.tanh(self.readout(torch.cat([hidden, codes], dim=-1))))  # (..., D)


class SequenceAutoencoder(TranslationModel):
    """Recurrent sequence auto-encoder."""

    def __init__(self, config: RnnAutoencoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        sizes = config.cell, config.d_model, config.d_hidden, config.encoder_layers
        self.encoder = RecurrentEncoder(*sizes, bidirectional=config.bidirectional, dropout=config.dropout)
        # The bottleneck: a projection of the last layer's final state.
        self.to_code = Linear(config.d_hidden, config.d_code)
        self.decoder = CodeDecoder(config)
        self.output = Linear(config.d_model, vocab_size)
        self.dropout = Dropout(config.dropout)
        # As in `rnn`: gives a tied matrix the right scale as input and as output layer.
        self.scale = config.d_model**0.5
        for weight in (self.embedding.weight, self.output.weight):
            nn.init.normal_(weight, std=config.d_model**-0.5)
        init_xavier(self.to_code)
        nn.init.zeros_(self.output.bias)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """Return codes (B, C) in [-1, 1] for src (B, S) with its mask (B, S)."""
        _, finals = self.encoder(self._embed(src), src_mask)  # finals: per layer (B, d)
        # The outputs of individual steps are discarded: only the code is passed on.
        return torch.tanh(self.to_code(finals[-1][0]))

    def decode(self, code: Tensor, tgt_in: Tensor) -> Tensor:
        """Return features (B, T, D) for codes (B, C) and tgt_in (B, T)."""
        features: Tensor = self.decoder(self._embed(tgt_in), code)
        return features

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return decoder features (B, T, D) for src (B, S) and tgt_in (B, T)."""
        return self.decode(self.encode(src, src_mask), tgt_in)

    def attention_weights(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Mapping[str, Tensor]:
        """Return an empty mapping, since the model has no attention."""
        return {}

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> RecurrentState:
        """Encode the sources and return the initial state; ``max_length`` is unused."""
        code = self.encode(src, src_mask)
        layers = map_states(self.decoder.begin(code), lambda part: part.unsqueeze(1))  # (B, 1, d)
        return RecurrentState(None, layers, code.unsqueeze(1))  # code: (B, 1, C), one beam until reordered

    def step(self, prev: Tensor, state: DecoderState) -> tuple[Tensor, RecurrentState]:
        """Return features (B, K, D) after the tokens prev (B, K), and the new state."""
        assert isinstance(state, RecurrentState)
        return self.decoder.step(self._embed(prev), state)

    def _embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) * self.scale)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


class VectorAutoencoder(nn.Module):
    """Auto-encoder of vectors (B, d), which are centred and divided by a single scale.

    A single scale for all columns keeps the training loss proportional to the squared error of the original data, which
    is also what PCA minimises.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, config: MlpAutoencoderConfig, d_input: int) -> None:
        super().__init__()
        widths = config.widths(d_input)
        # Mirrored widths; weights are not shared.
        self.encoder = _mlp(widths, config)
        self.decoder = _mlp(widths[::-1], config)
        # Buffers, not parameters: they are saved with the weights, but not trained.
        self.register_buffer("mean", torch.zeros(d_input))
        self.register_buffer("scale", torch.ones(()))

    def centre(self, mean: Tensor, scale: float) -> None:
        """Set the mean (d,) to subtract from vectors and the positive scale to divide by."""
        self.mean.copy_(mean)
        self.scale.fill_(scale)

    def encode(self, vectors: Tensor) -> Tensor:
        """Return the codes (B, C) of vectors (B, d)."""
        inputs = (vectors - self.mean) / self.scale  # (B, d), in the data's precision
        return torch.as_tensor(self.encoder(inputs.to(self._dtype)))

    def decode(self, codes: Tensor) -> Tensor:
        """Return vectors (B, d), in float32 or wider, for codes (B, C)."""
        vectors: Tensor = self.decoder(codes.to(self._dtype))
        # Rescaled in float32: adding a large mean in half precision would lose the low bits.
        return vectors.to(self.mean.dtype) * self.scale + self.mean

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the reconstructions (B, d)."""
        return self.decode(self.encode(vectors))

    @property
    def _dtype(self) -> torch.dtype:
        # The working precision, which training may lower.
        return next(self.encoder.parameters()).dtype


def _mlp(widths: Sequence[int], config: MlpAutoencoderConfig) -> nn.Sequential:
    """Build linear layers of the given widths with activations in between."""
    layers: list[nn.Module] = []
    for index, (left, right) in enumerate(pairwise(widths)):
        if index:
            # No activation after the last layer: codes and reconstructions may take any value.
            layers += [ACTIVATIONS[config.activation](), Dropout(config.dropout)]
        layers.append(linear := Linear(left, right))
        init_xavier(linear)
    return nn.Sequential(*layers)
