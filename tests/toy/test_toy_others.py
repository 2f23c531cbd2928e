"""Reversal, summaries, code and the command that writes any of the corpora."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from attnkit.text.toy.expressions import make_expressions
from attnkit.text.toy.kinds import Kind, make_files
from attnkit.text.toy.reversal import make_reversal
from attnkit.text.toy.summaries import make_summaries


def test_reversal_reverses_and_holds_out() -> None:
    parts = make_reversal(1, 3000, 100, 400)
    for pairs in parts.values():
        assert all(src.split() == tgt.split()[::-1] for src, tgt in pairs)
    lengths = {name: {len(src.split()) for src, _ in pairs} for name, pairs in parts.items()}
    assert lengths["train"] == lengths["test"] == set(range(1, 26))
    assert lengths["test-long"] == set(range(26, 31))
    training = {src for src, _ in parts["train"]}
    assert not training & {src for name in ("valid", "test", "test-long") for src, _ in parts[name]}


def test_expressions_are_python_and_mean_what_is_said() -> None:
    parts = make_expressions(1, 2000, 50, 50)
    sources = [src for pairs in parts.values() for src, _ in pairs]
    assert len(set(sources)) == len(sources) == 2100
    for _, code in parts["train"]:
        compile(code, "expression", "exec")
    known = dict(pair for pairs in make_expressions(2, 20_000, 1, 1).values() for pair in pairs)
    by_hand = {
        "double each of": "2 * n for n in",
        "the absolute value of each of": "abs(n) for n in",
        "that is above": " if n > ",
        "otherwise to": " else ",
    }
    for words, expected in by_hand.items():
        assert all(expected in code for src, code in known.items() if words in src)
    assert all(
        "/ (" in code for src, code in known.items() if src.startswith("Print the quotient of x and the sum of x and")
    )


def test_headlines_say_what_the_report_says() -> None:
    parts = make_summaries(1, 1000, 50, 50)
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


def test_command_writes_the_files(tmp_path: Path) -> None:
    arguments = ["toy-corpus", "code", "-o", str(tmp_path / "made"), "--pairs", "30", "--seed", "9", "--json"]
    done = subprocess.run([sys.executable, "-m", "attnkit", *arguments], capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout)
    assert counts[str(tmp_path / "made" / "train.src")] == 30
    written = (tmp_path / "made" / "train.tgt").read_text(encoding="utf-8")
    assert written.splitlines() == make_files("code", 30, 9, n_valid=500, n_test=1000)["train.tgt"]
    assert written.endswith("\n")
