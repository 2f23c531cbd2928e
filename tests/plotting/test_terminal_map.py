"""The attention map in a terminal: what replaces, at any width, with any token."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from attnkit.plotting.terminal import attention_map

SRC, TGT = ["The", "cat", "sat", "."], ["Le", "chat", "était", "assis", "."]
WEIGHTS = [[0.97, 0.03, 0, 0], [0, 1, 0, 0], [0, 0.25, 0.75, 0], [0, 0, 1, 0], [0.004, 0, 0, 0.996]]


def test_plain_map_by_hand() -> None:
    assert attention_map(WEIGHTS, SRC, TGT, colour=False).splitlines() == [
        "      The cat sat   .",
        "Le     97   3   .   .",
        "chat    . 100   .   .",
        "était   .  25  75   .",
        "assis   .   . 100   .",
        ".       .   .   . 100",
    ]


def test_colour_adds_backgrounds_and_nothing_else() -> None:
    coloured = attention_map(WEIGHTS, SRC, TGT, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == attention_map(WEIGHTS, SRC, TGT, colour=False)
    assert coloured.count("\x1b[0m") == coloured.count("\x1b[48;") == 6


def test_long_sentences_continue_below() -> None:
    src = [f"word{i}" for i in range(30)]
    drawn = attention_map(np.eye(3, 30), src, ["un", "deux", "trois"], colour=False)
    assert max(map(len, drawn.splitlines())) <= 80
    blocks = drawn.split("\n\n")
    assert " ".join(block.splitlines()[0].strip() for block in blocks).split() == src
    assert all(len(block.splitlines()) == 4 for block in blocks)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=12),
    st.lists(st.text(max_size=30), min_size=1, max_size=5),
    st.integers(40, 120),
)
def test_any_tokens_fit_any_width(src: list[str], tgt: list[str], width: int) -> None:
    drawn = attention_map(np.full((len(tgt), len(src)), 1 / len(src)), src, tgt, colour=False, width=width)
    assert "\x1b" not in drawn
    assert all(cell_len(line) <= width for line in drawn.split("\n"))


def test_ascii_only_where_there_is_no_terminal() -> None:
    assert attention_map([[1.0]], ["a" * 40], ["b" * 40], colour=False).isascii()


def test_not_a_number_is_shown() -> None:
    assert attention_map([[float("nan")]], ["a"], ["b"], colour=True).endswith("?")


def test_wrong_shape_is_refused_and_nothing_is_nothing() -> None:
    with pytest.raises(ValueError, match="2 target and 1 source"):
        attention_map([[1.0]], ["a"], ["b", "c"], colour=False)
    assert attention_map(np.zeros((0, 2)), ["a", "b"], [], colour=False) == ""
