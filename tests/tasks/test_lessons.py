"""The numbers behind ``attnkit explain``: what they claim is so."""

from __future__ import annotations

import math

import pytest
import torch

from attnkit.analysis.explain import (
    count_pairs,
    learn_width,
    mask_lesson,
    noisy_points,
    pooling_lesson,
    positions_lesson,
    true_curve,
)
from attnkit.models.attention.attend import Gaussian, leave_one_out
from attnkit.models.attention.patterns import PATTERNS, PatternName, make_pattern
from attnkit.plotting.lessons_terminal import mask_text, positions_text


def test_the_causal_mask_hides_what_comes_later() -> None:
    lesson = mask_lesson("a b c d")
    assert lesson.mask == [[j <= i for j in range(4)] for i in range(4)]
    for i, row in enumerate(lesson.weights):
        assert row == pytest.approx([1 / (i + 1)] * (i + 1) + [0.0] * (3 - i))
        assert row[i + 1 :] == [0.0] * (3 - i)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", PATTERNS)
def test_pairs_are_counted_as_a_dense_mask_has_them(name: PatternName, causal: bool) -> None:
    pattern = make_pattern(name, 7, causal, 2)
    assert count_pairs(pattern, 300) == sum(map(sum, pattern.dense_mask(300, 300)))
    lesson = mask_lesson(None, name, 7, 2, causal)
    assert lesson.pairs[0] == (16, sum(map(sum, lesson.mask))) and lesson.words == [""] * 16


@pytest.mark.parametrize(
    ("name", "n", "said"),
    [
        ("window", 1, "sees 1 neighbour to each side"),
        ("window", 2, "sees 2 neighbours to each side"),
        ("global", 1, "sees 1 neighbour to each side and itself; the first one sees all and is seen by all."),
        ("global", 1024, "sees 1024 neighbours to each side and itself; the first 1024 see all and are seen by all."),
    ],
)
def test_numbers_agree_with_their_nouns(name: PatternName, n: int, said: str) -> None:
    text = mask_text(mask_lesson(None, name, n, n), colour=False)
    assert said in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_a_shift_by_one_is_singular() -> None:
    assert "a shift by 1 position is" in positions_text(positions_lesson(None, shift=1), colour=False)
    assert "a shift by 2 positions is" in positions_text(positions_lesson(None, shift=2), colour=False)


def test_one_map_shifts_every_position() -> None:
    lesson = positions_lesson(None, shift=5, width=6)
    assert set(lesson.errors) >= {0, 1, 1000} and max(lesson.errors.values()) < 1e-12
    pe = [[f(pos / 10000 ** (2 * i / 6)) for i in range(3) for f in (math.sin, math.cos)] for pos in (7, 12)]
    found = torch.tensor(lesson.matrix, dtype=torch.float64) @ torch.tensor(pe[0], dtype=torch.float64)
    assert found.tolist() == pytest.approx(pe[1], abs=1e-12)
    assert lesson.table[7] == pytest.approx(pe[0], abs=1e-12)


@pytest.mark.parametrize("seed", [1, 2])
def test_words_move_their_vectors_only_where_there_are_positions(seed: int) -> None:
    lesson = positions_lesson("to be or not to be", seed=seed)
    assert sorted(lesson.order) == list(range(6)) and lesson.order != list(range(6))
    assert max(lesson.moved["no positions"]) < 1e-12
    stayed = [lesson.order[n] == n for n in range(6)]
    assert all(apart > 0.01 for apart, same in zip(lesson.moved["sinusoidal"], stayed, strict=True) if not same)
    assert positions_lesson("to be or not to be", seed=seed) == lesson


@pytest.mark.parametrize("seed", range(5))
def test_a_learned_width_is_sharper_and_nearer_to_the_truth(seed: int) -> None:
    mean, fixed, learned = pooling_lesson(seed).fits
    assert learned.error < fixed.error < mean.error
    assert learned.effective_points < fixed.effective_points < mean.effective_points == 50
    assert fixed.w == 1.0 and learned.w is not None and learned.w > 1.2


def test_the_learned_width_is_the_best_of_all_for_points_left_out() -> None:
    x, y = noisy_points(50, seed=1)
    kernel = learn_width(x, y)

    def error(w: float) -> float:
        other = Gaussian().double()
        other.w.fill_(w)
        return float((leave_one_out(x, y, other) - y).square().mean())

    best = abs(kernel.w.item())
    assert error(best) <= min(error(best * step) for step in (0.5, 0.8, 0.97, 1.03, 1.25, 2.0))


def test_points_lie_about_the_curve() -> None:
    x, y = noisy_points(4000, seed=3)
    assert float(x.min()) >= 0 and float(x.max()) < 5
    assert true_curve(torch.tensor([2.0])).item() == pytest.approx(2 * math.sin(2.0) + 2**0.8)
    noise = y - true_curve(x)
    assert float(noise.mean()) == pytest.approx(0, abs=0.03) and float(noise.std()) == pytest.approx(0.5, abs=0.03)
