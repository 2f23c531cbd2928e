"""Configuration of BERT and GPT language models; does not import torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.models.attention.config import Alignments, AttentionOptions, Distributions
from attnkit.models.layer_config import ROPE_BASE, LayerConfig, Scaled, Sizes, VectorsName
from attnkit.models.limits import MOST_HEAD_WIDTH, MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from attnkit.models.position_tables import RopeScaling

PositionName = Literal["learned", "sinusoidal", "rotary", "alibi"]
_LONGEST_TEXT = 512
UnitName = Literal["relu", "gelu", "gelu_tanh", "silu"]


class LanguageConfig(LayerConfig, BaseModel, frozen=True, extra="forbid", strict=True):
    """Configuration shared by BERT and GPT: a single Transformer stack."""

    kind: str
    """Kind of model."""
    # Sizes.
    d_model: int = Field(default=256, gt=0, le=MOST_WIDTH)
    """Width of embeddings and layers; a multiple of n_heads."""
    n_heads: int = Field(default=4, gt=0, le=MOST_WIDTH)
    """Number of attention heads per layer."""
    n_layers: int = Field(default=4, gt=0, le=MOST_LAYERS)
    """Number of layers."""
    d_ff: int = Field(default=1024, gt=0, le=MOST_WIDTH)
    """Inner width of the feed-forward sublayer."""
    norm: Literal["post", "pre"] = "post"
    """LayerNorm after each residual sum (post), or before each sublayer and at the end (pre)."""
    norm_eps: float = Field(default=1e-5, gt=0, lt=1)
    """Epsilon of LayerNorm, added to the variance."""
    # All position encodings except learned ones extrapolate.
    positions: PositionName = "learned"
    """Position encoding; learned positions end at max_length, the others allow any length."""
    rope_base: float = Field(default=ROPE_BASE, gt=1, le=1e9)
    """Base of rotary positions: pair i of a head of width d turns by position · base^(-2i / d). Larger bases suit
    longer texts."""
    # Attention.
    alignment: Alignments = "scaled_dot"
    """Alignment function: one for all heads, or a list with one per head."""
    distribution: Distributions = "softmax"
    """Distribution function, which turns scores into weights: one for all heads, or a list with one per head."""
    attention_options: AttentionOptions = AttentionOptions()
    """Options of the alignment and distribution functions."""
    activation: UnitName = "gelu"
    """Activation function of the feed-forward sublayer; gelu_tanh is the approximation of GELU in GPT-2."""
    glu: bool = False
    """Multiply the activation by a second linear map of the input (Shazeer 2020): GEGLU, SwiGLU, ReGLU."""
    bias: bool = True
    """Whether the linear maps of the layers have biases."""
    # Regularization.
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout rate of the embeddings and of the output of every sublayer."""
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout rate of the attention weights."""
    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate after the feed-forward activation."""
    layer_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Rate at which a training step skips each layer (LayerDrop, Fan et al. 2020)."""
    # Embeddings.
    tie_embeddings: bool = True
    """Whether the output layer shares the embedding matrix."""
    embeddings: VectorsName | None = None
    """Word vectors to initialize the embeddings: a run folder or a vector file."""
    scale_embeddings: Scaled = False
    # Length.
    max_length: int = Field(default=512, gt=1, le=MOST_POSITIONS)
    """Size of the learned position table, in tokens; with other positions, the default maximum length of a row."""

    @model_validator(mode="after")
    def _check(self) -> LanguageConfig:
        self.check_layers()
        return self

    @property
    def usual_length(self) -> int:
        """Return the default maximum length of a row in tokens, the same as in training."""
        return min(self.max_length, self.max_positions or self.max_length)

    @property
    def max_text_length(self) -> int:
        """Return the maximum length of a text in tokens, which may exceed max_length."""
        return self.max_positions or max(_LONGEST_TEXT, self.max_length)

    @property
    def activation_floats_per_token(self) -> float:
        """Estimate the floats saved for backward per token."""
        vectors = 12 * self.d_model + 4 * self.n_heads * self.d_head + (4 if self.glu else 3) * self.d_ff
        return self.n_layers * (vectors + self.attention_floats_per_token)

    @property
    def embedding_width(self) -> int:
        """Return the width of the embeddings."""
        return self.d_model

    def min_parameters(self, vocab_size: int) -> int:
        """Return the number of parameters in matrices, without biases and norms."""
        # Query, key, value and output maps, then the feed-forward maps.
        attention = 2 * self.d_model * (self.n_heads + self.n_kept_heads) * self.d_head
        layer = attention + (3 if self.glu else 2) * self.d_model * self.d_ff + self.n_alignment_parameters
        words = vocab_size * (1 if self.tie_embeddings else 2) + (self.max_length if self.positions == "learned" else 0)
        return self.n_layers * layer + words * self.embedding_width


class BertConfig(LanguageConfig, frozen=True):
    """Configuration of BERT, a bidirectional Transformer encoder (Devlin et al. 2019)."""

    normalization: ClassVar[Literal["layer", "rms"]] = "layer"
    n_key_value_heads: ClassVar[int | None] = None
    head_width: ClassVar[int | None] = None
    rope_scaling: ClassVar[None] = None

    kind: Literal["bert"] = "bert"
    """Kind of model."""
    # Norms.
    norm_bias: bool = True
    """Whether LayerNorm has a bias."""
    embedding_norm: bool = False
    """With norm pre, normalize the embeddings instead of the first layer's input of attention (Warner et al. 2024,
    2.1.1). With norm post, embeddings are always normalized."""
    # Global and local layers.
    local_window: int | None = Field(default=None, ge=2, le=MOST_POSITIONS)
    """Width of the sliding window of local layers, in tokens: a token attends to local_window // 2 tokens per side
    (Beltagy et al. 2020). Null: all layers are global."""
    global_every: int = Field(default=3, gt=0, le=MOST_LAYERS)
    """With local_window, every n-th layer from the first on is global, the others are local (Warner et al. 2024,
    2.1.2)."""
    local_rope_base: float = Field(default=ROPE_BASE, gt=1, le=1e9)
    """Base of rotary positions in local layers; rope_base is that of global layers."""
    # Pairs of texts.
    n_segments: int = Field(default=2, ge=1, le=16)
    """Number of segment embeddings: 2 for pairs of texts."""
    separators: int = Field(default=1, ge=1, le=2)
    """Separator tokens between the two texts of a pair: one in BERT, two in RoBERTa (Liu et al. 2019, their code)."""
    d_embedding: int | None = Field(default=None, gt=0, le=MOST_WIDTH)
    """Width of the embeddings and of the output layer, with linear maps to and from d_model (ELECTRA: Clark et al.
    2020). The default is d_model, without maps."""
    pooler: Literal["auto", "tanh", "relu", "gelu", "mlm_head"] = "auto"
    """Activation of the pooler of classifiers: tanh (BERT), relu (DistilBERT) or gelu (ELECTRA). auto: tanh, or with
    rotary positions that of the layers (RoFormer). mlm_head: the masked-LM head without its output layer, for taggers
    and question answering too (ModernBERT)."""
    pooling: Literal["first", "mean"] = "first"
    """What the pooler of classifiers gets: the first token's feature, or the mean of all tokens."""
    head_bias: bool = True
    """Whether the linear map of the masked-LM head has a bias; its output layer always has one."""
    next_sentence: bool = False
    """Whether to train next-sentence prediction too: does the second text of a pair follow the first?"""

    @model_validator(mode="after")
    def _pairs_have_segments(self) -> BertConfig:
        if self.next_sentence and self.n_segments < 2:
            raise ValueError("next_sentence needs n_segments of at least 2, one per text of a pair")
        if self.next_sentence and self.separators > 1:
            raise ValueError("next_sentence needs separators=1, as in BERT")
        if self.next_sentence and self.pooler == "mlm_head":
            raise ValueError("next_sentence needs a pooler other than mlm_head")
        if self.pooler == "mlm_head" and self.d_embedding is not None:
            raise ValueError("pooler mlm_head needs d_embedding unset")
        if self.d_embedding is not None and self.embeddings is not None:
            raise ValueError("embeddings of the model's width need d_embedding unset")
        if self.d_embedding is not None and self.positions == "sinusoidal" and self.d_embedding % 2:
            raise ValueError(f"sinusoidal positions need an even d_embedding, not {self.d_embedding}")
        return self

    @model_validator(mode="after")
    def _check_layers_differ(self) -> BertConfig:
        if self.embedding_norm and self.norm == "post":
            raise ValueError("embedding_norm needs norm pre: with post, embeddings are always normalized")
        if self.local_window is not None and not self.plain_attention:
            raise ValueError("local_window needs alignment scaled_dot with distribution softmax in all heads")
        return self

    @property
    def embedding_width(self) -> int:
        """Return the width of the embeddings, which is d_model unless d_embedding is set."""
        return self.d_embedding or self.d_model

    @property
    def pooler_activation(self) -> str:
        """Return the activation of the pooler; unused with pooler mlm_head."""
        own = self.activation if self.positions == "rotary" else "tanh"
        return self.pooler if self.pooler in ("tanh", "relu", "gelu") else own

    def is_local(self, layer: int) -> bool:
        """Return whether a layer attends within a window; layers count from 0."""
        return self.local_window is not None and layer % self.global_every > 0

    def generator_architecture(self, size: float) -> BertConfig:
        """Return the architecture of a generator with a share of the heads, for ELECTRA.

        Heads are as wide as the encoder's, and at least one; the ratio of the inner width to the width is kept, too.
        Embeddings are those of the encoder, with a map to the generator's width (Clark et al. 2020, section 3.2).
        """
        n_heads = max(1, round(size * self.n_heads))
        width = n_heads * self.d_head
        changes = {
            "n_heads": n_heads,
            "d_model": width,
            "d_ff": max(1, self.d_ff * width // self.d_model),
            "d_embedding": None if width == self.embedding_width else self.embedding_width,
            "pooler": "auto",
            # Of functions that differ between heads, those of the first ones.
            "alignment": self.alignment if isinstance(self.alignment, str) else self.alignment[:n_heads],
            "distribution": self.distribution if isinstance(self.distribution, str) else self.distribution[:n_heads],
        }
        return self.model_copy(update=changes)


class ElectraConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Settings of ELECTRA's pretraining (Clark et al. 2020)."""

    generator_size: float = Field(default=0.25, gt=0, le=1)
    """Width of the generator as a share of the encoder's, rounded to whole heads, at least one; it has as many layers.
    The paper found 1/4 to 1/2 best (section 3.2)."""
    detection_weight: float = Field(default=50.0, gt=0, le=1e6)
    """Factor of the detection loss, to which the loss of the generator is added."""


class GptConfig(LanguageConfig, frozen=True):
    """Configuration of GPT, a causal Transformer decoder (Radford et al. 2018, 2019)."""

    norm_bias: ClassVar[bool] = True

    kind: Literal["gpt"] = "gpt"
    """Kind of model."""
    norm: Literal["post", "pre"] = "pre"
    """LayerNorm before each sublayer and at the end, as in GPT-2 (pre), or after each residual sum (post)."""
    activation: UnitName = "gelu_tanh"
    """Activation function of the feed-forward sublayer; GPT-2 uses the tanh approximation of GELU."""
    normalization: Literal["layer", "rms"] = "layer"
    """LayerNorm, or RMSNorm (rms: Zhang and Sennrich 2019), which subtracts no mean and has no bias."""
    n_key_value_heads: int | None = Field(default=None, gt=0, le=MOST_WIDTH)
    """Heads of keys and values, each shared by a group of query heads (Ainslie et al. 2023); n_heads is a multiple of
    it. The key-value cache shrinks with them. The default is n_heads."""
    head_width: int | None = Field(default=None, gt=0, le=MOST_HEAD_WIDTH)
    """Width of a head. The default is d_model / n_heads; with another one, d_model need not be a multiple of
    n_heads."""
    rope_scaling: RopeScaling | None = None
    """Scaling of rotary positions, for texts longer than those of pretraining. Null: none."""

    @model_validator(mode="after")
    def _check_groups(self) -> GptConfig:
        kept = self.n_key_value_heads
        if kept is not None and self.n_heads % kept:
            raise ValueError(f"n_heads ({self.n_heads}) must be a multiple of n_key_value_heads ({kept})")
        if kept not in (None, self.n_heads) and not self.plain_attention:
            raise ValueError("n_key_value_heads below n_heads need alignment scaled_dot with distribution softmax")
        if self.rope_scaling is not None and self.positions != "rotary":
            raise ValueError(f"rope_scaling needs positions=rotary, not {self.positions}")
        return self


# BERT's published sizes (Devlin et al. 2019; Turc et al. 2019): layers / width 2/128, 4/256, 4/512, 12/768.
_SIZES: Sizes = {
    "tiny": {"d_model": 128, "n_heads": 2, "n_layers": 2, "d_ff": 512},
    "mini": {"d_model": 256, "n_heads": 4, "n_layers": 4, "d_ff": 1024},
    "small": {"d_model": 512, "n_heads": 8, "n_layers": 4, "d_ff": 2048},
    "base": {"d_model": 768, "n_heads": 12, "n_layers": 12, "d_ff": 3072},
}
LANGUAGE_SIZES: dict[str, Sizes] = {"bert": _SIZES, "gpt": _SIZES}  #: kind -> presets
