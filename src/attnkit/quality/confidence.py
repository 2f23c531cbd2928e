"""Probability that a translation is acceptable, by its log-probability."""

from __future__ import annotations

from bisect import bisect_left
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from attnkit.io.safe_read import Digest

MAX_LINES = 2000  #: lines that a curve is learned from

Finite = Annotated[float, Field(allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]


class ConfidenceCurve(BaseModel, frozen=True, extra="forbid", strict=True):
    """Probability that a translation is acceptable, linear between its knots."""

    weights: Digest
    """SHA-256 of the weights that translated the development set: others have another curve."""
    n_lines: Annotated[int, Field(ge=1, le=MAX_LINES)]
    """Development lines that the curve was learned from."""
    acceptable: Annotated[float, Field(ge=0, le=100)]
    """Sentence chrF from which a translation was acceptable."""
    scores: Annotated[list[Finite], Field(min_length=1, max_length=MAX_LINES)]
    """Mean log-probabilities per token (nats), ascending."""
    probabilities: Annotated[list[Probability], Field(min_length=1, max_length=MAX_LINES)]
    """Probability at each of the scores; linear between them."""

    @model_validator(mode="after")
    def _check(self) -> ConfidenceCurve:
        if len(self.scores) != len(self.probabilities):
            raise ValueError("there must be as many probabilities as scores")
        if any(a >= b for a, b in zip(self.scores, self.scores[1:], strict=False)):
            raise ValueError("scores must ascend")
        if any(a > b for a, b in zip(self.probabilities, self.probabilities[1:], strict=False)):
            raise ValueError("probabilities must not descend")
        return self

    def probability(self, score: float) -> float:
        """Return the probability at a mean log-probability."""
        k = bisect_left(self.scores, score)
        if k in (0, len(self.scores)):
            return self.probabilities[min(k, len(self.scores) - 1)]
        (x, after), (y, z) = self.scores[k - 1 : k + 1], self.probabilities[k - 1 : k + 1]
        return y + (z - y) * (score - x) / (after - x)
