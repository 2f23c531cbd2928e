"""Exact match and F1 of answers, in percent, as in the SQuAD evaluation scripts.

Versions 1.1 (Rajpurkar et al. 2016, section 6.1) and 2.0 (2018). An empty string means no answer.
"""

import functools
import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Version = Literal["1.1", "2.0"]
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class AnswerScores:
    """Mean scores over a set of questions, in percent."""

    exact: float
    f1: float
    n_questions: int

    def to_dict(self) -> dict[str, float]:
        """Return the scores as a dictionary for ``--json``."""
        return {"questions": self.n_questions, "exact": self.exact, "f1": self.f1}


@dataclass(frozen=True)
class AllScores:
    """Scores of all, answerable and unanswerable questions; None if a subset is empty."""

    all: AnswerScores
    answered: AnswerScores | None  #: questions with an answer
    unanswered: AnswerScores | None  #: questions without an answer


@functools.lru_cache(maxsize=1 << 16)
def normalize(answer: str) -> str:
    """Lower-case an answer and drop ASCII punctuation, English articles, extra spaces.

    >>> normalize("The Denver  Broncos!")
    'denver broncos'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(found: str, references: Sequence[str], version: Version = "2.0") -> float:
    """Return 1 if an answer equals a reference after normalization, else 0."""
    return float(any(normalize(found) == normalize(reference) for reference in _references(references, version)))


def f1(found: str, references: Sequence[str], version: Version = "2.0") -> float:
    """Return the best word F1, from 0 to 1, of an answer against any reference.

    If the answer or the reference has no words, version 2.0 gives 1 if both have none, else 0; version 1.1 gives 0.
    """
    ours, best = normalize(found).split(), 0.0
    for reference in _references(references, version):
        theirs = normalize(reference).split()
        if version == "2.0" and not (ours and theirs):
            best = max(best, float(ours == theirs))
        elif same := (Counter(ours) & Counter(theirs)).total():
            best = max(best, 2 * same / (len(ours) + len(theirs)))
    return best


def answer_scores(found: Sequence[str], expected: Sequence[Sequence[str]], version: Version = "2.0") -> AllScores:
    """Return the scores of answers; unanswerable questions have no references.

    Raises ``ValueError`` for no questions, a wrong number of answers, or in version 1.1 a question without references.
    """
    if len(found) != len(expected) or not found:
        raise ValueError(f"{len(found)} answers for {len(expected)} questions")
    scores = [
        (exact_match(answer, references, version), f1(answer, references, version))
        for answer, references in zip(found, expected, strict=True)
    ]
    kinds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for score, references in zip(scores, expected, strict=True):
        kinds[bool(references)].append(score)
    return AllScores(_mean(scores), *(_mean(part) if part else None for part in kinds.values()))


def best_threshold(
    found: Sequence[str], expected: Sequence[Sequence[str]], surety: Sequence[float]
) -> tuple[float, AllScores]:
    """Return the no-answer threshold with the best SQuAD 2.0 F1, and its scores.

    ``found`` are the best answers before abstention: an answer is dropped if its ``surety`` of no answer exceeds the
    threshold. Of equivalent thresholds, the one with the fewest digits is returned.
    """
    gains = [f1(answer, refs) - (not refs) for answer, refs in zip(found, expected, strict=True)]
    order = sorted(range(len(found)), key=surety.__getitem__)
    best = total = 0.0
    n_given = 0
    for number, i in enumerate(order, 1):
        total += gains[i]
        if total > best and (number == len(order) or surety[order[number]] > surety[i]):
            best, n_given = total, number
    bounds = [-math.inf, *(surety[i] for i in order), math.inf]
    threshold = _between(bounds[n_given], bounds[n_given + 1])
    given = ["" if sure > threshold else answer for answer, sure in zip(found, surety, strict=True)]
    return threshold, answer_scores(given, expected)


def _between(low: float, high: float) -> float:
    """Return a number with few digits in [low, high)."""
    if low == -math.inf:
        return 0.0 if high == math.inf else math.floor(high) - 1.0
    if high == math.inf:
        return float(math.ceil(low))
    middle = low + (high - low) / 2
    for digits in range(17):
        rounded = round(middle, digits)
        if low <= rounded < high:
            return rounded
    return middle if middle < high else low


def _references(references: Sequence[str], version: Version) -> Sequence[str]:
    if version == "1.1":
        if not references:
            raise ValueError("in SQuAD 1.1, every question must have a reference answer")
        return references
    return [reference for reference in references if normalize(reference)] or [""]


def _mean(scores: Sequence[tuple[float, float]]) -> AnswerScores:
    n = len(scores)
    return AnswerScores(100 * sum(exact for exact, _ in scores) / n, 100 * sum(f1 for _, f1 in scores) / n, n)
