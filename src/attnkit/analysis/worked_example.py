"""The lecture notes' example: what the decoder looks at in "The cat sat on the mat", by any pair of functions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from attnkit.errors import UsageError
from attnkit.models.attention.alignment import make_alignment
from attnkit.models.attention.attend import attend
from attnkit.models.attention.config import AlignmentName, AttentionOptions, DistributionName, incompatibility
from attnkit.models.attention.distribution import make_distribution
from attnkit.plotting.worked_example import ExampleStep, WorkedExample

WORDS = ("The", "cat", "sat", "on", "the", "mat")
KEYS = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 1.0, 0.0), (0.0, 1.0, 1.0), (1.0, 0.0, 1.0))
"""Keys and values alike."""
QUERY = (0.0, 0.0, 1.0)
"""Of the fourth target word, "assis"."""
OPTIONS = AttentionOptions(d_hidden=3, n_features=4, max_source=len(WORDS), window=2)
"""As few parameters as there can be, for all of them are printed."""


@torch.no_grad()
def worked_example(alignment: AlignmentName, distribution: DistributionName, seed: int) -> WorkedExample:
    """Return the example step by step in double precision; parameters are drawn by the seed.

    Raises:
        UsageError: the two functions have no meaning together.
    """
    reason = incompatibility(alignment, distribution, OPTIONS)
    if reason is not None:
        raise UsageError(f"{alignment} and {distribution} have no meaning together: {reason}", where="--distribution")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width = len(QUERY)
        align = make_alignment(alignment, width, width, OPTIONS).double()
        distribute = make_distribution(distribution, width, OPTIONS)
    drawn: dict[str, Tensor] = dict(align.state_dict())
    if isinstance(distribute, nn.Module):
        drawn |= distribute.double().state_dict()
    query = torch.tensor(QUERY, dtype=torch.float64)[None, None, None]  # (B, H, T, d), all 1 but d
    keys = torch.tensor(KEYS, dtype=torch.float64)[None, None]
    scores = align(query, keys)
    context, weights = attend(query, keys, keys, align, distribute)
    found = scores.flatten().tolist()
    steps = [*_towards(alignment, found), *_shares(distribution, found)]
    return WorkedExample(
        words=WORDS,
        query=QUERY,
        keys=KEYS,
        pair=(alignment, distribution),
        seed=seed if drawn else None,
        parameters={name: tensor.double().tolist() for name, tensor in drawn.items()},
        steps=steps,
        scores=found,
        weights=weights.flatten().tolist(),
        context=context.flatten().tolist(),
    )


def _towards(alignment: AlignmentName, scores: list[float]) -> list[ExampleStep]:
    """Return what comes before the scores: the products that scaled dot divides."""
    if alignment != "scaled_dot":
        return []
    root = math.sqrt(len(QUERY))
    return [ExampleStep("dot products", "q · k", [score * root for score in scores])]


def _shares(distribution: DistributionName, scores: list[float]) -> list[ExampleStep]:
    """Return what comes between scores and weights: the exponentials that softmax divides."""
    if distribution != "softmax":
        return []
    return [ExampleStep("exponentials", "exp(s)", [math.exp(score) for score in scores])]
