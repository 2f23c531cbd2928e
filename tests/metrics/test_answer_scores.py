"""Exact match and F1 of answers: the numbers of SQuAD's two scripts, and a threshold found by trying them all."""

from __future__ import annotations

import random

import pytest

from attnkit.metrics.answers import answer_scores, best_threshold, exact_match, f1, normalize

# (answer, references, (exact, F1) of 2.0, the same of 1.1 or None where it has no such question), from both scripts.
SCRIPTS = [
    ("The Denver Broncos!", ["Denver Broncos", "the broncos"], (1, 1), (1, 1)),
    ("in 1990 (August)", ["August 1990", "1990"], (0, 0.8), (0, 0.8)),
    ("", [], (1, 1), None),
    ("nothing", [], (0, 0), None),
    ("", ["a"], (1, 1), (1, 0)),  # a reference without a word: the scripts differ
    ("the", ["a"], (1, 1), (1, 0)),
    ("U.S.", ["US", "United States"], (1, 1), (1, 1)),
    ("Saint-Denis", ["Saint Denis"], (0, 0), (0, 0)),  # the hyphen goes, nothing comes in its place
    ("a cat a dog", ["cat cat dog"], (0, 0.8), (0, 0.8)),  # words count as often as they are there
    ("“quoted”", ["quoted"], (0, 0), (0, 0)),  # only ASCII's punctuation goes
]


@pytest.mark.parametrize(("found", "references", "second", "first"), SCRIPTS)
def test_scores_are_the_scripts(
    found: str, references: list[str], second: tuple[float, float], first: tuple[float, float] | None
) -> None:
    assert (exact_match(found, references), f1(found, references)) == pytest.approx(second)
    if first is not None:
        assert (exact_match(found, references, "1.1"), f1(found, references, "1.1")) == pytest.approx(first)


def test_both_kinds_of_questions_are_scored_by_themselves() -> None:
    found = ["cat", "", "the dog", "x"]
    scores = answer_scores(found, [["a cat"], [], ["dog barks", "mouse"], []])
    assert (scores.all.exact, scores.all.n_questions) == (50, 4)
    assert scores.answered is not None and scores.unanswered is not None
    assert scores.answered.f1 == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert (scores.unanswered.exact, scores.unanswered.n_questions) == (50, 2)
    assert answer_scores(["cat"], [["cat"]], "1.1").unanswered is None


def test_articles_go_as_words_only() -> None:
    assert normalize("An apple, the theory; A\u00a0anaphor") == "apple theory anaphor"
    assert normalize("cat—the—dog") == "cat— —dog"


def f1_at(threshold: float, found: list[str], expected: list[list[str]], surety: list[float]) -> float:
    answers = ["" if sure > threshold else answer for answer, sure in zip(found, surety, strict=True)]
    return answer_scores(answers, expected).all.f1


def test_the_threshold_is_the_best_of_all() -> None:
    for seed in range(100):
        drawn = random.Random(seed)
        words = ["red", "green", "blue"]
        n = drawn.randint(1, 8)
        found = [drawn.choice(words) for _ in range(n)]
        expected = [[] if drawn.random() < 0.4 else [drawn.choice(words)] for _ in range(n)]
        surety = [drawn.randrange(4) / 4 + near * (seed % 3 - 1) for near in drawn.choices((0, 1e-9), k=n)]  # with ties
        threshold, scores = best_threshold(found, expected, surety)
        best = max(f1_at(limit, found, expected, surety) for limit in [-1.0, *surety])
        assert scores.all.f1 == f1_at(threshold, found, expected, surety) == best, seed


@pytest.mark.parametrize(
    ("surety", "told"), [((0.5, 7.2), 4.0), ((0.51, 0.6), 0.55), ((12.3456, 12.3457), 12.3456), ((0.5, 0.5), -1.0)]
)
def test_the_threshold_has_few_digits(surety: tuple[float, float], told: float) -> None:
    """One that lies between: the first answer is right, the second question has none."""
    assert best_threshold(["red", "red"], [["red"], []], surety)[0] == told


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="1 answers for 2 questions"):
        answer_scores(["a"], [["a"], ["b"]])
    with pytest.raises(ValueError, match="every question must have a reference answer"):
        answer_scores(["a"], [[]], "1.1")
