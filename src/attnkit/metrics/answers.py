"""Exact match and F1 of answers computed like the SQuAD 1.1 and 2.0 evaluation scripts. Strings in, percent out.

Rajpurkar et al. 2016, section 6.1, and 2018; no answer is the empty string.
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
    """Means over some questions, in percent."""

    exact: float
    f1: float
    n_questions: int

    def as_dictionary(self) -> dict[str, float]:
        """Return plain data for ``--json``."""
        return {"questions": self.n_questions, "exact": self.exact, "f1": self.f1}


@dataclass(frozen=True)
class AllScores:
    """Scores of all questions, and of the two kinds by themselves where there are some."""

    all: AnswerScores
    answered: AnswerScores | None  #: questions with an answer
    unanswered: AnswerScores | None  #: questions without an answer


@functools.lru_cache(maxsize=1 << 16)
def normalize(answer: str) -> str:
    """Return an answer in lower case, without ASCII punctuation, English articles and superfluous white space.

    >>> normalize("The Denver  Broncos!")
    'denver broncos'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(found: str, references: Sequence[str], version: Version = "2.0") -> float:
    """Return 1 if an answer is one of the references once all are normalized, else 0."""
    return float(any(normalize(found) == normalize(reference) for reference in _references(references, version)))


def f1(found: str, references: Sequence[str], version: Version = "2.0") -> float:
    """Return the best F1, 0 to 1, of an answer's words against one of the references.

    If an answer or a reference has no words, 2.0 gives 1 where neither has, and 1.1 gives 0 in any case.
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

    Raises ``ValueError`` without questions, if answers are missing, or in 1.1 for a question without references.
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
    """Return the threshold of ``surety`` of no answer with the highest F1 of version 2.0, and the scores with it.

    ``found`` are the best answers, whether or not they would be given. Of several thresholds, the one with the fewest
    digits is returned.
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
    """Return a number of few digits from low, included, to high, which is not."""
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
            raise ValueError("in version 1.1 every question has an answer")
        return references
    return [reference for reference in references if normalize(reference)] or [""]


def _mean(scores: Sequence[tuple[float, float]]) -> AnswerScores:
    n = len(scores)
    return AnswerScores(100 * sum(exact for exact, _ in scores) / n, 100 * sum(f1 for _, f1 in scores) / n, n)
