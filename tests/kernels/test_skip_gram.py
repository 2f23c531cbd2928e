"""Compiled skip-gram against slow loops, pair by pair: with gensim's sampling, and with negatives that are shared."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from slow_loops import NOISE, Slow, chance, number

from attnkit.kernels.sampling import alias_table, keep_thresholds, key_of
from attnkit.kernels.word2vec_backend import CompiledBackend, LookupTables, LoopSpec, Text, Weights, rows

V, D, N = 50, 20, 400
COUNTS = (3000 / np.arange(2, V + 2)).astype(np.int64)
EXACT = LoopSpec(dim=D, window=3, negative=4, exact=True)
SHARED = replace(EXACT, exact=False)
TABLES = LookupTables(keep_thresholds(COUNTS, 2e-2), *alias_table(COUNTS, 0.75))
KEY = key_of(7, 2)


@pytest.fixture(scope="module")
def exact() -> CompiledBackend:
    return CompiledBackend(EXACT, TABLES, np.uint16)


@pytest.fixture(scope="module")
def shared() -> CompiledBackend:
    return CompiledBackend(SHARED, TABLES, np.uint16)


def corpus() -> Text:
    ids = np.random.default_rng(1).choice(V, N, p=COUNTS / COUNTS.sum()).astype(np.uint16)
    return Text(ids, np.array([0, 1, 1, 120, 122, 300, N]))


def begin(scale: float = 0.6) -> Weights:
    draw, made = np.random.default_rng(5), Weights(rows(V, SHARED.width), rows(V, SHARED.width))
    for matrix in (made.inputs, made.outputs):
        matrix[:, :D] = draw.normal(0, scale, (V, D))
    return made


def share(slow: Slow, text: Text, span: tuple[int, int], alphas: tuple[float, float]) -> None:
    """Train in blocks of 16 centres (or fewer: see the table below) with 32 drawn words each.

    These count by the window's words, and stand still till the block's end.
    """
    centres, negative = list(slow.windows(text, span, KEY)), slow.spec.negative
    length = {(3, 4): 16, (11, 4): 5, (3, 20): 6}[slow.spec.window, negative]  # 512 / (typical window * negative)
    for block in (centres[i : i + length] for i in range(0, len(centres), length)):
        drawn = slow.drawn(number(KEY ^ NOISE, block[0][0]), range(32))
        still, moves = slow.outputs[drawn].copy(), np.zeros((32, D))
        for at, near in block:
            slow.words += 1
            alpha = alphas[0] + (alphas[1] - alphas[0]) * (at - span[0]) / (span[1] - span[0])
            x = slow.inputs[text.ids[at]].copy()
            weight, error = len(near) * negative / 32, np.zeros(D)
            scores = [(float(still[k] @ x), k) for k in range(32)]
            for f, k in scores:
                slow.loss -= weight * np.log(chance(-f))
                step = -chance(f) * alpha * weight
                error += step * still[k]
                moves[k] += step * x
            places = [int(text.ids[j]) for j in near]
            outs = [float(slow.outputs[word] @ x) for word in places]
            for f, word in zip(outs, places, strict=True):
                slow.loss -= np.log(chance(f))
                slow.terms += 1 + negative
                error += (1 - chance(f)) * alpha * slow.outputs[word]
                slow.outputs[word] += (1 - chance(f)) * alpha * x
            slow.inputs[text.ids[at]] += error
        np.add.at(slow.outputs, drawn, moves)


def check(spec: LoopSpec, span: tuple[int, int], scale: float = 0.6) -> Slow:
    here, text, loops = begin(scale), corpus(), CompiledBackend(spec, TABLES, np.uint16)
    slow = Slow.like(spec, TABLES, here)
    alphas = (0.1, 0.02) if spec.exact else (0.03, 0.01)
    if spec.exact:
        slow.train(text, span, KEY, alphas)
    else:
        share(slow, text, span, alphas)
    tally = loops.piece(here, text, span, KEY, alphas)
    assert (tally.terms, tally.words) == (slow.terms, slow.words)
    assert tally.loss == pytest.approx(slow.loss, rel=1e-5)
    for ours, theirs in ((here.inputs, slow.inputs), (here.outputs, slow.outputs)):
        np.testing.assert_allclose(ours[:, :D], theirs, rtol=2e-4, atol=2e-5)
        assert not ours[:, D:].any()
    return slow


KNOBS = {
    "as it is": {},
    "windows as wide as can be": {"window": 11, "dynamic_window": False},
    "many negatives": {"negative": 20},
}


@pytest.mark.parametrize("name", KNOBS)
@pytest.mark.parametrize("kind", [EXACT, SHARED], ids=["exact", "shared"])
def test_equals_slow(kind: LoopSpec, name: str) -> None:
    spec = replace(kind, **KNOBS[name])
    slow = check(spec, (0, N))
    assert slow.words > 150 and slow.terms > 2000


@pytest.mark.parametrize("kind", [EXACT, SHARED], ids=["exact", "shared"])
def test_pieces_reach_beyond_their_ends(kind: LoopSpec) -> None:
    for span in ((0, 0), (0, 1), (60, 130), (120, 122), (301, N)):
        check(kind, span)


def test_exact_skips_what_is_beyond_six() -> None:
    slow = check(EXACT, (0, N), scale=1.5)
    unbounded = Slow.like(EXACT, TABLES, begin(1.5))
    unbounded.limit = np.inf
    unbounded.train(corpus(), (0, N), KEY, (0.1, 0.02))
    assert abs(unbounded.outputs - slow.outputs).max() > 1e-2  # so it does happen here


def test_borders_of_pieces_change_nothing(exact: CompiledBackend) -> None:
    text, whole, cut = corpus(), begin(), begin()
    alphas = (0.05, 0.05)
    tally = exact.piece(whole, text, (0, N), KEY, alphas)
    ends = [0, 1, 40, 121, 150, 299, N]
    pieces = [exact.piece(cut, text, span, KEY, alphas) for span in pairwise(ends)]
    np.testing.assert_array_equal(whole.inputs, cut.inputs)
    np.testing.assert_array_equal(whole.outputs, cut.outputs)
    assert (sum(p.words for p in pieces), sum(p.terms for p in pieces)) == (tally.words, tally.terms)
    assert sum(p.loss for p in pieces) == pytest.approx(tally.loss, rel=1e-12)


def test_both_learn_the_same_on_average(exact: CompiledBackend, shared: CompiledBackend) -> None:
    """A tiny step from the same weights, over many draws of negatives: the mean moves are equal up to chance."""
    text, moves = corpus(), []
    for loops in (exact, shared):
        total = []
        for epoch in range(600):
            here, start = begin(0.3), begin(0.3)
            loops.piece(here, text, (0, N), key_of(1, epoch), (1e-3, 1e-3))
            total.append(here.inputs[:, :D] - start.inputs[:, :D])
        moves.append((np.mean(total, 0), np.std(total, 0) / np.sqrt(600)))
    (first, one), (second, two) = moves
    # A drawn word that is the one beside it is left out in the exact loop; this moves the rest of the comparison.
    assert np.corrcoef(first.ravel(), second.ravel())[0, 1] > 0.99
    met = one > 0
    assert np.median(abs(first - second)[met] / np.hypot(one, two)[met]) < 4


def test_numbers_that_are_none_are_seen(exact: CompiledBackend, shared: CompiledBackend) -> None:
    for loops in (exact, shared):
        here = begin()
        here.inputs[3, 2] = np.nan
        assert np.isnan(loops.piece(here, corpus(), (0, N), KEY, (0.1, 0.1)).loss)
        assert np.isnan(here.outputs).any()
