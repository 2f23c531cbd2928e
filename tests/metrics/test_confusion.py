"""Who was taken for whom, scores by class, and the weights of classes, against naive counts."""

from __future__ import annotations

import random

import pytest

from attnkit.metrics.labels import class_weights, confusion, label_scores


@pytest.mark.parametrize("seed", range(10))
def test_counts_and_scores_are_those_of_a_naive_count(seed: int) -> None:
    drawn = random.Random(seed)
    labels = ["d", "a", "c", "b", "never"]
    expected = drawn.choices(labels[:4], weights=[8, 4, 2, 1], k=50)
    found = [label if drawn.random() < 0.6 else drawn.choice(labels[:3]) for label in expected]
    pairs = list(zip(expected, found, strict=True))
    matrix = confusion(found, expected, labels)
    assert matrix.counts.tolist() == [[pairs.count((one, other)) for other in labels] for one in labels]
    assert matrix.accuracy == pytest.approx(label_scores(found, expected).accuracy)
    for label, scores in matrix.classes().items():
        hits, n_found, n_expected = pairs.count((label, label)), found.count(label), expected.count(label)
        precision = 100 * hits / n_found if n_found else 0
        recall = 100 * hits / n_expected if n_expected else 0
        both = precision + recall
        assert (scores.found, scores.expected) == (n_found, n_expected)
        assert (scores.precision, scores.recall) == pytest.approx((precision, recall))
        assert scores.f1 == pytest.approx(2 * precision * recall / both if both else 0)


def test_labels_stand_in_the_order_of_the_alphabet_unless_told() -> None:
    assert confusion(["b", "c"], ["a", "c"]).labels == ("a", "b", "c")
    with pytest.raises(ValueError, match="unknown labels: c"):
        confusion(["c"], ["a"], ["a", "b"])
    with pytest.raises(ValueError, match="got 1 predicted labels for 2"):
        confusion(["c"], ["a", "b"])


def test_weights_make_labels_alike_and_keep_the_sum() -> None:
    assert class_weights([30, 10]) == pytest.approx([2 / 3, 2])  # 40 / (2 * 30) and 40 / (2 * 10), "balanced"
    assert class_weights([9, 1], power=0.5) == pytest.approx([10 / 12, 10 / 4])  # 1/3 and 1, of which the sum is 4
    assert class_weights([7, 3], power=0) == [1, 1]
    assert class_weights([5, 0, 5]) == [1, 0, 1]
    for counts in ([30, 10, 4], [1, 1000, 7]):
        for power in (0.3, 1.0, 2.0):
            weights = class_weights(counts, power)
            assert sum(n * w for n, w in zip(counts, weights, strict=True)) == pytest.approx(sum(counts))
    for wrong in ([], [0, 0], [3, -1]):
        with pytest.raises(ValueError, match="cannot weight labels"):
            class_weights(wrong)
