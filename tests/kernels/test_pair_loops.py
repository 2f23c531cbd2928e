"""Pairs of neighbours: counted and joined, compiled and in plain Python, against loops over lists of words."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from attnkit.kernels import pairs
from attnkit.kernels.pairs import PairCounter, PhraseJoiner, WordClasses

Text = list[int]


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(pairs, "compiled_loops", lambda: None)
    return str(request.param)


def texts(n: int) -> Iterator[tuple[WordClasses, Text, list[int]]]:
    rng = random.Random(3)
    for _ in range(n):
        n_connectors = rng.choice([0, 0, 1, 2])
        kinds = [rng.choice([0, 0, 0, -1]) for _ in range(rng.randint(1, 9))] + [*range(1, n_connectors + 1)]
        text = [rng.choice([*range(len(kinds)), -1, -2]) for _ in range(rng.randint(0, 300))] + [-1]
        yield (
            WordClasses(np.array(kinds, np.int32), n_connectors),
            text,
            sorted(rng.sample(range(len(text)), min(len(text), 2))),
        )


def naive_pairs(kinds: WordClasses, text: Text) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for i, word in enumerate(text):
        j = i + 1
        while j < len(text) and text[j] >= 0 and kinds.of[text[j]] > 0:
            j += 1
        if j < len(text) and word >= 0 and text[j] >= 0 and kinds.of[word] == kinds.of[text[j]] == 0:
            found[tuple(text[i : j + 1])] += 1
    return found


def naive_join(kinds: WordClasses, text: Text, chosen: dict[tuple[int, ...], int]) -> Text:
    out, i = [], 0
    while i < len(text):
        j = i + 1
        while j < len(text) and text[j] >= 0 and kinds.of[text[j]] > 0:
            j += 1
        phrase = tuple(text[i : j + 1])
        out.append(chosen.get(phrase, text[i]))
        i = j + 1 if phrase in chosen else i + 1
    return out


def test_pairs_are_counted_and_joined(way: str) -> None:
    for kinds, text, cuts in texts(150):
        expected = naive_pairs(kinds, text)
        # gaps are numbers with room for some 15 connectors
        counter = PairCounter(kinds, 1 << 20)
        for part in np.split(np.array(text, np.int32), cuts):
            counter.add(part)
        rows, counts = counter.pairs()
        connectors = {kind: number for number, kind in enumerate(kinds.of.tolist()) if kind > 0}
        found = {
            (a, *(connectors[kind] for kind in kinds.decode_gap(gap)), b): n
            for (a, gap, b), n in zip(rows.tolist(), counts.tolist(), strict=True)
        }
        assert found == expected
        chosen = {pair: len(kinds.of) + i for i, pair in enumerate(sorted(expected)[:5])}
        targets = {(p[0], kinds.encode_gap(int(kinds.of[c]) for c in p[1:-1]), p[-1]): n for p, n in chosen.items()}
        joiner = PhraseJoiner(kinds, targets, len(kinds.of) + 5)
        out = [n for part in np.split(np.array(text, np.int32), cuts) for n in joiner.join(part).tolist()]
        assert out == naive_join(kinds, text, chosen)
        given = [n for n in out if n >= 0]
        assert joiner.counts.tolist() == [given.count(n) for n in range(len(joiner.counts))]
        order = np.argsort(joiner.first, kind="stable")[: len(set(given))]
        assert order.tolist() == list(dict.fromkeys(given))


def test_the_rarest_are_forgotten(way: str) -> None:
    rng = random.Random(5)
    text = [n for _ in range(3000) for n in (0, 1, rng.randrange(2, 40), rng.randrange(2, 40))]
    kinds = WordClasses(np.zeros(40, np.int32))
    counter = PairCounter(kinds, 100)
    counter.add(np.array(text, np.int32))
    rows, counts = counter.pairs()
    assert len(rows) <= 100 and counter.n_lost > 0
    assert counts.sum() + counter.n_lost == len(text) - 1
    assert [0, 0, 1] in rows.tolist() and counts.max() == 3000
    assert counter.pairs(3000)[0].tolist() == [[0, 0, 1]]


def test_more_connectors_than_a_gap_holds_make_no_pair(way: str) -> None:
    kinds = WordClasses(np.array([0, 1, 0], np.int32), 1)
    for n, expected in ((23, [[0, (1 << 23) - 1, 2]]), (40, [])):
        counter = PairCounter(kinds, 100)
        text = np.array([0, *[1] * n, 2, -1], np.int32)
        counter.add(text)
        assert counter.pairs()[0].tolist() == expected
        joined = PhraseJoiner(kinds, {(0, (1 << 23) - 1, 2): 3}, 4).join(text).tolist()
        assert joined == ([3, -1] if expected else text.tolist())


def test_both_ways_forget_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    for kinds, text, cuts in texts(100):
        found = []
        for loops in (pairs.compiled_loops(), None):
            monkeypatch.setattr(pairs, "compiled_loops", lambda loops=loops: loops)
            counter = PairCounter(kinds, 4)
            for part in np.split(np.array(text, np.int32), cuts):
                counter.add(part)
            found.append((counter.n_lost, *(array.tolist() for array in counter.pairs())))
            monkeypatch.undo()
        assert found[0] == found[1]
