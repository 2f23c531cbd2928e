"""What the configurations of several kinds of models share: bounds, names, refusals. Free of torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from attnkit.models.attention.config import AlignmentName, AttentionOptions, DistributionName, incompatibility

Tied = Literal["none", "target", "all"]
MOST_WIDTH, MOST_LAYERS, MOST_POSITIONS = 1 << 16, 256, 1 << 20
"""Far above any model of sentences; even the outline of a larger one would take long to make."""
TYPICAL_LENGTH = 32
"""Tokens of a sentence as estimates of memory take them: what attention needs per token grows with their number."""
Sizes = dict[str, dict[str, Any]]
"""Preset -> what a model of that size is built from; other fields have their defaults."""
VectorsName = Annotated[str, Field(min_length=1, max_length=4096)]
"""Where word vectors lie: a name and no more to whoever builds a model."""
Scaled = Annotated[
    bool, Field(description="Whether given vectors are scaled to the spread (std) of the embeddings that are drawn.")
]
"""A choice about such vectors."""

LOCATION_LIMIT = "location attention needs model.attention_options.max_source"


def n_embeddings(tied: Tied, src_vocab_size: int, tgt_vocab_size: int) -> int:
    """Return how many vectors the embeddings and the output layer hold."""
    return tgt_vocab_size * (2 if tied == "none" else 1) + (0 if tied == "all" else src_vocab_size)


def check_attention_pair(alignment: AlignmentName, distribution: DistributionName, options: AttentionOptions) -> None:
    """Raise ValueError where a pair has no meaning, with the reason."""
    reason = incompatibility(alignment, distribution, options)
    if reason is not None:
        raise ValueError(f"alignment {alignment} with distribution {distribution} has no meaning: {reason}")


def check_target_embeddings(tied: Tied, target_embeddings: str | None) -> None:
    """Raise ValueError where the target side is given vectors of its own and has no matrix of its own."""
    if tied == "all" and target_embeddings is not None:
        raise ValueError("target_embeddings need tie_embeddings target or none: with all, both sides share one matrix")
