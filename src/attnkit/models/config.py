"""Translation model configurations; does not import torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.models.attention.config import (
    AlignmentName,
    Alignments,
    AttentionOptions,
    DistributionName,
    Distributions,
    n_parameters,
    saved_activations,
)
from attnkit.models.attention.patterns import PatternName
from attnkit.models.layer_config import (
    ROPE_BASE,
    TYPICAL_LENGTH,
    LayerConfig,
    Scaled,
    Sizes,
    Tied,
    TransformerTied,
    VectorsName,
    check_attention_pair,
    check_target_embeddings,
    n_embeddings,
)
from attnkit.models.limits import MOST_HEAD_WIDTH, MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH

DecoderStart = Literal["bos", "zero", "eos"]


class TransformerConfig(LayerConfig, BaseModel, frozen=True, extra="forbid", strict=True):
    """Configuration of an encoder-decoder Transformer (Vaswani et al. 2017)."""

    norm_bias: ClassVar[bool] = True
    rope_base: ClassVar[float] = ROPE_BASE
    n_key_value_heads: ClassVar[int | None] = None
    rope_scaling: ClassVar[None] = None
    kind: Literal["transformer"] = "transformer"
    """Kind of model."""
    d_model: int = Field(default=256, gt=0, le=MOST_WIDTH)
    """Width of embeddings and layers; a multiple of n_heads."""
    n_heads: int = Field(default=4, gt=0, le=MOST_WIDTH)
    """Number of attention heads per layer."""
    head_width: int | None = Field(default=None, gt=0, le=MOST_HEAD_WIDTH)
    """Width of a head. The default is d_model / n_heads; with another one, d_model need not be a multiple of
    n_heads."""
    # Depth: deep encoders pay off, while deep decoders slow down every decoding step.
    encoder_layers: int = Field(default=3, gt=0, le=MOST_LAYERS)
    """Number of encoder layers."""
    decoder_layers: int = Field(default=3, gt=0, le=MOST_LAYERS)
    """Number of decoder layers; few layers make translation fast."""
    d_ff: int = Field(default=1024, gt=0, le=MOST_WIDTH)
    """Inner width of the feed-forward sublayer."""
    # Norms and positions.
    norm: Literal["post", "pre"] = "post"
    """LayerNorm after each residual sum, as in the paper (post), or before each sublayer and at the end (pre)."""
    norm_eps: float = Field(default=1e-5, gt=0, lt=1)
    """Epsilon of LayerNorm, added to the variance."""
    normalization: Literal["layer", "rms"] = "layer"
    """LayerNorm, or RMSNorm (rms: Zhang and Sennrich 2019), which subtracts no mean and has no bias, as in T5."""
    embedding_norm: bool = False
    """Apply LayerNorm to the source embeddings as well, as in post-norm BERT."""
    target_embedding_norm: bool = False
    """Apply LayerNorm to the target embeddings as well, as in mBART."""
    # Only learned positions limit the sentence length.
    positions: Literal["sinusoidal", "fairseq", "learned", "rotary", "alibi", "relative", "none"] = "sinusoidal"
    """Position encoding; learned positions end at max_length, the others allow any length. Fairseq is the form of
    sinusoids that M2M100 and NLLB-200 have; relative is the trained bias per distance of T5, shared by all layers of
    encoder or decoder."""
    relative_buckets: int = Field(default=32, ge=4, le=4096)
    """Distances that relative positions tell apart: half of these buckets hold one distance each, the others grow
    logarithmically (Raffel et al. 2020, section 2.1)."""
    relative_distance: int = Field(default=128, gt=1, le=MOST_POSITIONS)
    """Distance from which on relative positions are all in the last bucket, in tokens; above half of
    relative_buckets."""
    position_offset: int = Field(default=0, ge=0, le=MOST_POSITIONS)
    """Rows of the learned position table before the first token's, which no token uses: 2 in mBART."""
    alignment: Alignments = "scaled_dot"
    """Alignment function: one for all heads, or a list with one per head. T5 has dot."""
    distribution: Distributions = "softmax"
    """Distribution function, which turns scores into weights: one for all heads, or a list with one per head."""
    attention_options: AttentionOptions = AttentionOptions()
    """Options of the alignment and distribution functions."""
    # Sparse self-attention, tile by tile.
    pattern: Literal["none", PatternName] = "none"
    """Sparse pattern of self-attention in encoder and decoder; none is full attention."""
    pattern_size: int = Field(default=16, gt=0, le=MOST_POSITIONS)
    """Size of the pattern in tokens: window per side, stride or block length."""
    pattern_globals: int = Field(default=1, gt=0, le=MOST_POSITIONS)
    """Number of leading tokens that see all tokens and are seen by all, in pattern global."""
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "relu"
    """Activation function of the feed-forward sublayer; gelu_tanh is the approximation of GELU in T5 v1.1 and mT5."""
    glu: bool = False
    """Multiply the activation by a second linear map of the input (Shazeer 2020): GEGLU, SwiGLU, ReGLU."""
    bias: bool = True
    """Whether the linear maps of the layers have biases."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout rate of the embeddings and of the output of every sublayer."""
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate of the attention weights."""
    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate after the feed-forward activation."""
    layer_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Rate at which a training step skips each layer of encoder and decoder (LayerDrop, Fan et al. 2020)."""
    stack_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate of the outputs of encoder and decoder, after their last norms, as in T5."""
    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Rate at which tokens of both sides, tags among them, lose their embedding in training; their positions stay."""
    tie_embeddings: TransformerTied = "all"
    """Weight tying: target embeddings and output (target), source and target embeddings (inputs, as in T5 v1.1), or
    all three (all). The last two need a joint vocabulary."""
    scaled_input: bool = True
    """Whether embeddings are multiplied by √d_model (Vaswani et al. 2017, section 3.4). In T5 they are not: random ones
    have a standard deviation of 1, instead of 1 / √d_model, unless the output layer shares them without
    scaled_output."""
    scaled_output: bool = False
    """Whether the decoder's output is divided by √d_model before the output layer, as in T5 with tied embeddings."""
    output_bias: bool = True
    """Whether the output layer has a bias. Without, padding has no logit."""
    decoder_start: DecoderStart = "bos"
    """First input of the decoder: BOS, a zero vector as in Marian (zero), or EOS as in M2M100 (eos). With zero, BOS and
    padding have no logits, and their embeddings stay zero."""
    embeddings: VectorsName | None = None
    """Word vectors to initialize the source embeddings, or with tied all both sides': a run folder or a vector file."""
    target_embeddings: VectorsName | None = None
    """Word vectors to initialize the target embeddings: a run folder or a vector file."""
    scale_embeddings: Scaled = False
    # Last: the only size that may differ between runs with the same architecture.
    max_length: int = Field(default=1024, gt=0, le=MOST_POSITIONS)
    """Size of the learned position table, in tokens; ignored by other position encodings."""

    @model_validator(mode="after")
    def _check(self) -> TransformerConfig:
        self.check_layers()
        if self.relative_distance <= self.relative_buckets // 2:
            what = f"relative_distance ({self.relative_distance}) must be above half of relative_buckets"
            raise ValueError(f"{what} ({self.relative_buckets})")
        check_target_embeddings(self.tie_embeddings, self.target_embeddings)
        # Tiled attention does not materialize weights, so it cannot drop them.
        if self.pattern != "none" and (self.attention_dropout or not self.plain_attention):
            what = "scaled_dot with softmax in all heads and attention_dropout 0"
            raise ValueError(f"pattern {self.pattern} needs {what}")
        return self

    @property
    def activation_floats_per_token(self) -> float:
        """Estimate the floats saved for backward per token, for sides of equal length."""
        # About 16 vectors of width d_model and 3 of width d_ff per layer; a token passes through one of the two stacks.
        layers = (self.encoder_layers + self.decoder_layers) / 2
        n_attentions = layers + self.decoder_layers / 2
        vectors = 12 * self.d_model + 4 * self.n_heads * self.d_head + (4 if self.glu else 3) * self.d_ff
        return layers * vectors + n_attentions * self.attention_floats_per_token

    @property
    def embedding_deviation(self) -> float:
        """Return the standard deviation of random embeddings.

        Where the output layer shares them, those of 1 would give logits of √d_model.
        """
        is_output = self.tie_embeddings in ("target", "all") and not self.scaled_output
        return self.d_model**-0.5 if self.scaled_input or is_output else 1.0

    def min_parameters(self, src_vocab_size: int, tgt_vocab_size: int) -> int:
        """Return the number of parameters in matrices, without biases and norms."""
        # A decoder layer has two attentions: self-attention and cross-attention.
        n_attentions = self.encoder_layers + 2 * self.decoder_layers
        attentions = 4 * self.n_heads * self.d_head * n_attentions
        inner = (3 if self.glu else 2) * self.d_ff * (self.encoder_layers + self.decoder_layers)  # up and down
        table = self.max_length + self.position_offset if self.positions == "learned" else 0
        positions = 2 * table  # one per side
        words = n_embeddings(self.tie_embeddings, src_vocab_size, tgt_vocab_size)
        return self.d_model * (attentions + inner + positions + words) + n_attentions * self.n_alignment_parameters


TRANSFORMER_SIZES: Sizes = {
    "low-resource": {
        **{"d_model": 128, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "d_ff": 512},
        **{"dropout": 0.3, "activation_dropout": 0.1},
    },
    "tiny": {"d_model": 128, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "d_ff": 512, "dropout": 0.2},
    "small": {"d_model": 256, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3, "d_ff": 1024, "dropout": 0.25},
    "base": {"d_model": 512, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 6, "d_ff": 2048, "dropout": 0.1},
    "big": {"d_model": 1024, "n_heads": 16, "encoder_layers": 6, "decoder_layers": 6, "d_ff": 4096, "dropout": 0.2},
}


class RnnConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Configuration of recurrent models (Sutskever 2014, Bahdanau 2015, Luong 2015)."""

    kind: Literal["rnn"] = "rnn"
    """Kind of model."""
    # Cells and sizes.
    cell: Literal["gru", "lstm", "rnn"] = "gru"
    """Recurrent cell of encoder and decoder."""
    d_model: int = Field(default=256, gt=0, le=MOST_WIDTH)
    """Width of the embeddings."""
    d_hidden: int = Field(default=512, gt=0, le=MOST_WIDTH)
    """Width of the recurrent states."""
    encoder_layers: int = Field(default=1, gt=0, le=MOST_LAYERS)
    """Number of encoder layers."""
    decoder_layers: int = Field(default=1, gt=0, le=MOST_LAYERS)
    """Number of decoder layers."""
    bidirectional: bool = True
    """Whether the encoder also reads right to left."""
    alignment: Literal["none", AlignmentName] = "additive"
    """Alignment function between decoder states and source positions; none is a fixed context vector."""
    distribution: DistributionName = "softmax"
    """Distribution function, which turns scores into weights; local is Luong's window around a predicted centre."""
    attention_options: AttentionOptions = AttentionOptions()
    """Options of the alignment and distribution functions."""
    # Order within a step: attend, then update the state (Bahdanau), or update, then attend (Luong).
    attention_query: Literal["previous", "current"] = "previous"
    """Attention query: previous decoder state s_(t-1) (Bahdanau) or current s_t (Luong); unused without alignment."""
    input_feeding: bool = False
    """Feed the previous attentional vector into each step (Luong); needs an alignment and attention_query current."""
    decoder_init: Literal["bridge", "layers", "last", "zeros"] = "bridge"
    """Initial decoder state: a learned map of all final encoder states, the same layer's, the top layer's, or zeros."""
    feed_context: bool | None = None
    """Append the context to each input: c_t (query previous) or the final encoder state. Null: yes, unless Luong."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Dropout rate of embeddings, between layers and before the output layer."""
    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Rate at which tokens of both sides, tags among them, lose their embedding in training."""
    tie_embeddings: Tied = "all"
    """Weight tying: target embeddings and output (target), or also source embeddings (all, with a joint vocabulary)."""
    embeddings: VectorsName | None = None
    """Word vectors to initialize the source embeddings, or with tied all both sides': a run folder or a vector file."""
    target_embeddings: VectorsName | None = None
    """Word vectors to initialize the target embeddings: a run folder or a vector file."""
    scale_embeddings: Scaled = False

    @model_validator(mode="after")
    def _check(self) -> RnnConfig:
        check_target_embeddings(self.tie_embeddings, self.target_embeddings)
        # Input feeding uses the readout's output, which depends on the context.
        if self.input_feeding and (self.attention_query != "current" or self.alignment == "none"):
            raise ValueError("input_feeding needs an alignment and attention_query: current")
        if self.alignment != "none":
            check_attention_pair(self.alignment, self.distribution, self.attention_options)
        elif self.distribution != "softmax":
            raise ValueError(f"distribution {self.distribution} needs an alignment other than none")
        elif self.decoder_init == "zeros" and not self.gives_context:
            what = "alignment none, decoder_init zeros and feed_context false"
            raise ValueError(f"{what} leave the decoder without source information")
        if self.bidirectional and self.d_hidden % 2:
            raise ValueError(f"a bidirectional encoder needs an even d_hidden, not {self.d_hidden}")
        if self.decoder_init == "layers" and self.encoder_layers != self.decoder_layers:
            what = f"equal encoder_layers and decoder_layers, not {self.encoder_layers} and {self.decoder_layers}"
            raise ValueError(f"decoder_init=layers requires {what}; decoder_init=bridge allows any number")
        return self

    @property
    def gives_context(self) -> bool:
        """Return whether the context is concatenated to the input of every step."""
        # By default, in all decoders except Luong's.
        if self.feed_context is not None:
            return self.feed_context
        return self.alignment == "none" or self.attention_query == "previous"

    @property
    def max_positions(self) -> int | None:
        """Return the maximum tokens per side, with its end symbol; None: no limit."""
        return self.attention_options.max_source if self.alignment == "location" else None

    @property
    def has_attention(self) -> bool:
        """Return whether the model has attention weights to show."""
        return self.alignment != "none"

    @property
    def activation_floats_per_token(self) -> float:
        """Estimate the floats saved for backward per token, for sides of equal length."""
        states = (self.encoder_layers + self.decoder_layers) / 2 * (16 * self.d_model + 9 * self.d_hidden)
        if self.alignment == "none":
            return states
        kept = saved_activations(self.alignment, self.distribution, self.d_hidden, self.attention_options)
        return states + TYPICAL_LENGTH / 2 * kept  # source tokens have no queries

    def min_parameters(self, src_vocab_size: int, tgt_vocab_size: int) -> int:
        """Return the number of parameters in matrices, without biases and norms."""
        # Gates per cell, and tensors per state (h and c for an LSTM).
        gates, states = {"rnn": (1, 1), "gru": (3, 1), "lstm": (4, 2)}[self.cell]
        d_direction = self.d_hidden // 2 if self.bidirectional else self.d_hidden
        encoder = self.d_model + (self.encoder_layers - 1) * self.d_hidden + self.encoder_layers * d_direction
        # Inputs: the word, the context and the features fed back; plus recurrent and inter-layer matrices.
        inner = 2 * self.decoder_layers - 1 + self.gives_context
        decoder = self.d_model * (1 + self.input_feeding) + self.d_hidden * inner
        bridge = 0
        if self.decoder_init == "bridge":
            bridge = states * self.encoder_layers * self.decoder_layers * self.d_hidden
        # The readout sees the state, and the context if there is one.
        readout = self.d_model * (2 if self.has_attention or self.gives_context else 1)
        words = self.d_model * n_embeddings(self.tie_embeddings, src_vocab_size, tgt_vocab_size)
        if self.alignment != "none":
            words += n_parameters(self.alignment, self.d_hidden, self.d_hidden, self.attention_options)
        return self.d_hidden * (gates * (encoder + decoder) + bridge + readout) + words


RNN_SIZES: Sizes = {
    "low-resource": {"d_model": 128, "d_hidden": 256, "dropout": 0.3},
    "tiny": {"d_model": 128, "d_hidden": 256, "dropout": 0.2},
    "small": {"d_model": 256, "d_hidden": 512, "dropout": 0.3},
    "base": {"d_model": 512, "d_hidden": 1024, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.2},
    "big": {"d_model": 512, "d_hidden": 1024, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.2},
}

ModelConfig = Annotated[TransformerConfig | RnnConfig, Field(discriminator="kind")]

SIZES: dict[str, Sizes] = {"transformer": TRANSFORMER_SIZES, "rnn": RNN_SIZES}  #: kind -> presets
