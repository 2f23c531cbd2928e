"""What a translation model is built from, as checked values. Free of torch, so that help and validation are quick.

Whatever the rooms above ask about a kind of model is answered here: besides its fields and ``tied``, each class says
how long a sentence may be, whether there are attention weights to show, and what training keeps.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

ModelKind = Literal["transformer", "rnn"]
Tied = Literal["none", "target", "all"]
MOST_WIDTH, MOST_LAYERS, MOST_POSITIONS = 1 << 16, 256, 1 << 20
"""Far above any model of sentences; even the outline of a larger one would take long to make."""
Sizes = dict[str, dict[str, Any]]
"""Preset -> what a model of that size is built from; other fields have their defaults."""


def _n_words(tied: Tied, src_vocab_size: int, tgt_vocab_size: int) -> int:
    """Return how many vectors the embeddings and the output layer hold."""
    return tgt_vocab_size * (2 if tied == "none" else 1) + (0 if tied == "all" else src_vocab_size)


class TransformerConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """An encoder-decoder Transformer (Vaswani et al. 2017)."""

    kind: Literal["transformer"] = "transformer"
    """Which model: this one."""
    d_model: int = Field(default=256, gt=0, le=MOST_WIDTH)
    """Width of embeddings and layers; a multiple of n_heads."""
    n_heads: int = Field(default=4, gt=0, le=MOST_WIDTH)
    """Attention heads of every layer."""
    encoder_layers: int = Field(default=3, gt=0, le=MOST_LAYERS)
    """Layers of the encoder."""
    decoder_layers: int = Field(default=3, gt=0, le=MOST_LAYERS)
    """Layers of the decoder; few make translation fast."""
    d_ff: int = Field(default=1024, gt=0, le=MOST_WIDTH)
    """Width inside the feed-forward sublayer."""
    norm: Literal["post", "pre"] = "post"
    """LayerNorm after each residual sum, as in the paper, or before each sublayer and once more at the end."""
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"] = "sinusoidal"
    """How the model knows the order of words; learned holds max_length of them, the others any length."""
    activation: Literal["relu", "gelu", "silu"] = "relu"
    """The function inside the feed-forward sublayer."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout on embeddings and on every sublayer's output."""
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on attention weights."""
    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout after the feed-forward activation."""
    tied: Tied = "all"
    """Which embeddings are one matrix: target and output (target), source too (all, needs a joint vocabulary)."""
    max_length: int = Field(default=1024, gt=0, le=MOST_POSITIONS)
    """Rows of the learned position table, in tokens; the other kinds of positions ignore it."""

    @model_validator(mode="after")
    def _heads_fit(self) -> TransformerConfig:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model ({self.d_model}) must be a multiple of n_heads ({self.n_heads})")
        if self.positions == "rotary" and (self.d_model // self.n_heads) % 2:
            raise ValueError(f"rotary positions need an even head width, not {self.d_model // self.n_heads}")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {self.d_model}")
        return self

    @property
    def longest(self) -> int | None:
        """Return the most tokens a side may have, its end included; None where there is no such limit."""
        return self.max_length if self.positions == "learned" else None

    @property
    def attends(self) -> bool:
        """Return whether the model has attention weights to show."""
        return True

    @property
    def activations(self) -> float:
        """Estimate how many numbers the backward pass needs per token, source and target tokens being equally many."""
        # About 16 vectors of the model's width and 3 of the inner width a layer; a token meets one of the two stacks.
        return (self.encoder_layers + self.decoder_layers) / 2 * (16 * self.d_model + 3 * self.d_ff)

    def least_weights(self, src_vocab_size: int, tgt_vocab_size: int) -> int:
        """Return how many numbers the matrices of such a model hold, biases and the like left out; torch-free."""
        attentions = 4 * self.d_model * (self.encoder_layers + 2 * self.decoder_layers)
        inner = 2 * self.d_ff * (self.encoder_layers + self.decoder_layers)
        positions = 2 * self.max_length if self.positions == "learned" else 0
        return self.d_model * (attentions + inner + positions + _n_words(self.tied, src_vocab_size, tgt_vocab_size))


TRANSFORMERS: Sizes = {
    "tiny": {"d_model": 128, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "d_ff": 512, "dropout": 0.2},
    "small": {"d_model": 256, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3, "d_ff": 1024, "dropout": 0.25},
    "base": {"d_model": 512, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 6, "d_ff": 2048, "dropout": 0.1},
    "big": {"d_model": 1024, "n_heads": 16, "encoder_layers": 6, "decoder_layers": 6, "d_ff": 4096, "dropout": 0.2},
}


class RnnConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """A recurrent encoder-decoder, with or without attention (Sutskever 2014, Bahdanau 2015, Luong 2015)."""

    kind: Literal["rnn"] = "rnn"
    """Which model: this one."""
    cell: Literal["gru", "lstm", "rnn"] = "gru"
    """The recurrent cell of encoder and decoder."""
    d_model: int = Field(default=256, gt=0, le=MOST_WIDTH)
    """Width of the embeddings."""
    d_hidden: int = Field(default=512, gt=0, le=MOST_WIDTH)
    """Width of the recurrent states."""
    encoder_layers: int = Field(default=1, gt=0, le=MOST_LAYERS)
    """Layers of the encoder."""
    decoder_layers: int = Field(default=1, gt=0, le=MOST_LAYERS)
    """Layers of the decoder."""
    bidirectional: bool = True
    """Whether the encoder also reads right to left."""
    attention: Literal["none", "dot", "general", "additive"] = "additive"
    """How decoder states are compared with source positions; none leaves a fixed context."""
    query: Literal["previous", "current"] = "previous"
    """The decoder state that asks: s_(t-1), as Bahdanau, or s_t, as Luong."""
    input_feeding: bool = False
    """Feed the last attentional vector into the next step (Luong); needs query current and attention."""
    start: Literal["bridge", "layers", "last"] = "bridge"
    """Decoder start: a learned map of the encoder's end, its states layer by layer, or its last layer's state."""
    d_attention: int | None = Field(default=None, gt=0, le=MOST_WIDTH)
    """Hidden width of additive attention; none takes d_hidden."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the output layer."""
    tied: Tied = "all"
    """Which embeddings are one matrix: target and output (target), source too (all, needs a joint vocabulary)."""

    @model_validator(mode="after")
    def _parts_fit(self) -> RnnConfig:
        if self.input_feeding and (self.query != "current" or self.attention == "none"):
            raise ValueError("input_feeding needs attention and query: current")
        if self.bidirectional and self.d_hidden % 2:
            raise ValueError(f"a bidirectional encoder needs an even d_hidden, not {self.d_hidden}")
        if self.start == "layers" and self.encoder_layers != self.decoder_layers:
            raise ValueError(
                f"start: layers needs as many decoder as encoder layers, not {self.encoder_layers} and "
                f"{self.decoder_layers}; start: bridge fits any number"
            )
        return self

    @property
    def longest(self) -> int | None:
        """Return the most tokens a side may have: None, there is no such limit."""
        return None

    @property
    def attends(self) -> bool:
        """Return whether the model has attention weights to show."""
        return self.attention != "none"

    @property
    def activations(self) -> float:
        """Estimate how many numbers the backward pass needs per token, source and target tokens being equally many."""
        return (self.encoder_layers + self.decoder_layers) / 2 * (16 * self.d_model + 9 * self.d_hidden)

    def least_weights(self, src_vocab_size: int, tgt_vocab_size: int) -> int:
        """Return how many numbers the matrices of such a model hold, biases and the like left out; torch-free."""
        gates, states = {"rnn": (1, 1), "gru": (3, 1), "lstm": (4, 2)}[self.cell]
        aside = self.d_hidden // 2 if self.bidirectional else self.d_hidden
        encoder = self.d_model + (self.encoder_layers - 1) * self.d_hidden + self.encoder_layers * aside
        decoder = self.d_model + (2 * self.decoder_layers - 1) * self.d_hidden
        bridge = states * self.encoder_layers * self.decoder_layers * self.d_hidden if self.start == "bridge" else 0
        attention = {"additive": 2 * (self.d_attention or self.d_hidden), "general": self.d_hidden}
        recurrent = gates * (encoder + decoder) + bridge + attention.get(self.attention, 0) + 2 * self.d_model
        words = self.d_model * _n_words(self.tied, src_vocab_size, tgt_vocab_size)
        return self.d_hidden * recurrent + words


RECURRENT: Sizes = {
    "tiny": {"d_model": 128, "d_hidden": 256, "dropout": 0.2},
    "small": {"d_model": 256, "d_hidden": 512, "dropout": 0.3},
    "base": {"d_model": 512, "d_hidden": 1024, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.2},
    "big": {"d_model": 512, "d_hidden": 1024, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.2},
}


ModelConfig = Annotated[TransformerConfig | RnnConfig, Field(discriminator="kind")]

SIZES: dict[str, Sizes] = {"transformer": TRANSFORMERS, "rnn": RECURRENT}
"""Kind -> its sizes."""
