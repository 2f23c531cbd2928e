"""IBM Model 1 against loops written from Brown et al. (1993), section 4.1; numba against numpy."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from attnkit.kernels import ibm1 as corpus_module
from attnkit.kernels.ibm1 import (
    IN_NUMPY,
    AlignmentCorpus,
    AlignmentLoops,
    best_links,
    compiled_loops,
    cooccurring_pairs,
    em_step,
    fastest,
    init_table,
    spans,
)

Line = list[int]
NULL = -1


def make_corpus(pairs: list[tuple[Line, Line]], n_src: int, n_tgt: int) -> AlignmentCorpus:
    sides = []
    for side in range(2):
        words = np.array([word for pair in pairs for word in pair[side]], np.int32)
        sides += [words, np.cumsum([0, *(len(pair[side]) for pair in pairs)]).astype(np.int64)]
    return AlignmentCorpus(*sides, n_src, n_tgt)


def random_pairs(seed: int, n: int, n_src: int, n_tgt: int, longest: int) -> list[tuple[Line, Line]]:
    """Return lines of random words, some of them empty, some with a word several times."""
    rng = random.Random(seed)

    def line(n_words: int) -> Line:
        return [min(int(rng.expovariate(5 / n_words)), n_words - 1) for _ in range(rng.randint(0, longest))]

    return [(line(n_src), line(n_tgt)) for _ in range(n)]


def loops_of(name: str) -> AlignmentLoops:
    found = IN_NUMPY if name == "numpy" else compiled_loops()
    assert found is not None and found.name == name
    return found


class Naive:
    """Expectation and maximisation word by word, in dictionaries, as the paper has it: t(f|e), e in e_0, .., e_l."""

    def __init__(self, pairs: list[tuple[Line, Line]], null_prob: float | None) -> None:
        self.pairs = [(src, tgt) for src, tgt in pairs if src and tgt]
        n_words = len({f for _, tgt in self.pairs for f in tgt})
        self.t: dict[tuple[int, int], float] = defaultdict(lambda: 1.0 / n_words)
        self.null_prob = null_prob

    def weight(self, place: int, n_src: int) -> float:
        """Return the probability of a place of the source line, NULL being place 0."""
        if self.null_prob is None:
            return 1 / (n_src + 1)
        return self.null_prob if place == 0 else (1 - self.null_prob) / n_src

    def step(self) -> float:
        counts: dict[tuple[int, int], float] = defaultdict(float)
        log_likelihood = 0.0
        for src, tgt in self.pairs:
            words = [NULL, *src]
            for f in tgt:
                total = sum(self.weight(i, len(src)) * self.t[f, e] for i, e in enumerate(words))
                log_likelihood += math.log(total)
                for i, e in enumerate(words):
                    counts[f, e] += self.weight(i, len(src)) * self.t[f, e] / total
        sums: dict[int, float] = defaultdict(float)
        for (_, e), count in counts.items():
            sums[e] += count
        self.t = defaultdict(float, {(f, e): count / sums[e] for (f, e), count in counts.items()})
        return log_likelihood

    def links(self, src: Line, tgt: Line) -> Line:
        found = []
        for j, f in enumerate(tgt):
            scores = [self.weight(i, len(src)) * self.t[f, e] for i, e in enumerate([NULL, *src])]
            best, chosen = scores[0], NULL
            for i in range(len(src)):
                off = abs((i + 0.5) / len(src) - (j + 0.5) / len(tgt))
                if scores[i + 1] > best or (
                    scores[i + 1] == best
                    and (chosen == NULL or off < abs((chosen + 0.5) / len(src) - (j + 0.5) / len(tgt)) - 1e-9)
                ):
                    best, chosen = scores[i + 1], i
            found.append(chosen)
        return found


def as_naive(table, n_tgt: int) -> dict[tuple[int, int], float]:
    return {(int(key) % n_tgt, int(key) // n_tgt - 1): float(p) for key, p in zip(table.keys, table.probs, strict=True)}


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work on a few cells at a time, so that a small corpus has many runs."""
    monkeypatch.setattr(corpus_module, "CELLS", 70)


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("null_prob", [None, 0.15])
@pytest.mark.parametrize("name", ["numpy", "numba"])
def test_equals_word_by_word(name: str, null_prob: float | None) -> None:
    pairs = random_pairs(1, 60, 12, 15, 9)
    corpus, naive, loops = make_corpus(pairs, 12, 15), Naive(pairs, null_prob), loops_of(name)
    assert len(list(spans(corpus))) > 20
    table = init_table(corpus, null_prob=null_prob)
    for _ in range(5):
        assert em_step(table, corpus, loops) == pytest.approx(naive.step(), rel=1e-12)
        found = as_naive(table, 15)
        assert found.keys() >= naive.t.keys()
        for pair, prob in found.items():
            assert prob == pytest.approx(naive.t[pair], rel=1e-12, abs=1e-300), pair
    naive.t = defaultdict(float, found)  # so that ties are the same ones
    wanted = [naive.links(*pair) if all(pair) else [NULL] * len(pair[1]) for pair in pairs]
    assert best_links(table, corpus, loops).tolist() == [i for line in wanted for i in line]


def test_numba_equals_numpy() -> None:
    corpus = make_corpus(random_pairs(2, 800, 60, 70, 25), 60, 70)
    tables = []
    for loops in (loops_of("numpy"), loops_of("numba")):
        table = init_table(corpus)
        likelihoods = [em_step(table, corpus, loops) for _ in range(6)]
        tables.append((table, likelihoods))
    (one, first), (other, second) = tables
    np.testing.assert_allclose(one.probs, other.probs, rtol=1e-12, atol=0)
    np.testing.assert_allclose(first, second, rtol=1e-12)
    left, right = (best_links(one, corpus, loops_of(name)) for name in ("numpy", "numba"))
    assert np.array_equal(left, right)


def test_the_same_corpus_gives_the_same_bits() -> None:
    corpus = make_corpus(random_pairs(3, 100, 30, 30, 12), 30, 30)
    for loops in (loops_of("numpy"), loops_of("numba")):
        found = []
        for _ in range(2):
            table = init_table(corpus)
            found.append((em_step(table, corpus, loops), table.probs.tobytes()))
        assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(3))
def test_the_likelihood_never_falls_and_rows_add_up(seed: int) -> None:
    corpus = make_corpus(random_pairs(seed, 150, 20, 20, 10), 20, 20)
    table = init_table(corpus, null_prob=0.3 if seed else None)
    likelihoods = []
    for _ in range(15):
        likelihoods.append(em_step(table, corpus, fastest()))
        sums = [table.probs[a:b].sum() for a, b in zip(table.starts[:-1], table.starts[1:], strict=True) if a < b]
        assert sums == pytest.approx([1.0] * len(sums), rel=1e-12)
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(likelihoods))
    assert likelihoods[-1] > likelihoods[0] + 1


def test_a_hand_worked_corpus() -> None:
    """Koehn 2010, fig. 4.1: das Haus / the house, das Buch / the book, ein Buch / a book.

    The first step, from t = 1/4: t(the|das) = 1/2, t(house|das) = t(book|das) = 1/4; t(the|Haus) = t(house|Haus) = 1/2;
    t(book|Buch) = 1/2, t(the|Buch) = t(a|Buch) = 1/4. NULL changes none of these, as it takes the same from all.
    """
    das, haus, buch, ein = range(4)
    the, house, book, a = range(4)
    corpus = make_corpus([([das, haus], [the, house]), ([das, buch], [the, book]), ([ein, buch], [a, book])], 4, 4)
    table = init_table(corpus)
    em_step(table, corpus, fastest())
    found = as_naive(table, 4)
    assert found[the, das] == pytest.approx(1 / 2)
    assert found[house, das] == found[book, das] == pytest.approx(1 / 4)
    assert found[the, haus] == found[house, haus] == pytest.approx(1 / 2)
    assert found[book, buch] == pytest.approx(1 / 2)
    assert (a, haus) not in found
    for _ in range(40):
        em_step(table, corpus, fastest())
    assert best_links(table, corpus, fastest()).tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.usefixtures("small_runs")
def test_pairs_that_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = random_pairs(4, 80, 15, 11, 8)
    corpus = make_corpus(pairs, 15, 11)
    counts: dict[int, int] = defaultdict(int)
    for src, tgt in pairs:
        for x in src:
            for y in tgt:
                counts[(x + 1) * 11 + y] += 1
    keys, n_lost = cooccurring_pairs(corpus, 10_000)
    assert (keys.tolist(), n_lost) == ([*range(11), *sorted(counts)], 0)
    for most in (60, 20, 1):
        keys, n_lost = cooccurring_pairs(corpus, most)
        assert keys[:11].tolist() == list(range(11)) and n_lost > 0
        assert set(keys[11:].tolist()) <= counts.keys() and 0 < len(keys) - 11 <= most
        assert np.all(np.diff(keys) > 0)
        table = init_table(corpus, most=most)
        likelihoods = [em_step(table, corpus, fastest()) for _ in range(5)]
        assert likelihoods == sorted(likelihoods) and np.isfinite(table.probs).all()
    # In one go, what is forgotten is exactly what has met least often.
    monkeypatch.setattr(corpus_module, "CELLS", 1 << 20)
    keys, n_lost = cooccurring_pairs(corpus, len(counts) - 1)
    kept = set(keys[11:].tolist())
    assert len(kept) == len(counts) // 2 and n_lost == len(counts) - len(kept)
    assert min(counts[key] for key in kept) >= max(counts[key] for key in counts.keys() - kept)


def test_a_pair_of_lines_longer_than_a_run(small_runs: None) -> None:
    corpus = make_corpus([([0, 1] * 30, [1, 0] * 30), ([0], [1])], 2, 2)
    assert list(spans(corpus)) == [(0, 1), (1, 2)]
    table = init_table(corpus)
    assert em_step(table, corpus, fastest()) < 0


Learn = Callable[[list[tuple[list[str], list[str]]], int], dict[str, str]]


@pytest.fixture
def learn() -> Learn:
    """Return the likeliest translation of each word of pairs of lines."""

    def run(pairs: list[tuple[list[str], list[str]]], iterations: int) -> dict[str, str]:
        names = [sorted({word for pair in pairs for word in pair[side]}) for side in range(2)]
        ids = [{word: i for i, word in enumerate(each)} for each in names]
        lines = [([ids[0][w] for w in src], [ids[1][w] for w in tgt]) for src, tgt in pairs]
        corpus = make_corpus(lines, len(names[0]), len(names[1]))
        table = init_table(corpus)
        for _ in range(iterations):
            em_step(table, corpus, fastest())
        found = {}
        for row, word in enumerate(names[0], 1):
            part = slice(int(table.starts[row]), int(table.starts[row + 1]))
            found[word] = names[1][int(table.keys[part][table.probs[part].argmax()]) % corpus.n_tgt]
        return found

    return run


def test_recovers_the_lexicon_of_the_toy_language(learn: Learn) -> None:
    """English lines, and beside them the lexicon's French word for each English one, in any order."""
    from attnkit.text.toy.corpus import make_files
    from attnkit.text.toy.lexicon import dictionary

    known = {en: fr for en, fr in dictionary().items() if fr and " " not in fr}
    rng = random.Random(5)
    pairs, counts = [], defaultdict(int)
    for line in make_files("english-french", 1500, 3, n_valid=1, n_test=1)["train.en"]:
        src = [word for word in line.lower().strip(".?!").split() if word in known]
        for word in set(src):
            counts[word] += 1
        pairs.append((src, rng.sample([known[word] for word in src], len(src))))
    found = learn(pairs, 10)
    often = [word for word, count in counts.items() if count >= 5]
    assert len(often) > 100
    right = [word for word in often if found[word] == known[word]]
    assert len(right) >= 0.97 * len(often), sorted(set(often) - set(right))
