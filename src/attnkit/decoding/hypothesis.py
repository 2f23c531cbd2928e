"""Result of a search. Must not import torch: compiled searches return it, too."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ReverseScore(NamedTuple):
    """What a model of the opposite direction says: of the source, given a hypothesis."""

    log_prob: float  #: natural log-probability of the source, with its end
    score: float  #: log_prob / length**alpha; length is that of the source in tokens, with its end


@dataclass(frozen=True)
class Hypothesis:
    """Translation of a sentence, with its scores."""

    ids: list[int]  #: target words without BOS_ID and EOS_ID, including a forced prefix
    score: float  #: log-probability / length**alpha plus the coverage term; length includes EOS_ID
    log_prob: float  #: natural logarithm of the probability, including EOS_ID and a forced prefix
    attention: NDArray[np.float32] | None  #: weights (len(ids), S) over the sentence's own source, if recorded
    finished: bool  #: False if truncated at the maximum length
    token_scores: list[float] | None = None
    """Log-probability of each token, with EOS_ID if finished; None unless asked for. The sum is ``log_prob``."""
    reverse: ReverseScore | None = None  #: if a model of the opposite direction has ranked it


NOTHING = Hypothesis([], -math.inf, -math.inf, None, False)
"""Of a sentence without a result: it was stopped, or the numbers of its model are not finite."""


def differences(sums: NDArray[Any]) -> list[float]:
    """Return log-probabilities of tokens from those of the text up to each.

    In float64, where differences of float32 numbers add up to the last of them.
    """
    found: list[float] = np.diff(sums.astype(np.float64), prepend=0.0).tolist()
    return found
