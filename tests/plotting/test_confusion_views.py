"""The table of who was taken for whom, in a terminal and as a page: drawn by hand, at any width, with any label."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from attnkit.metrics.labels import Mistake
from attnkit.plotting.confusion import confusion_page, confusion_table

COUNTS = np.array([[420, 113, 0], [95, 438, 1], [0, 0, 0]])
LABELS = ["neg", "positive", "none"]


def test_a_table_by_hand() -> None:
    assert confusion_table(LABELS, COUNTS, colour=False).splitlines() == [
        "rows: gold, columns: predicted",
        "",
        "             neg  positive   none  recall",
        "neg          420       113      .    78.8",  # 420 of 533
        "positive      95       438      1    82.0",  # 438 of 534
        "none           .         .      .       -",
        "precision   81.6      79.5    0.0",  # 420 of 515, 438 of 551, 0 of 1
    ]


def test_colour_adds_paint_and_nothing_else() -> None:
    painted = confusion_table(LABELS, COUNTS, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == confusion_table(LABELS, COUNTS, colour=False)
    assert painted.count("\x1b[38;5;39m") == 2 and painted.count("\x1b[38;5;208m") == 3


def test_wide_tables_go_on_below() -> None:
    labels = [f"label-{i:02}" for i in range(20)]
    drawn = confusion_table(labels, np.full((20, 20), 1234), colour=False)
    assert max(map(len, drawn.splitlines())) <= 80
    blocks = drawn.split("\n\n")[1:]
    heads = " ".join(block.splitlines()[0] for block in blocks).split()
    assert heads == [*labels, "recall"] and all(len(block.splitlines()) == 22 for block in blocks)
    assert drawn.count("1234") == 400


def test_of_many_labels_the_mistakes_are_told() -> None:
    labels = [f"intent {i}" for i in range(40)]
    counts = np.diag(np.full(40, 50))
    counts[3, 7], counts[9, 2] = 5, 12
    assert confusion_table(labels, counts, colour=False).splitlines()[1:] == [
        "       12  intent 9                       intent 2",
        "        5  intent 3                       intent 7",
    ]
    assert confusion_table(labels, np.eye(40, dtype=np.int64), colour=False).endswith("none")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=30), st.integers(60, 120), st.data())
def test_any_labels_fit_any_width(labels: list[str], width: int, data: st.DataObject) -> None:
    n = len(labels)
    largest = data.draw(st.sampled_from([1, 10**6]))
    drawn = confusion_table(labels, np.full((n, n), largest), colour=False, width=width)
    assert "\x1b" not in drawn
    assert all(cell_len(line) <= width for line in drawn.split("\n"))


class Cells(HTMLParser):
    """The texts of a page's table by rows, and every tag and attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.inside = False  # of the table
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen |= {tag, *(name for name, _ in attrs)}
        self.inside = self.inside or tag == "table"
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "table"

    def handle_data(self, data: str) -> None:
        if self.inside and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


def test_the_page_lists_mistakes_with_their_texts() -> None:
    mistakes = [Mistake(0.9876, "a <b>film</b>\u202e", "neg", "positive"), Mistake(0.5, "שלום", "none", "neg")]
    text = confusion_page(LABELS, COUNTS, "Reviews", mistakes)
    page = Cells()
    page.feed(text)
    assert page.rows[-2][:3] == ["0.988", "neg", "positive"] and page.rows[-2][3].startswith("a <b>film</b>")
    assert page.rows[-1] == ["0.500", "none", "neg", "שלום"]
    assert "<b>film" not in text and "\u202e" not in text and text.count('dir="auto"') == 2
    assert "Most confident mistakes" not in confusion_page(LABELS, COUNTS, "Reviews")


def test_the_page_holds_the_table() -> None:
    page = Cells()
    page.feed(confusion_page(LABELS, COUNTS, "Reviews"))
    assert page.rows == [
        ["", "neg", "positive", "none", "recall %"],
        ["neg", "420", "113", "0", "78.8"],
        ["positive", "95", "438", "1", "82.0"],
        ["none", "0", "0", "0", "-"],
        ["precision %", "81.6", "79.5", "0.0", ""],
    ]


def test_the_page_lists_the_mistakes() -> None:
    page = confusion_page(LABELS, COUNTS, "Reviews")
    listed = [re.sub("<[^>]*>", "", item) for item in re.findall("<li>(.*?)</li>", page)]
    assert listed == [
        "neg predicted as positive: 113",
        "positive predicted as neg: 95",
        "positive predicted as none: 1",
    ]
    assert "None." in confusion_page(["a"], COUNTS[:1, :1], "x") and "prefers-color-scheme: dark" in page


def test_labels_are_no_markup_and_nothing_runs_or_is_fetched() -> None:
    hostile = ['<script>alert(1)</script>"', "a' onmouseover='x", "&lt;\x00"]
    text = confusion_page(hostile, COUNTS, "</title><img src=x>")
    page = Cells()
    page.feed(text)
    assert page.rows[1][0] == hostile[0] and page.rows[2][0] == hostile[1]
    assert not page.seen & {"script", "img", "link", "onmouseover", "src", "href"}
    assert "default-src &#39;none&#39;" in text and "://" not in text


def test_wrong_shapes_are_refused() -> None:
    for draw in (lambda: confusion_table(["a"], COUNTS, colour=False), lambda: confusion_page(["a"], COUNTS, "x")):
        with pytest.raises(ValueError, match="1 labels"):
            draw()
