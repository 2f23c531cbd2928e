"""Samples of lines: uniform, in order, the same from files and lines, and what vocabularies are built from."""

from __future__ import annotations

import gzip
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from attnkit.errors import DataError
from attnkit.text.config import VocabularyConfig
from attnkit.text.line_sample import sample_lines
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

LINES = [f"line {n // 4} of these" if n % 7 else "" for n in range(3000)]


@pytest.mark.parametrize(("n", "size"), [(1, 20), (5, 20), (19, 20), (3, 200)])
def test_every_line_is_equally_likely(n: int, size: int) -> None:
    """Pearson's statistic of the draws per line, over many seeds, is that of equal chances."""
    n_seeds = 4000
    lines = [str(number) for number in range(size)]
    counts: Counter[str] = Counter()
    for seed in range(n_seeds):
        drawn = sample_lines(lines, n, seed)
        assert len(set(drawn)) == n and drawn == sorted(drawn, key=int)
        counts.update(drawn)
    expected = n_seeds * n / size
    # Without replacement, the variance of a count is that of n draws times (1 - n / size).
    statistic = sum((counts[line] - expected) ** 2 for line in lines) / (expected * (1 - n / size))
    assert abs(statistic - size) < 4 * (2 * size) ** 0.5, statistic


def test_neighbours_are_drawn_independently() -> None:
    """Of 3 out of 30 lines, two neighbours are as likely as any two lines: 3 * 2 / (30 * 29) each."""
    n_seeds, lines = 20_000, [str(number) for number in range(30)]
    pairs = sum(int(b) - int(a) == 1 for seed in range(n_seeds) for a, b in pairwise(sample_lines(lines, 3, seed)))
    expected = n_seeds * 29 * 3 * 2 / (30 * 29)
    assert abs(pairs - expected) < 4 * expected**0.5


def test_files_give_the_sample_of_their_lines(tmp_path: Path) -> None:
    """Also over the borders of blocks and files, with other ends of lines and compressed."""
    first, second = tmp_path / "a", tmp_path / "b.gz"
    long = [*LINES, "x" * 600_000, *LINES]
    first.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(long).encode())
    second.write_bytes(gzip.compress("\n".join(LINES).encode()))
    for n in (7, 900, 10**6):
        assert sample_lines([first, second], n, 3) == sample_lines([*long, *LINES], n, 3)
    assert sample_lines([first], 10**6, 3) == long
    assert sample_lines([first], 50, 3) == sample_lines([first], 50, 3) != sample_lines([first], 50, 4)


def test_the_command_says_that_it_took_a_sample(tmp_path: Path, call: Any) -> None:
    path = tmp_path / "a"
    path.write_text("\n".join(LINES))
    arguments = ["vocab", path, "-o", tmp_path / "v.json", "--size", 300, "--sample-lines", 50, "--quiet"]
    assert ", built from 50 lines at most" in call(*arguments)[1]


def test_all_text_must_be_valid(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"fine\n" * 1000 + b"\xff\n" + b"fine\n" * 1000)
    with pytest.raises(DataError, match="byte 0xFF is not UTF-8") as caught:
        sample_lines([path], 1, 1)
    assert caught.value.where == f"{path}:1001"


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "word", "char"])
def test_a_vocabulary_is_built_from_the_sample_and_says_so(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("\n".join(LINES))
    config = VocabularyConfig(kind=kind, size=600, sample_lines=300, sample_seed=5)
    found = train_vocabulary([path], config)
    plain = train_vocabulary(iter(sample_lines([path], 300, 5)), config.model_copy(update={"sample_lines": None}))
    assert found.names == plain.names
    if kind != "char":
        assert found.names != train_vocabulary([path], VocabularyConfig(kind=kind, size=600)).names
    assert found.encode(LINES) == plain.encode(LINES)
    assert '"sample_lines":300,"sample_seed":5' in found.to_json() and "sample" not in plain.to_json()
    assert Tokenizer.from_json(found.to_json()).config == config
