"""BLEU as the lecture notes write it: a brevity factor times clipped n-gram precisions with weights 1/2, 1/4, 1/8…

The formula is d2l's (Zhang et al., "Dive into Deep Learning", section 10.7.6): one label, one score from 0 to 1.
Not to be compared with sacreBLEU's, whose orders weigh the same and are pooled over the corpus.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def clipped_matches(pred: Sequence[str], label: Sequence[str], order: int) -> tuple[int, int]:
    """Count the n-grams of the prediction that the label has too, each at most as often as there; and all of them.

    >>> clipped_matches(list("ABBCD"), list("ABCDEF"), 1)
    (4, 5)
    """
    found, allowed = _ngrams(pred, order), _ngrams(label, order)
    return sum((found & allowed).values()), sum(found.values())


def notes_bleu(pred: Sequence[str], label: Sequence[str], max_order: int = 4) -> float:
    """Return exp(min(0, 1 - len(label) / len(pred))) · Π p_n^(1/2^n) for n = 1 to ``max_order``, from 0 to 1.

    Orders that the prediction is too short for are left out, as in d2l's code. An empty prediction scores 0, unless
    the label is empty too: that is 1.

    Raises:
        ValueError: ``max_order`` is not positive.
    """
    if max_order < 1:
        raise ValueError(f"max_order must be at least 1, not {max_order}")
    if not pred:
        return 0.0 if label else 1.0
    score = math.exp(min(0.0, 1 - len(label) / len(pred)))
    for order in range(1, min(max_order, len(pred)) + 1):
        n_matches, n_ngrams = clipped_matches(pred, label, order)
        score *= (n_matches / n_ngrams) ** (0.5**order)
    return score


def _ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))
