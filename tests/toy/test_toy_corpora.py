"""Reversal, summaries, code and the command that writes any of the corpora."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from attnkit.text.toy.corpus import Kind, make_distinct, make_files, make_reversal, make_reviews


def test_reversal_reverses_and_holds_out() -> None:
    parts = make_reversal(1, 3000, 100, 400)
    for pairs in parts.values():
        assert all(src.split() == tgt.split()[::-1] for src, tgt in pairs)
    lengths = {name: {len(src.split()) for src, _ in pairs} for name, pairs in parts.items()}
    assert lengths["train"] == lengths["test"] == set(range(1, 26))
    assert lengths["test-long"] == set(range(26, 31))
    training = {src for src, _ in parts["train"]}
    assert not training & {src for name in ("valid", "test", "test-long") for src, _ in parts[name]}


_NAMES = ["x", "y", "z", "total", "count", "price", "width", "height", "age", "score", "index", "size", "rate", "speed"]
_LISTS = ["items", "values", "names", "words", "numbers", "prices", "scores", "rows", "lines", "users"]
NUMBERS = {name: 3 + 7 * i for i, name in enumerate(_NAMES)}
LISTS = {name: [i + 2, 5 * i + 1, 9 - i] for i, name in enumerate(_LISTS)}
TWO = {
    "sum": lambda a, b: a + b, "product": lambda a, b: a * b, "difference": lambda a, b: a - b,
    "quotient": lambda a, b: a / b, "remainder": lambda a, b: a % b, "larger": max, "smaller": min,
}  # fmt: skip
ONE = {"length": len, "sum": sum, "largest": max, "smallest": min, "first": lambda v: v[0], "last": lambda v: v[-1]}


def understand(words: list[str]) -> float:
    """Take one value off the front of an instruction and compute it, word by word, knowing nothing of the code."""
    first = words.pop(0)
    if first != "the":
        return NUMBERS[first] if first in NUMBERS else int(first)
    what, _ = words.pop(0), words.pop(0)
    if words[0] in LISTS:
        return ONE[what](LISTS[words.pop(0)])
    left = understand(words)
    assert words.pop(0) == ("by" if what == "remainder" else "and")
    return TWO[what](left, understand(words))


def test_expressions_mean_what_is_said() -> None:
    parts = make_distinct("code", 1, 2000, 50, 50)
    sources = [src for pairs in parts.values() for src, _ in pairs]
    assert len(set(sources)) == len(sources) == 2100
    n_computed = 0
    for src, code in parts["train"]:
        compile(code, "expression", "exec")
        if not src.startswith(("Print", "Show", "Let")):
            continue
        words = src.rstrip(".").split()
        said = words[1:] if src[0] in "PS" else words[words.index("be") + 1 :]
        made = code.removeprefix("print(").removesuffix(")") if src[0] in "PS" else code.split(" = ", 1)[1]
        try:
            expected = understand(said)
        except ZeroDivisionError:
            continue
        assert eval(made, {}, {**NUMBERS, **LISTS}) == expected, (src, code)
        n_computed += 1
    assert n_computed > 500


@pytest.mark.parametrize(
    ("words", "code"),
    [("double each of", "2 * n for n in"), ("the absolute value of each of", "abs(n) for n in"),
     ("that is above", " if n > "), ("otherwise to", " else ")],
)  # fmt: skip
def test_instructions_of_other_shapes(words: str, code: str) -> None:
    found = [tgt for src, tgt in make_distinct("code", 2, 3000, 1, 1)["train"] if words in src]
    assert found
    assert all(code in tgt for tgt in found)


def test_headlines_say_what_the_report_says() -> None:
    parts = make_distinct("summary", 1, 1000, 50, 50)
    for report, headline in parts["train"]:
        names = [word for word in headline.split() if word[0].isupper() and word not in ("New",)]
        assert all(word.lower() in report.lower() for word in names)
        assert len(headline) < len(report) / 2
    assert not {src for src, _ in parts["train"]} & {src for src, _ in parts["test"]}


@pytest.mark.parametrize("kind", ["english-french", "reverse", "summary", "code"])
def test_files_line_up_and_repeat(kind: Kind) -> None:
    made = make_files(kind, 100, 5, n_valid=10, n_test=20)
    assert made == make_files(kind, 100, 5, n_valid=10, n_test=20)
    first, second = ("en", "fr") if kind == "english-french" else ("src", "tgt")
    for name, size in (("train", 100), ("valid", 10), ("test", 20)):
        assert len(made[f"{name}.{first}"]) == len(made[f"{name}.{second}"]) == size
    assert all("\n" not in line for lines in made.values() for line in lines)


def test_the_writers_own_opinion_decides_the_label_of_a_review() -> None:
    good = {"superb", "witty", "lovely", "gripping", "clever", "moving"}
    bad = {"awful", "dull", "clumsy", "tedious", "poor", "lifeless"}
    parts = make_reviews(1, 400, 50, 50)
    assert parts == make_reviews(1, 400, 50, 50) and parts != make_reviews(2, 400, 50, 50)
    misled = 0
    for text, label in [row for rows in parts.values() for row in rows]:
        sentences = [sentence.strip(".!").split() for sentence in text.replace("!", ".").split(". ")]
        own = [words for words in sentences if words[0] in ("I", "To", "In")]
        assert len(own) == 1 and (own[0][-1] in good) == (label == "good") and own[0][-1] in good | bad
        n_good, n_bad = (sum(words[-1] in kind for words in sentences) for kind in (good, bad))
        misled += (n_good > n_bad) != (label == "good")
    assert misled > 0.2 * 500, "counting words is not enough"
    texts = [{text for text, _ in rows} for rows in parts.values()]
    assert not texts[0] & texts[1] and not texts[1] & texts[2] and not texts[0] & texts[2]
    files = make_files("reviews", 400, 1, n_valid=50, n_test=50)
    assert [line.split("\t") for line in files["valid.tsv"]] == [list(row) for row in parts["valid"]]


def test_command_writes_the_files(tmp_path: Path) -> None:
    arguments = ["toy-corpus", "code", "-o", str(tmp_path / "made"), "--pairs", "30", "--seed", "9", "--json"]
    done = subprocess.run([sys.executable, "-m", "attnkit", *arguments], capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout)
    assert counts[str(tmp_path / "made" / "train.src")] == 30
    written = (tmp_path / "made" / "train.tgt").read_text(encoding="utf-8")
    assert written.splitlines() == make_files("code", 30, 9, n_valid=500, n_test=1000)["train.tgt"]
    assert written.endswith("\n")


@pytest.mark.parametrize("kind", get_args(Kind))
def test_progress_counts_every_pair_up_to_the_last(kind: Kind) -> None:
    counts: list[int] = []
    made = make_files(kind, 40, 1, n_valid=3, n_test=5, progress=counts.append)
    n_sides = 1 if kind == "reviews" else 2
    assert counts[-1] * n_sides == sum(map(len, made.values()))
    assert counts == sorted(set(counts)) and len(counts) >= 40
    assert made == make_files(kind, 40, 1, n_valid=3, n_test=5)
