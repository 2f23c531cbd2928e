"""Scores of phrases by hand, and their file."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnkit.errors import RunError
from attnkit.text.config import PhrasesConfig
from attnkit.text.phrases import Phrases, ScoredPhrase, score


def one(config: PhrasesConfig, pair: int, first: int, second: int, n_words: int) -> float:
    return float(score(config, np.array([pair]), np.array([first]), np.array([second]), n_words)[0])


def test_scores_by_hand() -> None:
    count, npmi = PhrasesConfig(), PhrasesConfig(scoring="npmi")
    assert one(count, 15, 20, 25, 1000) == pytest.approx((15 - 5) * 1000 / (20 * 25)) == 20
    # p(ab) = 1/100, p(a) = 1/50, p(b) = 1/40: ln(20) / ln(100)
    assert one(npmi, 10, 20, 25, 1000) == pytest.approx(math.log(20) / math.log(100))
    assert one(npmi, 10, 10, 10, 1000) == pytest.approx(1)
    assert one(npmi, 10, 100, 100, 1000) == pytest.approx(0)
    assert one(count, 4, 4, 4, 10) == one(npmi, 4, 4, 4, 10) == -math.inf
    assert one(count, 1 << 40, 1 << 41, 1 << 42, 1 << 50) == pytest.approx(2.0**50 * 2.0**40 / 2.0**83)
    assert (count.limit, npmi.limit, PhrasesConfig(threshold=3.0).limit) == (100, 0.5, 3)


PHRASES = Phrases(
    PhrasesConfig(passes=2, connectors=("of",)),
    True,
    (
        (ScoredPhrase(("new", "york"), 20.5, 15), ScoredPhrase(("bank", "of", "america"), 12.0, 9)),
        (ScoredPhrase(("new_york", "city"), 3, 5),),
    ),
)


def test_phrases_come_back() -> None:
    text = PHRASES.to_text()
    assert text.splitlines()[1] == "1\t20.5\t15\tnew york"
    assert Phrases.from_text(text) == PHRASES and len(PHRASES) == 3


@pytest.mark.parametrize(
    "line", ["3\t1\t1\ta b", "0\t1\t1\ta b", "1\tx\t1\ta b", "1\t1\t1\ta", "1\t1\t1\ta  b", "1\t1\ta b"]
)
def test_a_damaged_line_is_named(line: str) -> None:
    with pytest.raises(RunError) as caught:
        Phrases.from_text(PHRASES.to_text() + line + "\n", where="p.tsv")
    assert caught.value.where == "p.tsv:5"


@pytest.mark.parametrize("head", ["", "new york", "# attnkit phrases 1 []", '# attnkit phrases 1 {"passes": 1}', "{}"])
def test_other_files_are_refused(head: str) -> None:
    with pytest.raises(RunError, match="is not an attnkit phrase file"):
        Phrases.from_text(head + "\n")
