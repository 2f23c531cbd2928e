"""Lexicon files: what is written is read again; what a stranger may have written ends in one clear error."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit.errors import DataError, RunError
from attnkit.text import translation_lexicon as lexicon
from attnkit.text.translation_lexicon import Entries, lexicon_lines, load_dictionary, load_tokens, most_frequent, select

PRINTS = ("a" * 64, "b" * 64)


def entries(*rows: tuple[int, int, float]) -> Entries:
    columns = list(zip(*rows, strict=True))
    return Entries(np.array(columns[0]), np.array(columns[1]), np.array(columns[2]))


def written(path: Path, lines: Any) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A lexicon of 6 source and 8 target tokens."""
    found = entries((-1, 7, 0.5), (0, 3, 0.9), (0, 1, 0.1), (4, 5, 1.0), (5, 5, 0.25), (5, 2, 0.25))
    return written(tmp_path / "tokens.tsv", lexicon_lines(found, vocabularies=PRINTS, frequent=[5, 3]))


def test_words_come_back(tmp_path: Path) -> None:
    names = (["", "Katze", "#", "été"], ["", "cat", "1e5", "</s>\u200b"])
    found = entries((-1, 2, 0.4), (1, 1, 0.75), (1, 2, 0.25), (2, 3, 1.0), (3, 2, 1e-7))
    path = written(tmp_path / "words.tsv", lexicon_lines(found, names))
    assert path.read_text(encoding="utf-8").splitlines()[1:3] == ["\t1e5\t0.4", "Katze\tcat\t0.75"]
    assert load_dictionary(path) == {"Katze": "cat", "#": "</s>\u200b", "été": "1e5"}


def test_tokens_come_back(tokens: Path) -> None:
    found = load_tokens(tokens, PRINTS, (6, 8))
    assert [found.of(source).tolist() for source in range(-1, 6)] == [[7], [3, 1], [], [], [], [5], [5, 2]]
    assert found.frequent.tolist() == [5, 3]


def test_the_best_of_each_source_are_selected() -> None:
    sources, targets = np.array([3, 1, 3, 3, -1, 1]), np.array([2, 9, 1, 7, 4, 8])
    found = select(sources, targets, np.array([0.2, 0.5, 0.2, 0.6, 1.0, 0.5]), 2)
    rows = zip(found.sources.tolist(), found.targets.tolist(), found.probs.tolist(), strict=True)
    assert list(rows) == [(-1, 4, 1.0), (1, 8, 0.5), (1, 9, 0.5), (3, 7, 0.6), (3, 1, 0.2)]


def test_the_most_frequent_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.array([4, 2, 4, 0, 2, 5], np.int32)
    assert most_frequent(words, 9) == [2, 4, 0, 5]
    monkeypatch.setattr(lexicon, "MAX_FREQUENT", 1)
    assert most_frequent(words, 9) == [2]


def test_one_kind_is_not_the_other(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is a token lexicon, not a word lexicon") as caught:
        load_dictionary(tokens)
    assert caught.value.exit_code == 4 and "align" in (caught.value.help or "")
    words = written(tmp_path / "words.tsv", lexicon_lines(entries((1, 1, 1.0)), (["", "a"], ["", "b"])))
    with pytest.raises(RunError, match="contains words, not tokens"):
        load_tokens(words, PRINTS, (6, 8))
    for others in (PRINTS[::-1], ("a" * 64, "c" * 64)):
        with pytest.raises(RunError, match="other vocabularies") as caught:
            load_tokens(tokens, others, (6, 8))
        assert "--run RUN" in (caught.value.help or "")


def header(**changes: Any) -> str:
    plain = {"format": "attnkit lexicon", "version": 1, "units": "tokens", "lines": 1, "vocabularies": PRINTS}
    return "# " + json.dumps(plain | {"frequent": [1]} | changes)


DAMAGED = {
    "nothing": (b"", "its first line is not a lexicon header"),
    "other text": (b"a\tb\t0.5\n", "its first line is not a lexicon header"),
    "no end of the first line": (header().encode(), "its first line is not a lexicon header"),
    "a header without end": (b"# " + b"[" * 70_000 + b"\n", "its first line is not a lexicon header"),
    "not JSON": (b"# {\n", "not a lexicon"),
    "deep JSON": (b"# " + b"[" * 30_000 + b"\n", "not a lexicon"),
    "a key twice": (b'# {"units": "words", "units": "words"}\n', "duplicate key"),
    "a later version": (header(version=2).encode() + b"\n1\t1\t1\n", "version"),
    "an unknown key": (header(run="x").encode() + b"\n1\t1\t1\n", "run"),
    "more lines than bytes": (header(lines=1 << 24).encode() + b"\n1\t1\t1\n", "too few for its lines"),
    "far too many lines": (header(lines=1 << 40).encode() + b"\n1\t1\t1\n", "lines"),
    "no fingerprint": (header(vocabularies=["x", "y"]).encode() + b"\n1\t1\t1\n", "vocabularies"),
    "a frequent token that is none": (header(frequent=[8]).encode() + b"\n1\t1\t1\n", "no token 8"),
    "cut off": (header(lines=2).encode() + b"\n1\t1\t1\n", "truncated here"),
    "a line too many": (header().encode() + b"\n1\t1\t1\n1\t2\t1\n", "more entries than the header declares"),
    "two columns": (header().encode() + b"\n1\t11111\n", "separated by tabs"),
    "four columns": (header().encode() + b"\n1\t1\t1\t1\n", "separated by tabs"),
    "no number": (header().encode() + b"\n1\tx\t0.5\n", "not a token of the vocabulary"),
    "a source too high": (header().encode() + b"\n6\t1\t0.5\n", "not a token of the vocabulary"),
    "a target too high": (header().encode() + b"\n1\t8\t0.5\n", "not a token of the vocabulary"),
    "a long number": (header().encode() + b"\n1\t" + b"9" * 5000 + b"\t1\n", "not a token of the vocabulary"),
    "other digits": (header().encode() + "\n1\t٣\t0.5\n".encode(), "not a token of the vocabulary"),
    "below nothing": (header().encode() + b"\n-1\t1\t0.5\n", "not a token of the vocabulary"),
    "not a probability": (header().encode() + b"\n1\t1\tnan\n", "not a probability"),
    "more than certain": (header().encode() + b"\n1\t1\t1.5\n", "not a probability"),
    "impossible": (header().encode() + b"\n1\t1\t0\n", "not a probability"),
    "not UTF-8": (header().encode() + b"\n1\t\xff\t1\n", "separated by tabs"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    content, said = DAMAGED[name]
    (tmp_path / "l.tsv").write_bytes(content)
    with pytest.raises(RunError) as caught:
        load_tokens(tmp_path / "l.tsv", PRINTS, (6, 8))
    assert said in caught.value.what and caught.value.exit_code == 4
    assert all(len(line) < 1000 for line in caught.value.lines())


@pytest.mark.parametrize("row", ["a\tb c\t1", "a\t\t1", "a b\tc\t1", "a\tb\u2028\t1", "a\r\tb\t1", "\t\t1"])
def test_what_is_no_word_is_refused(tmp_path: Path, row: str) -> None:
    path = written(tmp_path / "w.tsv", [header(units="words", vocabularies=None, frequent=[]), row])
    with pytest.raises(RunError, match="a word is empty or contains white space"):
        load_dictionary(path)


def test_what_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such lexicon"):
        load_dictionary(tmp_path / "missing")
    with pytest.raises(RunError, match="not a regular file"):
        load_dictionary(tmp_path)


def test_too_many_lines_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "MAX_LINES", 1)
    with pytest.raises(DataError, match="more than 1") as caught:
        list(lexicon_lines(entries((0, 0, 1.0), (1, 1, 1.0)), vocabularies=PRINTS))
    assert "--min-prob" in (caught.value.help or "")


@pytest.mark.parametrize("seed", range(4))
def test_any_change_is_read_or_refused(tokens: Path, tmp_path: Path, seed: int) -> None:
    """Bytes changed, put in, taken out, cut off: an ``AttnkitError`` or a lexicon within its bounds, nothing else."""
    rng, good, refused = random.Random(seed), tokens.read_bytes(), 0
    for _ in range(150):
        raw = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randint(0, 2)] = bytes(
                rng.choices(b'0123456789\t\n-.e"{}[],:# \xff\0', k=rng.randint(0, 2))
            )
        (tmp_path / "l.tsv").write_bytes(raw if rng.random() < 0.8 else raw[: rng.randrange(len(raw))])
        try:
            found = load_tokens(tmp_path / "l.tsv", PRINTS, (6, 8))
        except RunError as error:
            refused += 1
            assert len(error.lines()) <= 3
        else:
            assert not len(found.targets) or (found.targets.min() >= 0 and found.targets.max() < 8)
            assert found.frequent.max(initial=0) < 8 and found.starts[-1] == len(found.targets)
    assert 50 < refused < 150
