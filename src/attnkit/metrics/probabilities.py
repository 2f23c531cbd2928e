"""Probabilities as they are printed."""

from __future__ import annotations

_DIGITS = 6  # of a probability: further ones change with the rows that happen to be computed together


def rounded(probability: float) -> float:
    """Return a probability with the digits that do not depend on which rows were computed together."""
    return round(probability, _DIGITS)
