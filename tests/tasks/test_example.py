"""The notes' worked example: its figures, and every other pair of functions against loops over its numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from attnkit.analysis.explain import KEYS, OPTIONS, QUERY, worked_example
from attnkit.errors import UsageError
from attnkit.models.attention.config import ALIGNMENT_NAMES, DISTRIBUTION_NAMES, incompatibility
from attnkit.plotting.worked_example import FORMULAS, render_example

PAIRS = [(a, d) for a in ALIGNMENT_NAMES for d in DISTRIBUTION_NAMES if incompatibility(a, d, OPTIONS) is None]


def dot(one: Any, other: Any) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_the_notes_figures() -> None:
    found = worked_example("scaled_dot", "softmax", 1)
    assert [round(weight, 3) for weight in found.weights] == [0.120, 0.120, 0.213, 0.120, 0.213, 0.213]
    assert [round(part, 3) for part in found.context] == [0.453, 0.453, 0.640]
    assert [round(score, 3) for score in found.scores] == [0, 0, 0.577, 0, 0.577, 0.577]
    assert found.steps[0].values == pytest.approx([0, 0, 1, 0, 1, 1])
    assert [round(value, 3) for value in found.steps[1].values] == [1, 1, 1.781, 1, 1.781, 1.781]
    assert (found.seed, found.parameters) == (None, {})


def additive(p: Any, key: Any) -> float:
    inner = [
        dot(w1, QUERY) + dot(w2, key) + b
        for w1, w2, b in zip(p["query.weight"], p["keys.weight"], p["keys.bias"], strict=True)
    ]
    return dot(p["weight"], map(math.tanh, inner))


SCORES: dict[str, Callable[[Any, Any], float]] = {
    "similarity": lambda p, key: dot(QUERY, key) / math.sqrt(dot(QUERY, QUERY) * dot(key, key)),
    "dot": lambda p, key: dot(QUERY, key),
    "scaled_dot": lambda p, key: dot(QUERY, key) / math.sqrt(3),
    "additive": additive,
}


@pytest.mark.parametrize("name", SCORES)
def test_printed_parameters_are_those_that_compute(name: Any) -> None:
    """Whoever follows the printed numbers by hand gets the printed scores."""
    found = worked_example(name, "softmax", 7)
    expected = [SCORES[name](found.parameters, key) for key in KEYS]
    assert found.scores == pytest.approx(expected, abs=1e-9)
    total = sum(map(math.exp, expected))
    assert found.weights == pytest.approx([math.exp(score) / total for score in expected], abs=1e-9)


def test_every_pair_has_an_example() -> None:
    for pair in PAIRS:
        alignment, distribution = pair
        found = worked_example(alignment, distribution, 2)  # type: ignore[arg-type]
        assert found.context == pytest.approx([dot(found.weights, column) for column in zip(*KEYS, strict=True)]), (
            alignment,
            distribution,
        )
        if distribution not in ("sigmoid", "local"):
            assert sum(found.weights) == pytest.approx(1), pair
        text = render_example(found)
        assert max(map(len, text.splitlines())) <= 80, pair
        assert FORMULAS[alignment] in text and FORMULAS[distribution] in text, pair
        assert f"{found.context[0]:.3f}, {found.context[1]:.3f}, {found.context[2]:.3f}" in text.splitlines()[-1], (
            alignment,
            distribution,
        )
        assert ("seed 2" in text) == bool(found.parameters), pair
        json.dumps(found.to_dict(), allow_nan=False)


def test_the_seed_decides_the_parameters_and_nothing_else() -> None:
    one, again, other = (worked_example("deep", "local", seed) for seed in (1, 1, 2))
    assert one == again
    assert one.parameters != other.parameters and one.weights != other.weights
    assert worked_example("dot", "sparsemax", 1) == worked_example("dot", "sparsemax", 2)


def test_a_pair_without_meaning_says_why() -> None:
    with pytest.raises(UsageError, match="dot and normalize cannot be combined: its scores may be negative"):
        worked_example("dot", "normalize", 1)


def test_a_function_of_a_user_is_shown_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FORMULAS, "additive")
    shown = render_example(worked_example("additive", "softmax", 1))
    assert "additive: its source has the formula" in shown and FORMULAS["softmax"] in shown
