"""Accuracy and macro F1 against counts made one label at a time."""

from __future__ import annotations

import random

import pytest

from attnkit.metrics.labels import label_scores


def naive(found: list[str], expected: list[str]) -> tuple[float, float]:
    """Count precision and recall of each label by themselves."""
    f1 = []
    for label in {*found, *expected}:
        hits = sum(a == label and b == label for a, b in zip(found, expected, strict=True))
        n_found, n_expected = found.count(label), expected.count(label)
        precision = hits / n_found if n_found else 0.0
        recall = hits / n_expected if n_expected else 0.0
        f1.append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
    right = sum(a == b for a, b in zip(found, expected, strict=True))
    return 100 * right / len(found), 100 * sum(f1) / len(f1)


@pytest.mark.parametrize("seed", range(20))
def test_scores_are_those_of_a_naive_count(seed: int) -> None:
    drawn = random.Random(seed)
    expected = drawn.choices("abcd", weights=[8, 4, 2, 1], k=drawn.randint(1, 40))
    found = [label if drawn.random() < 0.6 else drawn.choice("abcde") for label in expected]
    scores = label_scores(found, expected)
    assert (scores.accuracy, scores.macro_f1) == pytest.approx(naive(found, expected))


def test_scores_worked_out_by_hand() -> None:
    # a: 1 right of 2 found and 1 expected, F1 2/3; b: 1 of 1 and 2, F1 2/3.
    scores = label_scores(["a", "a", "b"], ["a", "b", "b"])
    assert (scores.accuracy, scores.macro_f1) == pytest.approx((200 / 3, 200 / 3))
    assert label_scores(["a"] * 9 + ["a"], ["a"] * 9 + ["b"]).macro_f1 == pytest.approx(100 * (18 / 19) / 2)


def test_no_scores_without_examples() -> None:
    for found, expected in (([], []), (["a"], [])):
        with pytest.raises(ValueError, match="predicted labels for"):
            label_scores(found, expected)
