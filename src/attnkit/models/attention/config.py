"""Names, options and compatibility of attention functions; does not import torch."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Discriminator, Field, Tag

# The twelve alignment functions.
AlignmentName = Literal[
    "similarity",
    "dot",
    "scaled_dot",
    "general",
    "biased_general",
    "activated_general",
    "kernel",
    "concat",
    "additive",
    "deep",
    "location",
    "feature",
]
DistributionName = Literal["softmax", "normalize", "hard", "sigmoid", "sparsemax", "entmax15", "local"]
SimilarityName = Literal["cosine", "pearson", "euclidean", "gaussian"]
ActivationName = Literal["tanh", "relu", "sigmoid", "softplus", "gelu", "silu"]
FeatureMapName = Literal["favor", "favor_hyperbolic", "elu"]
KeyFeatureName = Literal["identity", "position", "square"]


def _form(value: Any) -> str:
    """Return the union tag of a value: ``each`` for a list, ``all`` for one name."""
    return "each" if isinstance(value, list | tuple) else "all"


# One name, or a list with one per head; the tag keeps error messages short.
Alignments = Annotated[
    Annotated[AlignmentName, Tag("all")] | Annotated[tuple[AlignmentName, ...], Tag("each")], Discriminator(_form)
]
"""One name for all heads, or one per head."""
Distributions = Annotated[
    Annotated[DistributionName, Tag("all")] | Annotated[tuple[DistributionName, ...], Tag("each")], Discriminator(_form)
]
Name = TypeVar("Name", AlignmentName, DistributionName)

ALIGNMENT_NAMES: tuple[AlignmentName, ...] = get_args(AlignmentName)
DISTRIBUTION_NAMES: tuple[DistributionName, ...] = get_args(DistributionName)

SAME_WIDTH: frozenset[AlignmentName] = frozenset({"similarity", "dot", "scaled_dot", "kernel"})
"""Alignments that compare queries and keys elementwise and therefore need equal widths."""
NOT_NEGATIVE: frozenset[ActivationName] = frozenset({"relu", "sigmoid", "softplus"})
"""Activations with non-negative values."""


class AttentionOptions(BaseModel, frozen=True, extra="forbid", strict=True):
    """Options of alignment and distribution functions."""

    # Functions with a hidden layer.
    d_hidden: int | None = Field(default=None, gt=0, le=1 << 16)
    """Hidden width of concat, additive, deep, feature and local. Null: the width of the query."""
    activation: ActivationName = "tanh"
    """Activation function of activated_general, concat, additive, deep and feature."""
    # similarity.
    similarity: SimilarityName = "cosine"
    """Similarity: cosine, Pearson correlation, -|q - k| (euclidean) or exp(-|q - k|^2 / (2 sqrt(d))) (gaussian)."""
    strength: float = Field(default=1.0, gt=0, le=1e6)
    """Factor of the similarity (key strength, Graves et al. 2014)."""
    # kernel.
    feature_map: FeatureMapName = "favor"
    """Feature map of kernel: positive random features (favor, FAVOR+), the same with mirrored directions
    (favor_hyperbolic, less variance), or elu(x) + 1 (elu). FAVOR+ approximates softmax for short vectors only: at head
    width 64 and 128 features up to norms of about 2."""
    n_features: int = Field(default=128, gt=0, le=1 << 13)
    """Number of random features of FAVOR+; for short vectors, doubling it halves the mean squared error."""
    # deep.
    deep_layers: int = Field(default=3, ge=2, le=64)
    """Number of layers of deep, including the layer that computes the score."""
    # location.
    max_source: int = Field(default=1024, gt=0, le=1 << 20)
    """Maximum number of positions that location can score, in tokens; longer sentences are rejected."""
    # feature.
    first_feature: KeyFeatureName = "identity"
    """First input of feature: the key itself, its sinusoidal position, or its elementwise square."""
    second_feature: KeyFeatureName = "position"
    """Second input of feature; same choices as first_feature."""
    # local, a distribution.
    window: int = Field(default=10, gt=0, le=1 << 20)
    """Window of local: maximum distance of a key from the predicted centre, in positions."""


def incompatibility(alignment: AlignmentName, distribution: DistributionName, options: AttentionOptions) -> str | None:
    """Return the reason why two functions cannot be combined, or None if they can."""
    # normalize divides by the sum of scores, which may vanish or change sign; all others accept scores of any sign.
    if distribution != "normalize" or alignment == "kernel":
        return None
    signed = "its scores may be negative, and normalize divides scores by their sum"
    if alignment == "similarity":
        remedy = f"{signed}; set attention_options.similarity to gaussian"
        return None if options.similarity == "gaussian" else remedy
    if alignment == "activated_general":
        choices = ", ".join(sorted(NOT_NEGATIVE))
        remedy = f"{signed}; set attention_options.activation to one of {choices}"
        return None if options.activation in NOT_NEGATIVE else remedy
    return signed


def per_head(names: Name | Sequence[Name], n_heads: int) -> tuple[Name, ...]:
    """Expand one name, or a list with one name per head, to one name per head.

    Raises:
        ValueError: The list does not have ``n_heads`` names.
    """
    if isinstance(names, str):
        return (names,) * n_heads
    if len(names) != n_heads:
        raise ValueError(f"got {len(names)} functions for {n_heads} heads; give one name for all or one per head")
    return tuple(names)


def n_parameters(alignment: AlignmentName, d_query: int, d_key: int, options: AttentionOptions) -> int:
    """Return the number of matrix parameters of one head's alignment function."""
    d_hidden = options.d_hidden or d_query
    match alignment:
        case "general" | "biased_general" | "activated_general":
            return d_query * d_key
        case "concat" | "additive":
            return d_hidden * (d_query + d_key)
        case "deep":
            return d_hidden * (d_query + d_key) + (options.deep_layers - 2) * d_hidden**2
        case "location":
            return options.max_source * d_query
        case "feature":
            return 2 * d_hidden * d_key
        case _:
            return 0


def saved_activations(
    alignment: AlignmentName, distribution: DistributionName, d_query: int, options: AttentionOptions
) -> int:
    """Estimate the activations saved for backward per score of one head; 0 if fused."""
    if (alignment, distribution) in (("scaled_dot", "softmax"), ("kernel", "normalize")):
        return 0
    # concat and additive keep the sum and its activation, deep two tensors per layer.
    inner = {"concat": 2, "additive": 2, "deep": 2 * options.deep_layers}.get(alignment, 0)
    return 4 + inner * (options.d_hidden or d_query)
