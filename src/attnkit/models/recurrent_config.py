"""Configuration of document classifiers and auto-encoders; does not import torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.models.attention.config import (
    AlignmentName,
    AttentionOptions,
    DistributionName,
    n_parameters,
    saved_activations,
)
from attnkit.models.layer_config import Scaled, Sizes, VectorsName, check_attention_pair
from attnkit.models.limits import MOST_LAYERS, MOST_WIDTH


class HanConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Configuration of a hierarchical attention network (Yang et al. 2016)."""

    kind: Literal["han"] = "han"
    """Kind of model."""
    # Sizes are those of the paper, except for the embeddings.
    d_model: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the word embeddings."""
    d_word: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the word encoder's states, both directions together; must be even."""
    d_sentence: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the sentence encoder's states, both directions together; must be even."""
    d_attention: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the hidden layers and the context vectors of attention."""
    # Attention, the same function at both levels.
    alignment: AlignmentName = "dot"
    """Alignment function between a learned context vector and word or sentence states; the paper uses dot."""
    distribution: DistributionName = "softmax"
    """Distribution function, which turns scores into weights, for words and for sentences."""
    attention_options: AttentionOptions = AttentionOptions()
    """Options of the alignment and distribution functions."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Dropout rate of embeddings, sentence vectors and document vectors."""
    # Embeddings.
    embeddings: VectorsName | None = None
    """Word vectors to initialize the embeddings: a run folder or a vector file."""
    scale_embeddings: Scaled = False

    @model_validator(mode="after")
    def _parts_fit(self) -> HanConfig:
        for name in ("d_word", "d_sentence"):
            if getattr(self, name) % 2:
                raise ValueError(f"{name} is shared by two directions and must be even, not {getattr(self, name)}")
        check_attention_pair(self.alignment, self.distribution, self.attention_options)
        return self

    @property
    def max_positions(self) -> int | None:
        """Return the maximum words per sentence and sentences per document, or None."""
        return self.attention_options.max_source if self.alignment == "location" else None

    @property
    def plain_attention(self) -> bool:
        """Return whether attention is dot x softmax, as in the paper."""
        return (self.alignment, self.distribution) == ("dot", "softmax")

    @property
    def activation_floats_per_token(self) -> float:
        """Estimate the floats saved for backward per word."""
        states = 4.0 * self.d_model + 9 * self.d_word + 3 * self.d_attention
        if self.plain_attention:
            return states
        return states + saved_activations(self.alignment, self.distribution, self.d_attention, self.attention_options)

    def min_parameters(self, vocab_size: int, n_labels: int) -> int:
        """Return the number of parameters in matrices, without biases."""
        # A GRU has three gates; each direction is half as wide.
        words = 3 * self.d_word * (self.d_model + self.d_word // 2)
        sentences = 3 * self.d_sentence * (self.d_word + self.d_sentence // 2)
        functions = n_parameters(self.alignment, self.d_attention, self.d_attention, self.attention_options)
        # One projection per level, and the parameters of the alignment.
        attention = self.d_attention * (self.d_word + self.d_sentence) + 2 * functions
        return vocab_size * self.d_model + words + sentences + attention + n_labels * self.d_sentence


HAN_SIZES: Sizes = {
    "tiny": {"d_model": 64, "d_word": 64, "d_sentence": 64, "d_attention": 64},
    "small": {},
    "base": {"d_model": 200, "d_word": 200, "d_sentence": 200, "d_attention": 200},
    "big": {"d_model": 300, "d_word": 300, "d_sentence": 300, "d_attention": 300},
}
"""Preset -> fields that differ from the defaults, which are those of the paper (except its embeddings of width 200)."""


class RnnAutoencoderConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Configuration of a recurrent sequence auto-encoder."""

    kind: Literal["rnn"] = "rnn"
    """Kind of model."""
    cell: Literal["gru", "lstm", "rnn"] = "gru"
    """Recurrent cell of encoder and decoder."""
    d_model: int = Field(default=128, gt=0, le=MOST_WIDTH)
    """Width of the embeddings."""
    d_hidden: int = Field(default=256, gt=0, le=MOST_WIDTH)
    """Width of the recurrent states."""
    d_code: int = Field(default=64, gt=0, le=MOST_WIDTH)
    """Width of the code, the only information about a line that the decoder receives."""
    encoder_layers: int = Field(default=1, gt=0, le=MOST_LAYERS)
    """Number of encoder layers."""
    decoder_layers: int = Field(default=1, gt=0, le=MOST_LAYERS)
    """Number of decoder layers."""
    bidirectional: bool = True
    """Whether the encoder also reads right to left."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout rate of embeddings, between layers and before the output layer; the code has no dropout."""
    tie_embeddings: bool = True
    """Whether embeddings and output layer share weights."""
    embeddings: VectorsName | None = None
    """Word vectors to initialize the embeddings: a run folder or a vector file."""
    scale_embeddings: Scaled = False

    @model_validator(mode="after")
    def _parts_fit(self) -> RnnAutoencoderConfig:
        if self.bidirectional and self.d_hidden % 2:
            raise ValueError(f"a bidirectional encoder needs an even d_hidden, not {self.d_hidden}")
        return self

    @property
    def activation_floats_per_token(self) -> float:
        """Estimate the floats saved for backward per token, for sides of equal length."""
        return (self.encoder_layers + self.decoder_layers) / 2 * (16 * self.d_model + 9 * self.d_hidden)

    def min_parameters(self, vocab_size: int) -> int:
        """Return the number of parameters in matrices, without biases."""
        # Gates per cell; each has an input and a recurrent matrix.
        gates = {"rnn": 1, "gru": 3, "lstm": 4}[self.cell]
        # Both directions together are d_hidden wide.
        d_direction = self.d_hidden // 2 if self.bidirectional else self.d_hidden
        encoder = self.d_model + (self.encoder_layers - 1) * self.d_hidden + self.encoder_layers * d_direction
        decoder = self.d_model + self.d_code + (2 * self.decoder_layers - 1) * self.d_hidden
        # Embeddings, and the output layer unless tied.
        words = self.d_model * vocab_size * (1 if self.tie_embeddings else 2)
        return self.d_hidden * (gates * (encoder + decoder) + 2 * self.d_code + self.d_model) + words


class MlpAutoencoderConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Configuration of a feed-forward auto-encoder of vectors."""

    kind: Literal["mlp"] = "mlp"
    """Kind of model."""
    d_code: int = Field(default=8, gt=0, le=MOST_WIDTH)
    """Width of the code."""
    d_hidden: tuple[Annotated[int, Field(gt=0, le=MOST_WIDTH)], ...] = Field(default=(128,), max_length=64)
    """Widths of the encoder's hidden layers, mirrored in the decoder; an empty list gives a linear model like PCA."""
    activation: Literal["relu", "tanh", "gelu"] = "gelu"
    """Activation function of the hidden layers."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate after each activation."""

    @property
    def activation_floats_per_token(self) -> float:
        """Estimate the floats saved for backward per token; a vector is two tokens."""
        return float(3 * sum(self.d_hidden) + self.d_code)

    def widths(self, d_input: int) -> tuple[int, ...]:
        """Return the widths of the encoder, from the input to the code."""
        return (d_input, *self.d_hidden, self.d_code)

    def min_parameters(self, d_input: int) -> int:
        """Return the number of parameters in matrices, without biases."""
        # Encoder and decoder mirror each other.
        return 2 * sum(left * right for left, right in pairwise(self.widths(d_input)))


AutoencoderConfig = Annotated[RnnAutoencoderConfig | MlpAutoencoderConfig, Field(discriminator="kind")]

AUTOENCODER_SIZES: dict[str, Sizes] = {
    "rnn": {
        "tiny": {"d_model": 128, "d_hidden": 256, "d_code": 64},
        "small": {"d_model": 256, "d_hidden": 512, "d_code": 128},
        "base": {"d_model": 512, "d_hidden": 1024, "d_code": 256},
        "big": {"d_model": 512, "d_hidden": 1024, "d_code": 512, "encoder_layers": 2, "decoder_layers": 2},
    },
    "mlp": {
        "tiny": {"d_hidden": [128]},
        "small": {"d_hidden": [256]},
        "base": {"d_hidden": [512, 256]},
        "big": {"d_hidden": [1024, 512]},
    },
}
"""Kind -> preset -> fields that differ from the defaults."""
