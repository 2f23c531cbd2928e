"""Vocabularies: the same bytes from the same text anywhere, sizes as asked for, a unigram model worked by hand."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from attnkit.errors import DataError, UsageError
from attnkit.protocols import UNK_ID
from attnkit.text import unigram
from attnkit.text.config import VocabularyConfig
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary
from attnkit.text.vocabulary_schema import CHARACTERS
from attnkit.text.vocabulary_statistics import statistics

KINDS = ("bpe", "unigram", "wordpiece", "word", "char")
SYLLABLES = ["ba", "ke", "li", "mo", "nu", "schra", "tön"]
LINES = [" ".join("".join(word) for word in product(SYLLABLES, [end, "st"])) for end in SYLLABLES] * 3


def test_the_same_text_gives_the_same_bytes_anywhere(tmp_path: Path) -> None:
    """In processes with other hash seeds and other numbers of threads."""
    text = tmp_path / "a.txt"
    text.write_text("\n".join(LINES), encoding="utf-8")
    script = f"""
from pathlib import Path
from attnkit.text.config import VocabularyConfig
from attnkit.text.vocabulary import train_vocabulary
for kind in {KINDS!r}:
    print(train_vocabulary([Path({str(text)!r})], VocabularyConfig(kind=kind, size=600)).fingerprint)
"""
    here = [train_vocabulary([text], VocabularyConfig(kind=kind, size=600)).fingerprint for kind in KINDS]
    for seed, threads in (("1", "1"), ("2", "3"), ("3", "3")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert ended.stdout.split() == here, ended.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "multiple_of"), [(600, 8), (601, 8), (590, 64), (10_000, 8), (537, 1)])
def test_sizes_are_multiples_and_at_most_what_was_asked_for(kind: str, size: int, multiple_of: int) -> None:
    tokenizer = train_vocabulary(LINES, VocabularyConfig(kind=kind, size=size, multiple_of=multiple_of))
    assert tokenizer.vocab_size % multiple_of == 0
    assert tokenizer.vocab_size <= size
    assert tokenizer.tokens(range(4)) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert tokenizer.n_unused < multiple_of


def test_a_size_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(UsageError, match="kind bpe needs at least 260 entries with byte fallback, not 100"):
        train_vocabulary(LINES, VocabularyConfig(size=100))
    with pytest.raises(UsageError, match="kind wordpiece needs at least 516"):
        train_vocabulary(LINES, VocabularyConfig(kind="wordpiece", size=512))
    with pytest.raises(UsageError, match="without byte fallback"):
        train_vocabulary(LINES, VocabularyConfig(size=8, byte_fallback=False))
    assert train_vocabulary(LINES, VocabularyConfig(size=64, byte_fallback=False)).vocab_size == 64


def test_no_text_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n \n")
    for text in ([], [empty], ["", "  "]):
        with pytest.raises(DataError, match="no text"):
            train_vocabulary(text, VocabularyConfig())


def test_byte_pairs_are_merged_in_order_of_frequency() -> None:
    """Sennrich et al. 2016: low 5, lower 2, newest 6, widest 3; each count from the worked example's merges."""
    words = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    tokenizer = train_vocabulary(words, VocabularyConfig(size=263, multiple_of=1))
    merges = json.loads(tokenizer.to_json())["tokenizer"]["model"]["merges"]
    assert merges[:2] == [["e", "s"], ["es", "t"]]  # 9 each; the tie goes to the pair met first in byte order


def test_rare_words_and_characters_get_no_entry() -> None:
    tokenizer = train_vocabulary(["a b c", "a b"], VocabularyConfig(kind="word", min_frequency=2))
    assert tokenizer.encode(["a c"])[0][1] == UNK_ID
    tokenizer = train_vocabulary(["aab", "b日"], VocabularyConfig(kind="char", size=264))
    assert tokenizer.tokens(tokenizer.encode(["ab日"])[0]) == ["a", "b", "<0xE6>", "<0x97>", "<0xA5>"]


@pytest.mark.parametrize("kind", ["word", "char"])
def test_ties_do_not_hang_on_the_order_of_lines(kind: str) -> None:
    lines = ["c a", "b d", "d c", "a b"]
    config = VocabularyConfig(kind=kind, size=264, min_frequency=1)
    assert train_vocabulary(lines, config).fingerprint == train_vocabulary(lines[::-1], config).fingerprint


def test_symbols_are_not_learnt_as_text() -> None:
    tokenizer = train_vocabulary(["<2de>haus"] * 9, VocabularyConfig(size=300, symbols=("<2de>",)))
    assert "2de" not in tokenizer.tokens(range(4, tokenizer.vocab_size))[1:]
    assert tokenizer.tokens(tokenizer.encode(["<2de>haus"])[0])[1] == "<2de>"


@pytest.mark.parametrize("bad", [["a b"], [""], ["<s>"], ["x", "x"]])
def test_bad_symbols_are_refused(bad: list[str]) -> None:
    with pytest.raises(ValueError, match=r"symbol|special|differ"):
        VocabularyConfig.model_validate_json(json.dumps({"symbols": bad}))


# -- the unigram trainer


def cuts(word: bytes) -> list[list[bytes]]:
    """All ways to cut a word."""
    if not word:
        return [[]]
    return [[word[:n], *rest] for n in range(1, len(word) + 1) for rest in cuts(word[n:])]


def test_expected_counts_equal_a_sum_over_all_cuts() -> None:
    counts = {b"abab": 5, b"abc": 3, b"cab": 2}
    corpus = unigram._Corpus(counts)
    seeds = unigram._find_seeds(corpus, 1000, 2)
    names = [corpus.substring(seeds, i) for i in range(len(seeds.length))]
    assert set(names[256:]) == {b"ab", b"ba", b"aba", b"bab", b"abab", b"bc", b"abc", b"ca", b"cab"}
    probability = np.random.default_rng(1).uniform(0.05, 0.5, len(names))
    expected: Counter[bytes] = Counter()
    of = dict(zip(names, probability, strict=True))
    for word, n in counts.items():
        weighted = [(math.prod(of[p] for p in cut), cut) for cut in cuts(word) if all(p in of for p in cut)]
        total = sum(weight for weight, _ in weighted)
        for weight, cut in weighted:
            for piece in cut:
                expected[piece] += n * weight / total
    found = unigram._lattice(seeds, corpus.start[:-1], np.diff(corpus.start), words=True).expect(
        probability, corpus.count
    )
    np.testing.assert_allclose(found, [expected[name] for name in names], rtol=1e-12, atol=1e-15)
    best = unigram._lattice(seeds, seeds.occurrence, seeds.length, words=False).best(probability)
    for i in range(256, len(names)):
        others = [cut for cut in cuts(names[i]) if len(cut) > 1 and all(p in of for p in cut)]
        assert best[i] == pytest.approx(max(math.prod(of[p] for p in cut) for cut in others))


def test_frequencies_of_seeds_are_exact() -> None:
    counts = {"".join(word).encode(): i % 5 + 1 for i, word in enumerate(product("ab", "bc", "ca", "ab"))}
    corpus = unigram._Corpus(counts)
    seeds = unigram._find_seeds(corpus, 10_000, 2)
    exact: Counter[bytes] = Counter()
    for word, n in counts.items():
        for begin in range(len(word)):
            for end in range(begin + 1, len(word) + 1):
                exact[word[begin:end]] += n
    found = {corpus.substring(seeds, i): seeds.frequency[i] for i in range(len(seeds.length)) if seeds.frequency[i]}
    assert found == {piece: n for piece, n in exact.items() if n >= 2 or len(piece) == 1}


def test_digamma() -> None:
    euler = 0.57721566490153286
    assert unigram._digamma(np.array([1.0, 2.0, 0.5])) == pytest.approx(
        [-euler, 1 - euler, -euler - 2 * math.log(2)], abs=1e-8
    )


def test_unigram_finds_units_and_keeps_every_byte() -> None:
    stems, ends = ["ba", "ke", "schra", "mo", "nu"], product(["lim", "tön", "ger", "fa"], ["ich", "st", "en", "zip"])
    words = ["".join([stem, *end]).encode() for stem, end in product(stems, list(ends))]
    pieces = unigram.train_unigram(dict.fromkeys(words, 1), 256 + 15)
    assert len(pieces) == 271
    assert {stem.encode() for stem in stems} <= {piece.text for piece in pieces}
    assert {piece.text for piece in pieces if len(piece.text) == 1} == {bytes([byte]) for byte in range(256)}
    assert sum(math.exp(piece.score) for piece in pieces) == pytest.approx(1, abs=0.05)
    assert unigram.train_unigram({b"a": 1}, 300)[0].text == b"a"


def test_the_byte_alphabet_is_that_of_tokenizers() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(CHARACTERS) == sorted(ByteLevel.alphabet())
    split = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("é\0 \u2028~")[0][0]
    assert split == "".join(CHARACTERS[byte] for byte in "é\0 \u2028~".encode())


def test_a_vocabulary_that_no_file_may_hold_is_an_error_of_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    config = VocabularyConfig(kind="unigram", size=600)
    train_vocabulary(LINES, config)
    monkeypatch.setattr("attnkit.text.vocabulary_schema.MAX_NODES", 300)
    with pytest.raises(DataError, match="the trained vocabulary is invalid: its entries are too large") as caught:
        train_vocabulary(LINES, config)
    assert (caught.value.where, caught.value.help) == ("vocabulary.size", "lower vocabulary.size")


# -- statistics


def test_statistics_by_hand(tmp_path: Path) -> None:
    tokenizer: Tokenizer = train_vocabulary(["a b a b"] * 3, VocabularyConfig(kind="word"))
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("a b\n")
    second.write_text("a\n\na b zz a\n")
    found = statistics(tokenizer, [first, second])
    assert (found.n_lines, found.n_words, found.n_tokens, found.n_unknown) == (4, 7, 7, 1)
    assert (found.longest, found.longest_path, found.longest_line) == (4, str(second), 3)
    assert found.coverage == pytest.approx(12 / 15)  # " zz" is not covered
    assert found.tokens_per_word == 1


def test_coverage_counts_characters_cut_into_bytes(tmp_path: Path) -> None:
    tokenizer = train_vocabulary(["abab ab"] * 3, VocabularyConfig(size=264))
    text = tmp_path / "a"
    text.write_text("ab 日é\n", encoding="utf-8")
    found = statistics(tokenizer, [text])
    assert (found.n_characters, found.n_covered, found.n_unknown) == (6, 4, 0)
