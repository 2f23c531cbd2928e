"""The notes' BLEU: their worked values, and d2l's loop written out as the reference."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnkit.metrics.bleu import clipped_matches, notes_bleu


@pytest.mark.parametrize(("order", "expected"), [(1, (4, 5)), (2, (3, 4)), (3, (1, 3)), (4, (0, 2))])
def test_precisions_of_the_notes(order: int, expected: tuple[int, int]) -> None:
    assert clipped_matches(list("ABBCD"), list("ABCDEF"), order) == expected


def test_brevity_factor_of_the_notes() -> None:
    assert notes_bleu(list("AB"), list("ABCDEF"), 2) == pytest.approx(math.exp(1 - 6 / 2))
    assert math.exp(1 - 6 / 2) == pytest.approx(0.135, abs=5e-4)


def test_whole_score_by_hand() -> None:
    expected = math.exp(1 - 6 / 5) * (4 / 5) ** (1 / 2) * (3 / 4) ** (1 / 4)
    assert notes_bleu(list("ABBCD"), list("ABCDEF"), 2) == pytest.approx(expected)
    assert notes_bleu(list("ABBCD"), list("ABCDEF"), 4) == 0


def loop(pred: list[str], label: list[str], k: int) -> float:
    """The textbook's loop: count the label's n-grams, take one away for each match."""
    score = math.exp(min(0, 1 - len(label) / len(pred)))
    for n in range(1, min(k, len(pred)) + 1):
        left: dict[str, int] = {}
        for i in range(len(label) - n + 1):
            gram = " ".join(label[i : i + n])
            left[gram] = left.get(gram, 0) + 1
        matches = 0
        for i in range(len(pred) - n + 1):
            gram = " ".join(pred[i : i + n])
            if left.get(gram, 0) > 0:
                matches += 1
                left[gram] -= 1
        score *= math.pow(matches / (len(pred) - n + 1), math.pow(0.5, n))
    return score


TOKENS = st.lists(st.sampled_from("abc"), min_size=1, max_size=9)


@given(TOKENS, TOKENS, st.integers(1, 6))
def test_equals_the_textbook_loop(pred: list[str], label: list[str], k: int) -> None:
    assert notes_bleu(pred, label, k) == pytest.approx(loop(pred, label, k), abs=1e-12)


def test_short_and_empty_inputs() -> None:
    assert notes_bleu(["a"], ["a"], 4) == 1
    assert notes_bleu([], ["a"], 4) == 0
    assert notes_bleu(["a"], [], 4) == 0
    assert notes_bleu([], [], 4) == 1
    with pytest.raises(ValueError, match="at least 1"):
        notes_bleu(["a"], ["a"], 0)


def test_command(tmp_path: Path) -> None:
    (tmp_path / "hyp").write_text("A B B C D\nA B\n", encoding="utf-8")
    (tmp_path / "ref").write_text("A B C D E F\nA B C D E F\n", encoding="utf-8")
    command = [sys.executable, "-m", "attnkit", "score-bleu", str(tmp_path / "hyp"), str(tmp_path / "ref")]
    done = subprocess.run(
        [*command, "--formula", "notes", "--max-order", "2", "--sentence"], capture_output=True, text=True, check=True
    )
    assert [float(line) for line in done.stdout.splitlines()] == [
        pytest.approx(0.6815, abs=1e-3),
        pytest.approx(0.1353, abs=1e-4),
    ]
