"""Misaligned, exchanged and foreign stretches are found where they were put, and clean corpora have none."""

from __future__ import annotations

import itertools
import math
import random
from functools import cache

import numpy as np
import pytest

from attnkit.quality.alignment import Alignment, DistantShifts, find_alignment
from attnkit.quality.evidence import Evidence, fit_logistic_regression
from attnkit.quality.lexicon import SMOOTHING, Lexicon
from attnkit.quality.lines import Side, WordNumbers
from attnkit.quality.shifts import viterbi
from attnkit.text.toy.corpus import Kind, make_files

N = 600
KINDS: tuple[Kind, ...] = ("english-french", "reverse", "code", "summary")


@cache
def corpus(kind: Kind, n: int = N) -> tuple[list[str], list[str]]:
    files = make_files(kind, n, 3, n_valid=2, n_test=2)
    src, tgt = (name for name in files if name.startswith("train"))
    return files[src], files[tgt]


def sides(src: list[str], tgt: list[str]) -> tuple[Side, Side]:
    words = WordNumbers()
    return Side(src, words), Side(tgt, words)


def judge(src: list[str], tgt: list[str]) -> Alignment:
    return find_alignment(*sides(src, tgt))


def faults(alignment: Alignment) -> list[tuple[int, int, int | None]]:
    assert [s.begin for s in alignment.segments[1:]] == [s.end for s in alignment.segments[:-1]]
    return [(segment.begin, segment.end, segment.shift) for segment in alignment.faults]


@pytest.mark.parametrize("kind", KINDS)
def test_clean_corpora_have_no_faults(kind: Kind) -> None:
    found = judge(*corpus(kind))
    assert found.is_judged and faults(found) == []


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", [1, 7, 50])
def test_a_shift_is_found_with_its_place_and_size(kind: Kind, by: int) -> None:
    """Missing target lines leave their sources without a target, and move all others."""
    src, tgt = corpus(kind)
    at = 200
    moved = tgt[:at] + tgt[at + by :]
    found = faults(judge(src[: len(moved)], moved))
    assert found[-1] == (pytest.approx(at + by, abs=4), len(moved), -by)
    # Added target lines move the others the other way.
    moved = tgt[:at] + tgt[:by] + tgt[at:]
    (one,) = [fault for fault in faults(judge(src, moved)) if fault[2] is not None]
    assert one == (pytest.approx(at, abs=4), N, by)


def test_a_shift_of_all_lines_is_found() -> None:
    src, tgt = corpus("english-french")
    assert faults(judge(src[1:], tgt[:-1])) == [(0, N - 1, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_exchanged_blocks_are_found_wherever_they_are(kind: Kind) -> None:
    src, tgt = corpus(kind)
    moved = tgt[:50] + tgt[450:530] + tgt[130:450] + tgt[50:130] + tgt[530:]
    near = [pytest.approx(place, abs=4) for place in (50, 130, 450, 530)]
    assert faults(judge(src, moved)) == [(near[0], near[1], 400), (near[2], near[3], -400)]


def test_a_dropped_and_a_doubled_line_are_found_although_the_counts_agree() -> None:
    src, tgt = corpus("english-french")
    moved = tgt[:100] + tgt[101:300] + [tgt[299]] + tgt[300:]
    assert len(moved) == N
    assert faults(judge(src, moved)) == [(100, 101, None), (101, pytest.approx(300, abs=3), -1)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_no_target_belongs_to_two_sources(kind: Kind) -> None:
    """Thirty lines are lost one by one: shifts of 1 to 30, some for a few lines only."""
    src, tgt = corpus(kind, 3000)
    lost = sorted(random.Random(2).sample(range(3000), 30))
    left = [line for line in range(3000) if line not in lost]
    found = judge(src, [tgt[line] for line in left])
    partners = {
        line: line + segment.shift
        for segment in found.segments
        for line in range(segment.begin, segment.end)
        if segment.shift is not None
    }
    assert len(set(partners.values())) == len(partners)
    wrong = [line for line, partner in partners.items() if partner < len(left) and left[partner] != line]
    assert len(wrong) <= 4 and len(partners) >= 2950  # some are lost two lines apart


def test_pairs_that_belong_nowhere_are_a_fault_without_a_shift() -> None:
    src, tgt = corpus("english-french")
    other = corpus("code")[1]
    moved = tgt[:300] + other[:60] + tgt[360:]
    assert faults(judge(src, moved)) == [(pytest.approx(300, abs=3), pytest.approx(360, abs=3), None)]


def test_nothing_is_concluded_where_right_pairs_look_like_wrong_ones() -> None:
    draw = random.Random(1)
    src, tgt = ([" ".join(draw.choices("abcdefgh", k=5)) for _ in range(N)] for _ in range(2))
    found = judge(src, tgt)
    assert not found.is_judged and faults(found) == []
    few = judge(["a b"] * 10, ["b a"] * 10)
    assert few.evidence is None and faults(few) == []


def test_copies_and_blank_lines_say_nothing_about_alignment() -> None:
    src, tgt = (list(side) for side in corpus("english-french"))
    for line in range(0, N, 3):
        tgt[line] = src[line] if line % 2 else ""
    assert faults(judge(src, tgt)) == []


def test_unequal_files_are_judged_to_the_end_of_the_longer_one() -> None:
    src, tgt = corpus("english-french")
    found = judge(src, tgt[:400])
    assert found.segments[-1].end == N and found.segments[-1].shift is None
    assert judge(src[:400], tgt).segments[-1].end == 400


def test_the_path_is_the_best_of_all_paths() -> None:
    random_ = np.random.default_rng(0)
    for change in (0.3, 1.0, 3.0):
        emissions = random_.normal(size=(6, 3))

        def total(path: tuple[int, ...], emissions: np.ndarray = emissions, change: float = change) -> float:
            changes = sum(a != b for a, b in itertools.pairwise(path))
            return float(emissions[range(6), path].sum()) - change * changes

        best = max(itertools.product(range(3), repeat=6), key=total)
        assert tuple(viterbi(emissions, change)) == best


def test_the_regression_has_no_gradient_at_its_weights() -> None:
    random_ = np.random.default_rng(0)
    x = random_.normal(size=(200, 3))
    labels = (x @ [1.0, -2.0, 0.0] + random_.normal(size=200) > 0.3).astype(float)
    weights = fit_logistic_regression(x, labels)

    def loss(w: np.ndarray) -> float:
        logits = w[0] + x @ w[1:]
        likelihood = sum(math.log1p(math.exp(-z if y else z)) for z, y in zip(logits, labels, strict=True))
        return likelihood + 0.5 * float(w @ w)

    for i in range(4):
        step = np.eye(4)[i] * 1e-3
        assert loss(weights + step) > loss(weights) < loss(weights - step)
        assert (loss(weights + step) - loss(weights - step)) / 2e-3 == pytest.approx(0, abs=1e-4)


def test_the_lexicon_scores_pairs_as_by_hand() -> None:
    """By IBM Model 1 with one source word and its translation, whose probabilities are known."""
    src, tgt = sides(["a", "b"] * 50, ["x", "y"] * 50)
    lines = np.arange(100)
    lexicon = Lexicon(src, tgt, (lines, lines))
    sums, counts = lexicon.score(np.array([0, 0]), np.array([0, 1]))
    assert counts.tolist() == [1, 1]
    # After the first iteration by hand: a generates only x, NULL both words equally often.
    unigram = 50.5 / 101.5  # smoothed by half a count for x, y and none
    for value, t in zip(sums, (1.0, 0.0), strict=True):
        p = (t + 0.5) / 2
        assert value == pytest.approx(math.log(SMOOTHING + (1 - SMOOTHING) * p / unigram), abs=1e-5)


def test_distant_shifts_are_those_of_the_largest_correlation() -> None:
    random_ = np.random.default_rng(0)
    lengths = random_.integers(5, 60, 400)
    src, tgt = ["x" * n for n in lengths], ["y" * n for n in np.roll(lengths, 123)]
    evidence = Evidence(*sides(src, tgt), (np.arange(250), np.arange(250) + 123))
    lines = np.arange(20, 120)
    assert DistantShifts(evidence).find(lines) == [123]
