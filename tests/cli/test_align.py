"""``attnkit align`` as it is typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.text.translation_lexicon import load_tokens

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "a").write_text("das Haus\n\ndas Buch\nein Buch\n", encoding="utf-8")
    (tmp_path / "b").write_text("the house\n\nthe book\na book\n", encoding="utf-8")
    return tmp_path / "a", tmp_path / "b"


def test_a_line_of_links_for_each_pair(call: Call, texts: tuple[Path, Path], tmp_path: Path) -> None:
    code, out, err = call("align", *texts, "-o", tmp_path / "words.tsv", "--iterations", 15)
    assert (code, out) == (0, "0-0 1-1\n\n0-0 1-1\n0-0 1-1\n")
    assert "4 pairs, 6 source words, 6 target words" in err and "forward: perplexity" in err and "words.tsv" in err
    assert "1 pairs are not aligned: one side is blank" in err
    assert "das\tthe\t" in (tmp_path / "words.tsv").read_text(encoding="utf-8")


def test_json(call: Call, texts: tuple[Path, Path]) -> None:
    code, out, _ = call("align", *texts, "--json", "--method", "forward", "--iterations", 3)
    *links, totals = map(json.loads, out.splitlines())
    assert code == 0 and links[0] == {"alignment": [[0, 0], [1, 1]]} and links[1] == {"alignment": []}
    assert totals["pairs"] == 4 and totals["links"] == 6 and len(totals["perplexity"]["forward"]) == 3


def test_summary_prints_the_totals_alone(call: Call, texts: tuple[Path, Path]) -> None:
    code, out, _ = call("align", *texts, "--summary")
    assert code == 0 and out.startswith("4 pairs, ") and "0-0" not in out and "reverse" not in out
    code, out, _ = call("align", *texts, "--summary", "--json")
    assert code == 0 and json.loads(out)["blank"] == 1


def test_tokens_of_a_run(call: Call, workshop: Any, trained: Path, tmp_path: Path) -> None:
    src, tgt, book = workshop.file("train.src"), workshop.file("train.tgt"), tmp_path / "tokens.tsv"
    code, out, _ = call("align", src, tgt, "--run", trained, "-o", book)
    n_lines = src.read_bytes().count(b"\n")
    assert code == 0 and out.count("\n") == n_lines
    from attnkit.tasks.translation.loading import load_run

    tokenizer = load_run(trained, device="cpu").src_tokenizer
    sizes = (tokenizer.vocab_size, tokenizer.vocab_size)
    lexicon = load_tokens(book, (tokenizer.fingerprint, tokenizer.fingerprint), sizes)
    (seven,) = tokenizer.encode(["7"])[0]
    assert seven in lexicon.of(seven)[:3]  # reversed digits translate themselves; spaces stand beside all of them
    (tmp_path / "v.json").write_text(tokenizer.to_json(), encoding="utf-8")
    again = call("align", src, tgt, "--vocab", tmp_path / "v.json", "-o", tmp_path / "again.tsv")
    assert again[1] == out and (tmp_path / "again.tsv").read_bytes() == book.read_bytes()
    widest = max(map(len, tokenizer.encode(src.read_text().splitlines())))
    assert max(int(link.split("-")[0]) for link in out.split()) < widest


def test_translates_help_says_what_the_dictionaries_are_for(call: Call) -> None:
    shown = " ".join(re.sub("[│─╭╮╰╯]", " ", call("translate", "--help")[1]).split())
    assert "attnkit translate word-run --replace-unknowns \\ --dictionary words.tsv" in shown
    assert "vocabulary.kind=word" in shown


def test_errors(call: Call, texts: tuple[Path, Path], tmp_path: Path) -> None:
    src, tgt = texts
    (tmp_path / "short").write_text("the house\n")
    (tmp_path / "bad").write_bytes(b"a\n\nb\n\xff\n")
    for arguments, code, said in (
        ([src, tmp_path / "short", "-o", tmp_path / "out"], 3, "has 4 lines and"),
        ([src, tmp_path / "bad", "-o", tmp_path / "out"], 3, "bad:4"),
        ([src, tmp_path / "missing"], 2, "no such file"),
        ([src, tgt, "-o", tgt], 2, "is also an input file"),
        ([src, tgt, "--method", "both"], 2, "grow-diag"),
        ([src, tgt, "--null-prob", 2], 2, "--null-prob must be above 0 and below 1"),
        ([src, tgt, "--iterations", 0], 2, "--iterations"),
        ([src, tgt, "--run", tmp_path / "none"], 4, "no such run folder"),
        ([src, tgt, "--vocab", tmp_path / "none"], 4, "no such vocabulary file"),
        ([src, tgt, "-o", tmp_path / "no" / "such" / "folder"], 5, "cannot write"),
    ):
        found, out, err = call("align", *arguments)
        assert (found, out) == (code, "") and said in err and err.splitlines()[0].startswith("error: "), err
        assert len(err.splitlines()) <= 3
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".tmp*"))
