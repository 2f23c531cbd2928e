"""Alignment functions a(q, k): how well a query fits each key. The table of all twelve, by name.

Letters: B batch, H heads, T queries, S keys. Each class splits its work: ``prepare`` is what depends on the keys alone
and is done once per sentence, ``score`` is the rest; calling the module does both. Every head has weights of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from attnkit.models.attention.base import AlignmentModule
from attnkit.models.attention.config import SAME_WIDTH, AlignmentName, AttentionOptions
from attnkit.models.attention.dot_product import (
    ActivatedGeneral,
    BiasedGeneral,
    Dot,
    General,
    Kernel,
    ScaledDot,
    Similarity,
)
from attnkit.models.attention.mlp import Additive, Concat, Deep, Feature, Location

# The one table: a name in a configuration finds its class here.
ALIGNMENTS: dict[AlignmentName, Callable[[int, int, AttentionOptions, int], AlignmentModule]] = {
    "similarity": Similarity,
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "biased_general": BiasedGeneral,
    "activated_general": ActivatedGeneral,
    "kernel": Kernel,
    "concat": Concat,
    "additive": Additive,
    "deep": Deep,
    "location": Location,
    "feature": Feature,
}
"""Name -> class, made from the widths of queries and keys, the options and the number of heads."""


def make_alignment(
    name: AlignmentName,
    d_query: int,
    d_key: int,
    options: AttentionOptions | None = None,
    n_heads: int = 1,
) -> AlignmentModule:
    """Return an alignment function; ValueError where it needs queries and keys of one width and they are not."""
    # These compare number by number; all others project at least one side.
    if name in SAME_WIDTH and d_query != d_key:
        raise ValueError(f"{name} needs queries and keys of one width, not {d_query} and {d_key}")
    return ALIGNMENTS[name](d_query, d_key, options or AttentionOptions(), n_heads)
