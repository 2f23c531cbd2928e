"""What models see and guess, drawn for a terminal: by hand, and within any width."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from attnkit.plotting.lm_comparison import Candidate, TokenComparison, around, render


def place(before: str, after: str, *guesses: Candidate) -> TokenComparison:
    return TokenComparison(before, after, "▁cat", 0.125, 2, list(guesses))


def test_a_line_by_hand() -> None:
    found = render(
        [place("The ", " sat.", Candidate("▁dog", 0.5), Candidate("▁cat", 0.125), Candidate("▁" + "x" * 40, 0.1))]
    )
    assert found.splitlines() == [
        "  context                       token               predictions",
        "  The ___ sat.                  ▁cat          12.5  ▁dog 50.0  ▁cat 12.5",
    ]


@pytest.mark.parametrize(
    ("before", "after", "width", "expected"),
    [
        ("The ", " sat on the mat.", 23, "The ___ sat on the mat."),
        ("The ", " sat on the mat.", 20, "The ___ sat on the …"),
        ("The cat sat on the ", ".", 12, "…on the ___."),
        ("", "", 12, "___"),
        ("one two three four ", " five six seven eight", 15, "…four ___ five…"),
        ("a\nb ", "", 12, "a b ___"),
    ],
)
def test_what_is_nearest_to_the_blank_stays(before: str, after: str, width: int, expected: str) -> None:
    assert around(before, after, width) == expected


@settings(max_examples=200, deadline=None)
@given(st.text("ab 日本é", max_size=60), st.text("ab 日本é", max_size=60), st.integers(30, 120))
def test_no_line_is_wider_than_the_terminal(before: str, after: str, width: int) -> None:
    guesses = [Candidate("▁語彙", 0.3), Candidate("▁longer-than-most-tokens", 0.2), Candidate("x", 0.1)]
    for line in render([place(before, after, *guesses)], max(width, 60)).splitlines():
        assert cell_len(line) <= max(width, 60)
    assert "___" in around(before, after, 20) and cell_len(around(before, after, 20)) <= 20
