"""Lines of any length in parts: together they are the line, and a vocabulary makes the same of them."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnkit.data.word_ids import TempIdFile, encodable, token_words_to_ids
from attnkit.errors import DataError
from attnkit.io.atomic import anonymous_tempfile
from attnkit.kernels.words import LINE_END, TOO_LONG
from attnkit.protocols import UNK_ID
from attnkit.text import long_lines as module
from attnkit.text.config import VocabularyConfig
from attnkit.text.lines import read_lines
from attnkit.text.long_lines import read_chunks
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

WORDS = ["das", "größte", "Haus", "x", "日本", "a\tb", "c\u00a0", "\u00a0d", "[X]", "...", "\u2003", "ΟΔΟΣ"]


def texts(n: int) -> list[str]:
    drawn = random.Random(3)
    gaps = [" ", " ", " ", "  ", "     ", "\t ", " \t"]
    lines = []
    for _ in range(n):
        words = [drawn.choice(WORDS) + drawn.choice(gaps) for _ in range(drawn.randrange(60))]
        lines.append(drawn.choice(["", " ", "   "]) + "".join(words) + drawn.choice(["", "\r"]))
    return [*lines, "", "   ", " a"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parts") / "text.txt"
    path.write_bytes(("\ufeff" + "\n".join(texts(80))).encode())
    return path


@pytest.mark.parametrize("most", [1, 7, 30, 1 << 18])
def test_parts_make_up_the_lines(path: Path, most: int) -> None:
    lines: list[str] = []
    n_inside = 0
    for part in read_chunks(path, most):
        assert part.begins == (not lines or part.begins)
        if part.begins:
            lines.append("")
        else:
            n_inside += 1
            assert part.text.startswith(" ")
        lines[-1] += part.text
    assert lines == list(read_lines(path))
    assert (n_inside > 100) == (most < 100)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char"])
def test_tokens_are_those_of_the_line(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    config = VocabularyConfig.model_validate({"kind": kind, "size": 800, "symbols": ("[X]",), "min_frequency": 1})
    tokenizer = train_vocabulary([path], config)
    rows = tokenizer.encode([line.lower() if line.strip() else "" for line in read_lines(path)])
    expected = [TOO_LONG if id == UNK_ID else id for row in rows for id in (*row, LINE_END)]
    monkeypatch.setattr(module.read_chunks, "__defaults__", (20,))
    with anonymous_tempfile(tmp_path) as stream:
        spool = TempIdFile(stream)
        token_words_to_ids([path], True, tokenizer, spool, lambda text: None)
        assert [id for block in spool for id in block.tolist()] == expected


def test_a_line_that_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"fine\n" + b"word " * 30 + b"\xff\n")
    with pytest.raises(DataError, match=r"0xFF is not UTF-8 \(byte 151 of the line\)") as found:
        list(read_chunks(path, 20))
    assert found.value.where == f"{path}:2"
    path.write_bytes("fine and more text\n".encode("utf-16-le"))
    with pytest.raises(DataError, match="invalid UTF-8"):
        list(read_chunks(path))
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    path.write_bytes(b"fine\n" + b"x" * 200)
    with pytest.raises(DataError, match="more than 100 bytes without a space") as found:
        list(read_chunks(path, 20))
    assert found.value.where == f"{path}:2"


def test_memory_does_not_grow_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"some words " * (1 << 20))  # 11 MB
    tracemalloc.start()
    n = sum(len(part.text) for part in read_chunks(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n == 11 << 20 and peak < 4 << 20


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_imported_vocabularies_tell_a_first_word_from_others(path: Path, kind: str) -> None:
    """What a part is given to is the same for those too: chunks, as ``Tokenizer.encode`` takes them one by one."""
    config = VocabularyConfig.model_construct(kind=kind)
    told = SimpleNamespace(config=config, lead="" if kind == "gpt2" else " ")
    lines = [line if line.strip() else "" for line in read_lines(path)]
    expected = [Tokenizer.chunks(told, line) for line in lines]  # type: ignore[arg-type]
    found: list[list[str]] = []
    for part in read_chunks(path, 20):
        found += [[]] if part.begins else []
        found[-1] += Tokenizer.chunks(told, encodable(part, False, told))  # type: ignore[arg-type]
    assert found == expected
