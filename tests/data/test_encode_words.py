"""Text to the store that word vectors are learnt from, against counters of plain Python."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import re
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from attnkit.data import words as module
from attnkit.data.config import WordsConfig
from attnkit.data.words import encode_words, open_words
from attnkit.errors import DataError, RunError, UsageError
from attnkit.kernels import words as numbering
from attnkit.text.config import PhrasesConfig, VocabularyConfig
from attnkit.text.phrases import load
from attnkit.text.vocabulary import train_vocabulary


def make_text(seed: int = 1, n_lines: int = 300) -> str:
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(50)] + ["Été", "ÉTÉ", "漢字", "\u212aelvin"]
    lines = [
        "  ".join(words[min(int(rng.expovariate(0.1)), 53)] for _ in range(rng.randint(0, 9))) for _ in range(n_lines)
    ]
    return "\n".join(lines)  # the last line has no end


def naive(
    text: str, min_count: int, max_vocab: int | None, lower: bool, pattern: str = r"\S+"
) -> tuple[list[str], list[int], list[list[int]]]:
    lines = [re.findall(pattern, line.lower() if lower else line) for line in text.split("\n")]
    counts = Counter(word for line in lines for word in line)
    kept = [word for word, n in counts.most_common(max_vocab) if n >= min_count]
    ids = {word: i for i, word in enumerate(kept)}
    rows = [[ids[word] for word in line if word in ids] for line in lines]
    return kept, [counts[word] for word in kept], [row for row in rows if row]


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(numbering, "compiled_loops", lambda: None)
    return str(request.param)


@pytest.mark.parametrize(("min_count", "max_vocab", "lower"), [(1, None, False), (5, None, True), (3, 10, False)])
def test_words_are_those_of_a_counter(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, min_count: int, max_vocab: int | None, lower: bool
) -> None:
    monkeypatch.setattr("attnkit.data.word_ids._BLOCK", 100)
    monkeypatch.setattr("attnkit.data.word_ids._AT_ONCE", 64)
    text = make_text()
    (tmp_path / "a.txt").write_text(text, newline="")
    settings = WordsConfig(min_count=min_count, max_vocab=max_vocab, lower=lower)
    found = encode_words(tmp_path / "e", [tmp_path / "a.txt"], settings)
    words, counts, rows = naive(text, min_count, max_vocab, lower)
    assert (found.words.words, found.words.counts.tolist()) == (words, counts)
    assert [found.store[i].tolist() for i in range(len(found.store))] == rows
    assert found.store.ids.tolist() == [id for row in rows for id in row]
    assert found.store.offsets.tolist() == [0, *np.cumsum([len(row) for row in rows]).tolist()]
    assert found.n_raw == len(text.split())
    again = open_words(tmp_path / "e")
    assert again.words == found.words and again.n_raw == found.n_raw
    assert again.store.fingerprint == found.store.fingerprint
    found.store.release(0, len(found.store.ids))
    assert found.store[0].tolist() == rows[0]


@pytest.mark.parametrize(("min_count", "max_vocab", "lower"), [(1, None, False), (3, 20, True)])
def test_marks_are_words_unless_white_space_alone_separates(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, min_count: int, max_vocab: int | None, lower: bool
) -> None:
    monkeypatch.setattr("attnkit.data.word_ids._BLOCK", 100)
    rng = random.Random(3)
    forms = ["{}", "{},", '"{}', "({})", '{}..."', "{}"]
    text = "\n".join(
        " ".join(rng.choice(forms).format(word) for word in line.split()) for line in make_text(2).split("\n")
    )
    (tmp_path / "a.txt").write_text(f"{'x' * 1500} {text}", newline="")
    settings = WordsConfig(min_count=min_count, max_vocab=max_vocab, lower=lower)
    for separate, pattern in ((True, r'\.\.\.|[",()]|[^",().\s]+'), (False, r"\S+")):
        given = settings.model_copy(update={"separate_punctuation": separate})
        found = encode_words(tmp_path / str(separate), [tmp_path / "a.txt"], given)
        words, counts, rows = naive(text, min_count, max_vocab, lower, pattern)
        assert (found.words.words, found.words.counts.tolist()) == (words, counts)
        assert [found.store[i].tolist() for i in range(len(found.store))] == rows
        assert found.n_raw == 1 + len(re.findall(pattern, text))  # the first word is too long


def test_the_same_text_in_any_wrapping_is_encoded_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_text(1), make_text(2)
    (tmp_path / "whole").write_text(f"{first}\n{second}")
    (tmp_path / "a.gz").write_bytes(gzip.compress(first.encode()))
    (tmp_path / "a.xz").write_bytes(lzma.compress(b"\xef\xbb\xbf" + first.encode()))
    (tmp_path / "a.bz2").write_bytes(bz2.compress(first.replace("\n", "\r\n").encode()))
    (tmp_path / "b").write_text(second)
    expected = encode_words(tmp_path / "e", [tmp_path / "whole"], WordsConfig()).store.fingerprint
    for number, name in enumerate(["a.gz", "a.xz", "a.bz2", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(first.encode())))
        sources = [Path(name) if name == "-" else tmp_path / name, tmp_path / "b"]
        assert encode_words(tmp_path / f"e{number}", sources, WordsConfig()).store.fingerprint == expected


@pytest.mark.parametrize(
    ("raw", "what", "where"),
    [
        (b"", "no text", "a.txt"),
        (b" \n\t\n", "no text", "a.txt"),
        (b"a b c\nd e\n", "no word occurs at least 5 times: the most frequent, 'a', occurs once", "a.txt"),
        (b"a\nb\n" * 9, "no line contains two in-vocabulary words", "a.txt"),
        (b"a b\nc \xffd\n", r"byte 0xFF is not UTF-8 \(byte 3 of the line\)", "a.txt:2"),
        (b"a b\nc d\xe6\xbc", r"byte 0xE6 is not UTF-8 \(byte 4 of the line\)", "a.txt:2"),
        (b"x" * 5000, "every word exceeds the maximum of 1,000 bytes", "a.txt"),
        ("a b\n".encode("utf-16") * 9, "invalid UTF-8", "a.txt:1"),
        ("some words stand here\n".encode("utf-16-le") * 9, "invalid UTF-8", "a.txt:1"),
        (gzip.compress(b"a b\n" * 9), r"is not UTF-8", "a.txt:1"),
    ],
    ids=["empty", "blank", "rare", "alone", "bytes", "cut", "long", "utf-16", "utf-16 without mark", "gzip"],
)
def test_text_that_cannot_be_used_leaves_nothing(tmp_path: Path, way: str, raw: bytes, what: str, where: str) -> None:
    (tmp_path / "a.txt").write_bytes(raw)
    with pytest.raises(DataError, match=what) as caught:
        encode_words(tmp_path / "e", [tmp_path / "a.txt"], WordsConfig())
    assert caught.value.where == str(tmp_path / where)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 8, 9, 10, 11, 100])
def test_the_place_of_a_bad_byte_needs_no_luck_with_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr("attnkit.data.word_ids._BLOCK", cut)
    (tmp_path / "a").write_bytes("\ufeffab c\nd é ".encode() + b"\xe6\xbc" + b"e\nf")
    with pytest.raises(DataError, match=r"0xE6 is not UTF-8 \(byte 6 of the line\)") as caught:
        encode_words(tmp_path / "e", [tmp_path / "a"], WordsConfig())
    assert caught.value.where == f"{tmp_path / 'a'}:2"


def test_files_that_are_missing_or_cut_off_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        encode_words(tmp_path / "e", [tmp_path / "a"], WordsConfig())
    (tmp_path / "a.gz").write_bytes(gzip.compress(make_text().encode())[:-20])
    with pytest.raises(DataError, match="damaged or truncated") as caught:
        encode_words(tmp_path / "e", [tmp_path / "a.gz"], WordsConfig())
    assert "download it again" in str(caught.value.help)
    assert not (tmp_path / "e").exists()


def test_text_without_spaces_is_told_of_a_tokenizer(tmp_path: Path) -> None:
    sentence = "我昨天在图书馆看了一本关于历史的书"
    (tmp_path / "a").write_text(f"{sentence}\n" * 9)
    with pytest.raises(DataError, match="no line contains two in-vocabulary words") as caught:
        encode_words(tmp_path / "e", [tmp_path / "a"], WordsConfig())
    assert "--tokenizer" in (caught.value.help or "")
    (tmp_path / "b").write_text(f"{sentence}\n{sentence} {sentence}\n" * 9)
    found = encode_words(tmp_path / "e", [tmp_path / "b"], WordsConfig())
    assert len(found.warnings) == 1 and "white space" in found.warnings[0]


def test_tokens_of_a_vocabulary_are_words(tmp_path: Path) -> None:
    text = "we read a book\n我昨天在图书馆看了一本书\nwe read 书\n" * 3
    (tmp_path / "a").write_text(text + "unseen ☃\n")
    tokenizers = [
        train_vocabulary(text.split("\n"), VocabularyConfig(kind=kind, size=600, min_frequency=1))
        for kind in ("bpe", "wordpiece", "word", "char")
    ]
    for number, tokenizer in enumerate(tokenizers):
        found = encode_words(tmp_path / f"e{number}", [tmp_path / "a"], WordsConfig(min_count=1), tokenizer=tokenizer)
        rows = tokenizer.encode((text + "unseen ☃").split("\n"))
        counts = Counter(id for row in rows for id in row if id != 3)
        assert found.n_raw == sum(map(len, rows))
        assert sorted(found.words.counts.tolist()) == sorted(counts.values())
        assert len(set(found.words.words)) == len(found.words) == len(counts)
        assert [len(found.store[i]) for i in range(3)] == [len(row) for row in rows[:3]]
        assert found.words.index("we" if number == 2 else "▁we" if number < 2 else "w") is not None


def test_a_line_of_any_length_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"some words " * 3_000_000)
    assert numbering.compiled_loops()
    tracemalloc.start()
    found = encode_words(tmp_path / "e", [tmp_path / "a"], WordsConfig())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.store) == 1 and found.words.counts.tolist() == [3_000_000] * 2
    assert peak < 16 << 20  # the line has 33 MB


PARTS = {("new", "york"), ("york", "city"), ("bank", "of", "england"), ("au", "pair")}


def test_phrases_are_joined_and_kept(tmp_path: Path, way: str) -> None:
    rng = random.Random(2)
    lines = []
    for _ in range(400):
        words = [f"w{rng.randrange(60)}" for _ in range(9)]
        words[3:5] = rng.choice(
            [["new", "york", "city"], ["bank", "of", "england"], ["new", "york"], ["au", "pair"], ["au"]]
        )
        lines.append(" ".join(words))
    lines += ["new_york was written so"] * 4
    (tmp_path / "a").write_text("\n".join(lines))
    phrases = PhrasesConfig(passes=2, threshold=10.0, connectors=("of",))
    found = encode_words(tmp_path / "e", [tmp_path / "a"], WordsConfig(min_count=1, phrases=phrases))
    text = "\n".join(lines).replace("bank of england", "bank_of_england").replace("new york city", "new_york_city")
    text = text.replace("new york", "new_york").replace("au pair", "au_pair")
    kept, counts, rows = naive(text, 1, None, False)
    assert (found.words.words, found.words.counts.tolist()) == (kept, counts)
    assert [found.store[i].tolist() for i in range(len(found.store))] == rows
    assert found.n_raw == len(text.split())
    saved = load(tmp_path / "e" / "phrases.tsv")
    assert {phrase.parts for phrase in saved.passes[0]} == PARTS
    assert [phrase.parts for phrase in saved.passes[1]] == [("new_york", "city")]


@pytest.mark.parametrize("name", ["words.tsv", "words.json", "ids.bin"])
def test_damage_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_text(make_text())
    encode_words(tmp_path / "e", [tmp_path / "a"], WordsConfig())
    path = tmp_path / "e" / name
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(RunError, match="damaged"):
        open_words(tmp_path / "e")
    path.unlink()
    with pytest.raises(RunError, match="damaged"):
        open_words(tmp_path / "e")


def test_nobody_needs_torch() -> None:
    assert module.__name__ in sys.modules
    import subprocess

    code = "import sys, attnkit.data.words, attnkit.data.words, attnkit.cli.word2vec.phrases"
    code += "\nassert not {'torch', 'numba'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
