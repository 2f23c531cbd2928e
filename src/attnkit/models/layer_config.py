"""Layer settings shared by all models, and shared checks; does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from attnkit.models.attention.config import (
    AlignmentName,
    Alignments,
    AttentionOptions,
    DistributionName,
    Distributions,
    incompatibility,
    n_parameters,
    per_head,
    saved_activations,
)

if TYPE_CHECKING:
    from attnkit.models.position_tables import RopeScaling

Tied = Literal["none", "target", "all"]
TransformerTied = Literal["none", "target", "inputs", "all"]
ROPE_BASE = 10000.0  #: base of rotary positions (Su et al. 2021)
TYPICAL_LENGTH = 32
"""Sentence length assumed in memory estimates, in tokens; attention memory per token is proportional to it."""
Sizes = dict[str, dict[str, Any]]  #: preset -> fields that differ from the defaults
VectorsName = Annotated[str, Field(min_length=1, max_length=4096)]
"""Run folder or file of word vectors; the model configuration stores only the name."""
Scaled = Annotated[
    bool, Field(description="Whether to rescale pretrained vectors to the standard deviation of random embeddings.")
]


def ties_sides(tied: TransformerTied) -> bool:
    """Return whether source and target share one embedding matrix."""
    return tied in ("inputs", "all")


def n_embeddings(tied: TransformerTied, src_vocab_size: int, tgt_vocab_size: int) -> int:
    """Return the number of rows in all embedding matrices and the output layer."""
    n_target = tgt_vocab_size * (2 if tied in ("none", "inputs") else 1)
    return n_target + (0 if ties_sides(tied) else src_vocab_size)


def check_attention_pair(alignment: AlignmentName, distribution: DistributionName, options: AttentionOptions) -> None:
    """Raise ValueError with the reason if two functions cannot be combined."""
    reason = incompatibility(alignment, distribution, options)
    if reason is not None:
        raise ValueError(f"alignment {alignment} cannot be combined with distribution {distribution}: {reason}")


def check_target_embeddings(tied: TransformerTied, target_embeddings: str | None) -> None:
    """Raise ValueError if target vectors are given but both sides share one matrix."""
    if ties_sides(tied) and target_embeddings is not None:
        what = f"with {tied}, both sides share one matrix"
        raise ValueError(f"target_embeddings need tie_embeddings target or none: {what}")


class LayerConfig:
    """Checks and derived sizes of Transformer layers; each model declares the fields."""

    if TYPE_CHECKING:  # pydantic would make these the first fields of every model
        d_model: int
        n_heads: int
        d_ff: int
        norm: Literal["post", "pre"]
        norm_eps: float
        positions: str
        max_length: int
        alignment: Alignments
        distribution: Distributions
        attention_options: AttentionOptions
        activation: str
        dropout: float
        attention_dropout: float
        activation_dropout: float
        layer_dropout: float

        @property
        def glu(self) -> bool: ...  # these are not fields of every model
        @property
        def bias(self) -> bool: ...
        @property
        def norm_bias(self) -> bool: ...
        @property
        def rope_base(self) -> float: ...
        @property
        def normalization(self) -> Literal["layer", "rms"]: ...
        @property
        def rope_scaling(self) -> RopeScaling | None: ...
        @property
        def n_key_value_heads(self) -> int | None: ...
        @property
        def head_width(self) -> int | None: ...
        @property
        def relative_buckets(self) -> int: ...
        @property
        def relative_distance(self) -> int: ...

    def check_layers(self) -> None:
        """Raise ValueError if widths, positions and attention functions do not fit."""
        # Heads split the width evenly; rotations and sinusoids use pairs of dimensions.
        if self.head_width is None and self.d_model % self.n_heads:
            raise ValueError(f"d_model ({self.d_model}) must be a multiple of n_heads ({self.n_heads})")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(f"rotary positions need an even head width, not {self.d_head}")
        if self.positions in ("sinusoidal", "fairseq") and self.d_model % 2:
            raise ValueError(f"{self.positions} positions need an even d_model, not {self.d_model}")
        for name, names in (("alignment", self.alignment), ("distribution", self.distribution)):
            if not isinstance(names, str) and len(names) != self.n_heads:
                what = f"{name} names {len(names)} functions, but n_heads is {self.n_heads}"
                raise ValueError(f"{what}: give one name for all heads or one per head")
        for align, distribute in self.heads:
            check_attention_pair(align, distribute, self.attention_options)
        if self.positions in ("alibi", "relative") and "normalize" in per_head(self.distribution, self.n_heads):
            what = f"non-negative scores only, but positions {self.positions} add negative numbers"
            raise ValueError(f"distribution normalize takes {what}")

    @property
    def d_head(self) -> int:
        """Return the width of a head."""
        return self.head_width or self.d_model // self.n_heads

    @property
    def n_kept_heads(self) -> int:
        """Return the number of heads of keys and values."""
        return self.n_key_value_heads or self.n_heads

    @property
    def heads(self) -> list[tuple[AlignmentName, DistributionName]]:
        """Return the alignment and distribution names of each head."""
        names = per_head(self.alignment, self.n_heads), per_head(self.distribution, self.n_heads)
        return list(zip(*names, strict=True))

    @property
    def plain_attention(self) -> bool:
        """Return whether every head uses scaled dot x softmax."""
        return set(self.heads) == {("scaled_dot", "softmax")}

    @property
    def score_scale(self) -> float | None:
        """Return the factor of q·k if it is that of every head, with softmax; else None."""
        scales = {"scaled_dot": self.d_head**-0.5, "dot": 1.0}
        names = {align for align, distribute in self.heads if distribute == "softmax"}
        same = len(set(self.heads)) == 1 == len(names)
        return scales.get(names.pop()) if same else None

    @property
    def has_attention(self) -> bool:
        """Return whether the model has attention weights to show."""
        return True

    @property
    def max_positions(self) -> int | None:
        """Return the maximum tokens per row or side, with its end symbol; None: no limit."""
        limits = [self.max_length] if self.positions == "learned" else []
        if "location" in per_head(self.alignment, self.n_heads):
            limits.append(self.attention_options.max_source)
        return min(limits, default=None)

    @property
    def attention_floats_per_token(self) -> float:
        """Estimate the floats saved for backward per token by one attention's scores."""
        return TYPICAL_LENGTH * sum(
            saved_activations(align, distribute, self.d_head, self.attention_options)
            for align, distribute in self.heads
        )

    @property
    def n_alignment_parameters(self) -> int:
        """Return the number of alignment parameters of one attention sublayer."""
        return sum(n_parameters(align, self.d_head, self.d_head, self.attention_options) for align, _ in self.heads)
