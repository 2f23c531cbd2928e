"""Vocabularies and statistics from counted chunks: equal to those of reading each line."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, trainers

from attnkit.errors import DataError
from attnkit.text import chunk_counts, line_blocks, vocabulary, vocabulary_statistics
from attnkit.text import vocabulary_schema as engine
from attnkit.text.byte_pairs import merge_words
from attnkit.text.chunk_counts import TextCounts
from attnkit.text.config import VocabularyConfig
from attnkit.text.lines import read_lines
from attnkit.text.vocabulary import count_words, has_counting, train_vocabulary
from attnkit.text.vocabulary_statistics import statistics
from attnkit.text.word_splits import LineFilter, split_chunks

pytestmark = pytest.mark.skipif(not has_counting(), reason="needs numba")

KINDS = ("bpe", "wordpiece", "unigram", "word", "char")
# Spaces in a row and at both ends, white space that Unicode or Python alone calls so, characters that NFKC makes spaces
# of, symbols, contractions, words that are split for their length.
BITS = [
    *"aab1.'’,é日ßΣςﬀ½\u0301\u00a8",
    *([" "] * 14),
    *("  ", "\t", "\u00a0", "\u3000", "\x1c", "\x85", "\u2028", "\u200b", "\x00", "\r", "Ġ"),
    *("<s>", "<2de>", "don't", "l’homme", "x" * 50, "é" * 600, "y" * 1001),
]
CONFIGS = [{}, {"normalize": "nfkc", "symbols": ("<2de>",)}, {"lowercase": True, "byte_fallback": False}]


def draw_lines(seed: int, n: int = 300, most: int = 30) -> list[str]:
    drawn = random.Random(seed)
    return ["".join(drawn.choice(BITS) for _ in range(drawn.randrange(most))) for _ in range(n)]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """One file with a byte-order mark and without a last line feed, one with carriage returns."""
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_bytes(("\ufeff" + "\n".join(draw_lines(1))).encode())
    paths[1].write_bytes(("\r\n".join(draw_lines(2)) + "\r\n").encode())
    return paths


def config_of(kind: str, others: dict[str, object]) -> VocabularyConfig:
    return VocabularyConfig.model_validate({"kind": kind, "size": 900, "min_frequency": 2, **others})


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", CONFIGS)
def test_vocabularies_are_those_of_the_lines(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, kind: str, others: dict[str, object]
) -> None:
    config = config_of(kind, others)
    lines = [line for path in files for line in read_lines(path)]
    monkeypatch.setattr(line_blocks, "_BLOCK", 5000)
    monkeypatch.setattr(vocabulary, "AT_ONCE", 0)
    found = [train_vocabulary(text, config).to_json() for text in (files, lines)]
    monkeypatch.setattr(vocabulary, "AT_ONCE", 1 << 40)  # read by the trainers of ``tokenizers``, or word by word
    assert found == [train_vocabulary(files, config).to_json()] * 2


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", CONFIGS)
def test_statistics_are_those_of_the_lines(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, kind: str, others: dict[str, object]
) -> None:
    tokenizer = train_vocabulary(files, config_of(kind, others))
    monkeypatch.setattr(line_blocks, "_BLOCK", 2000)
    found = [statistics(tokenizer, files)]
    monkeypatch.setattr(vocabulary_statistics, "MAX_DISTINCT", 100)
    found.append(statistics(tokenizer, files))
    monkeypatch.setattr(vocabulary_statistics, "has_counting", lambda: False)
    assert found == [statistics(tokenizer, files)] * 2
    assert found[0].n_tokens and found[0].longest_line


@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_is_freed_changes_no_vocabulary(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """More distinct chunks than are kept: ``unigram`` and ``word`` drop the same ones, the others none."""
    drawn = random.Random(5)
    letters = str.maketrans("0123456789", "abcdefghij")
    words = [str(int(drawn.paretovariate(0.5))).translate(letters) for _ in range(18_000)]
    lines = [" ".join(words[begin : begin + 9]) for begin in range(0, len(words), 9)]
    config = VocabularyConfig.model_validate({"kind": kind, "size": 700, "min_frequency": 2})
    for module in (chunk_counts, vocabulary):
        monkeypatch.setattr(module, "MAX_DISTINCT", 500)
    monkeypatch.setattr(chunk_counts, "_LINES", 16)
    counts = TextCounts(config)
    counts.add(lines)
    counts.finish()
    if kind in ("unigram", "word"):
        expected = count_words(iter(lines), config)
        assert list(counts.counts.items()) == list(expected.items())
        assert sum(expected.values()) < len(words)
    else:
        monkeypatch.setattr(chunk_counts, "MAX_DISTINCT", 1 << 40)
        others = TextCounts(config)
        others.add(lines)
        others.finish()
        assert counts.counts == others.counts


@pytest.mark.parametrize("seed", range(20))
def test_merges_equal_those_of_tokenizers(seed: int) -> None:
    """Few letters, so that many pairs tie, and many entries are found in two ways."""
    drawn = random.Random(seed)
    letters = "abcd"[: drawn.randrange(2, 5)]
    words = Counter(
        {"".join(drawn.choices(letters, k=drawn.randrange(1, 12))): drawn.randrange(1, 30) for _ in range(200)}
    )
    trainer = trainers.BpeTrainer(vocab_size=300, min_frequency=3, show_progress=False)
    expected = Engine(models.BPE())
    expected.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    expected.train_from_iterator((" ".join([word] * n) for word, n in words.items()), trainer)
    names, merges = merge_words(words, sorted(letters), 300, 3)
    assert {name: id for id, name in enumerate(names)} == expected.get_vocab()
    assert [list(merge) for merge in merges] == json.loads(expected.to_str())["model"]["merges"]


def test_words_of_ascii_are_those_of_the_pattern() -> None:
    drawn = random.Random(7)
    chunks = ["".join(chr(drawn.randrange(33, 127)) for _ in range(drawn.randrange(1, 60))) for _ in range(2000)]
    for kind in ("bpe", "wordpiece"):
        config = VocabularyConfig.model_validate({"kind": kind, "lowercase": True})
        bare = engine.build(engine.pipeline(config, engine.NO_WORDS))
        expected = [
            [word for word, _ in bare.pre_tokenizer.pre_tokenize_str(bare.normalizer.normalize_str(" " + chunk))]
            for chunk in chunks
        ]
        assert split_chunks(bare, config, chunks) == expected


@pytest.mark.parametrize(
    "broken", [b"fine\n\xff\n", b"\xef\xbb\xbfbad \xe9\n", b"ok\n" * 900 + b"x\xc3\n", b"a\xe6\x97"]
)
def test_bytes_that_are_no_text_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bytes) -> None:
    path = tmp_path / "text"
    path.write_bytes(broken)
    with pytest.raises(DataError) as expected:
        list(read_lines(path))
    monkeypatch.setattr(vocabulary, "AT_ONCE", 0)
    monkeypatch.setattr(line_blocks, "_BLOCK", 100)
    for symbols in ((), ("ok",)):
        with pytest.raises(DataError) as found:
            train_vocabulary([path], VocabularyConfig(symbols=symbols))
        assert parts_of(found.value) == parts_of(expected.value)


def test_utf16_and_endless_lines_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text"
    monkeypatch.setattr(vocabulary, "AT_ONCE", 0)
    path.write_bytes("a line of text that is wide\n".encode("utf-16-le"))
    with pytest.raises(DataError, match="is not UTF-8") as found:
        train_vocabulary([path], VocabularyConfig())
    with pytest.raises(DataError) as expected:
        list(read_lines(path))
    assert parts_of(found.value) == parts_of(expected.value)
    monkeypatch.setattr(line_blocks, "MAX_BYTES", 100)
    path.write_bytes(b"fine\n" + b"x" * 200)
    with pytest.raises(DataError, match="this line has more than") as found:
        train_vocabulary([path], VocabularyConfig())
    assert found.value.where == f"{path}:2"


def parts_of(error: DataError) -> tuple[str, str | None, str | None]:
    return error.what, error.where, error.help


def test_blank_lines_and_symbols_are_not_trained_on() -> None:
    kept = LineFilter(VocabularyConfig(symbols=("<2de>",)))
    assert list(kept(["", " \t", "<2de>haus", "y" * 1001])) == [" haus", "y" * 1000 + " y"]
    counts = TextCounts(VocabularyConfig(symbols=("<2de>",)))
    counts.add(["", " \t", "<2de>haus", "ein haus"])
    counts.finish()
    assert counts.n_lines == 2
    assert counts.counts == Counter({"Ġhaus": 2, "Ġein": 1, "Ġ": 1})
