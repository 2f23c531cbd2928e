"""Numbers of words: compiled, in plain Python, and by ``str.split``."""

from __future__ import annotations

import random

import numpy as np
import pytest

from attnkit.kernels.words import (
    CHARACTER,
    LINE,
    LINE_END,
    MAX_WORD_BYTES,
    SPACE,
    TOO_LONG,
    WRONG,
    CompiledNumberer,
    NoTextError,
    Numberer,
    PlainNumberer,
    byte_steps,
    compiled_loops,
)

WAYS = ["compiled", "plain"]
LETTERS = ["a", "b", "A", "É", "é", "ß", "İ", "漢", "😀", "Σ", "\u212a", "\0", "\u200b", "x" * 300]
SPACES = [
    " ",
    " ",
    "\n",
    "\t",
    "\r",
    "\v",
    "\f",
    "\x1c",
    "\x85",
    "\u00a0",
    "\u1680",
    "\u2009",
    "\u2028",
    "\u205f",
    "\u3000",
]


def numberer(way: str, lower: bool = False) -> Numberer:
    loops = compiled_loops()
    assert loops is not None
    return CompiledNumberer(lower, loops) if way == "compiled" else PlainNumberer(lower)


def fed(numbers_of: Numberer, data: bytes, cuts: list[int]) -> list[int]:
    """Return the numbers of a text in blocks, with places of errors counted from its begin."""
    found: list[int] = []
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        try:
            found += numbers_of.feed(data[begin:end]).tolist()
        except NoTextError as error:
            raise NoTextError(begin + error.at, error.byte) from error
    same = numbers_of.settle()
    return found if same is None else [n if n < 0 else int(same[n]) for n in found]


def as_words(numbers_of: Numberer, numbers: list[int]) -> list[str | int]:
    names = numbers_of.words(np.arange(len(numbers_of.counts)))
    return [n if n < 0 else names[n] for n in numbers]


def naive(text: str, lower: bool) -> list[str | int]:
    found: list[str | int] = []
    for line in text.split("\n")[:-1]:
        for word in line.split():
            known = word.lower() if lower else word
            found.append(TOO_LONG if max(len(word.encode()), len(known.encode())) > MAX_WORD_BYTES else known)
        found.append(LINE_END)
    return found


def texts(n: int) -> list[tuple[bytes, list[int], bool]]:
    rng, found = random.Random(1), []
    for number in range(n):
        data = "".join(rng.choice(rng.choice([LETTERS, SPACES])) for _ in range(rng.randint(0, 60))).encode()
        if number % 3 == 0 and data:
            place = rng.randrange(len(data))
            data = data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        data += b"\n"
        found.append(
            (data, sorted(rng.sample(range(len(data)), min(len(data), rng.randint(0, 4)))), rng.random() < 0.5)
        )
    return found


@pytest.mark.parametrize("way", WAYS)
def test_words_are_what_split_finds_wherever_blocks_end(way: str) -> None:
    n_bad = 0
    for data, cuts, lower in texts(600):
        numbers_of = numberer(way, lower)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            n_bad += 1
            with pytest.raises(NoTextError) as caught:
                fed(numbers_of, data, cuts)
            assert (caught.value.at, caught.value.byte) == (error.start, data[error.start])
            continue
        expected = naive(text, lower)
        assert as_words(numbers_of, fed(numbers_of, data, cuts)) == expected
        words = [word for word in expected if isinstance(word, str)]
        by_first = dict.fromkeys(words)
        used = np.flatnonzero(numbers_of.counts)
        names = numbers_of.words(used)
        assert dict(zip(names, numbers_of.counts[used].tolist(), strict=True)) == {w: words.count(w) for w in by_first}
        assert [names[i] for i in np.argsort(numbers_of.first[used])] == list(by_first)
    assert n_bad > 100


@pytest.mark.parametrize("way", WAYS)
def test_tables_grow(way: str) -> None:
    numbers_of = numberer(way)
    words = [f"{'w' * (i % 50)}{i}" for i in range(40_000)]
    data = (" ".join(words * 2) + "\n").encode()
    assert fed(numbers_of, data, list(range(0, len(data), 100_000))[1:]) == [*range(40_000)] * 2 + [LINE_END]
    assert numbers_of.words(np.array([39_999, 7])) == [words[-1], words[7]]
    assert set(numbers_of.counts.tolist()) == {2}


@pytest.mark.parametrize("way", WAYS)
def test_an_endless_word_takes_no_memory(way: str) -> None:
    numbers_of = numberer(way)
    for _ in range(64):
        assert numbers_of.feed("漢".encode() * 5000 + b"\xe6")[:0].tolist() == []
        assert numbers_of.feed(b"\xbc\xa2").tolist() == []
    held = len(numbers_of._rest) if isinstance(numbers_of, PlainNumberer) else len(numbers_of._data)
    assert held < 40_000
    assert numbers_of.feed(b"x y\n").tolist() == [TOO_LONG, 0, LINE_END]


def test_the_automaton_reads_every_character() -> None:
    steps = byte_steps()
    for code in [
        *range(0x800),
        *range(0x1000, 0x3100),
        *range(0xD000, 0xD800),
        *range(0xE000, 0xE100),
        0xFFFF,
        0x10FFFF,
    ]:
        raw, state = chr(code).encode(), 0
        for byte in raw:
            state = int(steps[state, byte])
        expected = LINE if code == 10 else SPACE if chr(code).isspace() else CHARACTER
        assert state == expected, hex(code)
    for raw in (
        b"\x80",
        b"\xc0",
        b"\xc1",
        b"\xf5",
        b"\xe0\x9f",
        b"\xed\xa0",
        b"\xf0\x8f",
        b"\xf4\x90",
        b"\xc2a",
        b"\xe2\x80a",
    ):
        state = 0
        for byte in raw:
            state = int(steps[state, byte])
        assert state == WRONG, raw
