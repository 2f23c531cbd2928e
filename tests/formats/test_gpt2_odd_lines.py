"""An imported GPT-2 cuts and joins odd lines as in transformers, from either form of its tokenizer's files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import hub_encoders
from hub_runs import ODD
from test_gpt2_export import gpt2_tokenizer
from translators import odd_lines

from attnkit.conversion.import_vocabulary import read_vocabulary

END = "<|endoftext|>"
NAMES = {
    "one entry for all": dict.fromkeys(("bos", "eos", "unk"), END),
    "entries of their own": {"bos": "<s>", "eos": "</s>", "pad": "<pad>"},
}
EDGES = ["'s 'S 'll", "a'll b", " 's", "don't", "12345 6", "a1b2", "x  \n y", "a\r\n\r\n b", "   a", "\u2009x"]


@cache
def lines_of(name: str) -> list[str]:
    """Return odd lines without repeats, and without names that transformers takes for tokens of its own."""
    lines = [*ODD, *EDGES, *odd_lines(7000), *hub_encoders.odd_lines(3500)]
    return [line for line in dict.fromkeys(lines) if not any(each in line for each in NAMES[name].values())]


@pytest.mark.parametrize("form", ["tokenizer.json", "vocab.json"])
@pytest.mark.parametrize("name", NAMES)
def test_five_thousand_odd_lines_have_the_ids_and_texts_of_transformers(name: str, form: str, tmp_path: Path) -> None:
    theirs: Any = gpt2_tokenizer(NAMES[name], [])
    theirs.save_pretrained(tmp_path)
    if form == "vocab.json":
        model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
        vocab = {**model["vocab"], **theirs.get_added_vocab()}
        (tmp_path / "vocab.json").write_text(json.dumps(vocab))
        merges = [" ".join(merge) for merge in model["merges"]]
        (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
        (tmp_path / "tokenizer.json").unlink()
    found, lines = read_vocabulary(tmp_path, "gpt2", len(theirs)), lines_of(name)
    assert len(lines) > 5000
    rows = found.tokenizer.encode(lines)
    assert [[found.order[id] for id in row] for row in rows] == theirs(lines, add_special_tokens=False).input_ids
    expected = [theirs.decode([found.order[id] for id in row], clean_up_tokenization_spaces=False) for row in rows]
    assert found.tokenizer.decode(rows) == expected == lines
    # Cut in the middle of a character, bytes that are no text are replaced by the same signs.
    cut = [row[: len(row) // 2] for row in rows]
    halves = [theirs.decode([found.order[id] for id in row], clean_up_tokenization_spaces=False) for row in cut]
    assert found.tokenizer.decode(cut) == halves


def test_the_name_of_the_end_in_a_text_is_text(tmp_path: Path) -> None:
    theirs: Any = gpt2_tokenizer(NAMES["one entry for all"], [])
    theirs.save_pretrained(tmp_path)
    found = read_vocabulary(tmp_path, "gpt2", len(theirs))
    for line in (END, f"a{END}b", f" {END} "):
        (row,) = found.tokenizer.encode([line])
        expected = theirs(line, add_special_tokens=False, split_special_tokens=True).input_ids
        assert [found.order[id] for id in row] == expected and found.tokenizer.decode([row]) == [line]
