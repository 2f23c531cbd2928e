"""The page of word vectors: what occurs in it comes back out, and no word becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from attnkit.plotting.html.projection import (
    SPAN,
    Projection,
    build_projection,
    coordinates,
    largest_error,
    quantised,
    unit,
)

HOSTILE = ["</script><img src=x onerror=pwned()>", "<!--<script>", "a&amp;b", "\u2028\u202e\0", '"]};pwned()//', "the"]


class Elements(HTMLParser):
    """Every element with its attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = tag, attributes, text + data

    def text(self, id: str) -> str:
        return next(text for _, attributes, text in self.found if attributes.get("id") == id)


def made(words: list[str], width: int = 8) -> Projection:
    drawn = np.random.default_rng(1)
    vectors = drawn.normal(size=(len(words), width)).astype(np.float32)
    return Projection(words, drawn.normal(size=(len(words), 2)), vectors, "A note.", {"vectors": words[0]})


def test_no_word_becomes_markup() -> None:
    hostile, plain = (Elements(build_projection(made(words))) for words in (HOSTILE, list("abcdef")))
    assert [(tag, sorted(attributes)) for tag, attributes, _ in hostile.found] == [
        (tag, sorted(attributes)) for tag, attributes, _ in plain.found
    ]
    data = json.loads(hostile.text("data"))
    assert data["words"] == [*HOSTILE[:3], "<U+2028><U+202E><U+0000>", *HOSTILE[4:]]
    assert data["facts"] == [["vectors", HOSTILE[0]]]
    assert not set("<>&") & set(hostile.text("data"))


def test_the_policy_allows_this_script_and_this_style_alone() -> None:
    found = Elements(build_projection(made(HOSTILE))).found
    policy = next(a["content"] for _, a, _ in found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'; ")
    for tag in ("script", "style"):
        (text,) = [text for name, attributes, text in found if name == tag and "type" not in attributes]
        if tag == "style":  # what follows the closing tag is not of it
            text = text[: text.rindex("}") + 2]
        digest = base64.b64encode(hashlib.sha256(text.rstrip("\n").encode() + b"\n").digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_nothing_in_it_leads_elsewhere() -> None:
    page = build_projection(made(HOSTILE[1:]))
    assert set(re.findall(r"[a-z]+://[^\"' ]*", page)) == {"http://www.w3.org/2000/svg"}
    links = [v for _, a, _ in Elements(page).found for name, v in a.items() if name in ("src", "href", "style")]
    assert sorted(map(str, links)) == ["#search", "data:,"]
    script = page[page.rindex("<script>") :]
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval", "fetch", "import"):
        assert forbidden not in script


def test_vectors_come_back_up_to_a_factor() -> None:
    projection = made([f"w{i}" for i in range(50)], 20)
    found = Elements(build_projection(projection))
    raw = zlib.decompress(base64.b64decode(found.text("vectors")))
    rows = np.frombuffer(raw, np.int8).reshape(50, 20).astype(np.float64)
    largest = np.abs(projection.vectors).max(1, keepdims=True)
    assert np.abs(rows * largest / 127 - projection.vectors).max() <= 0.5001 * largest.max() / 127
    assert (np.abs(rows).max(1) == 127).all()
    cosines = [unit(each) @ unit(each).T for each in (rows, projection.vectors)]
    worst = float(np.abs(cosines[0] - cosines[1]).max())
    assert largest_error(projection.vectors, quantised(projection.vectors)) == pytest.approx(worst, rel=1e-9)
    assert f"exact cosines is {worst:.4f}." in json.loads(found.text("data"))["exactness"]


def test_zeros_stay_zeros() -> None:
    assert quantised(np.zeros((2, 3), np.float32)).tolist() == [[0, 0, 0]] * 2


def test_both_axes_have_one_measure() -> None:
    """By hand: 4 across and 1 up, so that the longer side takes all numbers and the other a quarter of them."""
    points = np.array([[-1.0, 2.0], [3.0, 3.0], [1.0, 2.5]])
    expected: Any = [[0, 0], [SPAN, round(SPAN / 4)], [round(SPAN / 2), round(SPAN / 8)]]
    assert np.abs(coordinates(points) - expected).max() <= 1
    assert coordinates(np.ones((3, 2))).tolist() == [[0, 0]] * 3
