"""Schedules against values worked by hand and the formulas of their papers."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch

from attnkit.training.config import OptimizationConfig, ScheduleName
from attnkit.training.loop import lr_factor


def make(schedule: str, **values: object) -> OptimizationConfig:
    return OptimizationConfig.model_validate({"schedule": schedule, "warmup_steps": 4, **values})


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
def test_warmup_rises_linearly_and_nothing_exceeds_one(schedule: str) -> None:
    config = make(schedule, warmup_steps=10)
    values = [lr_factor(config, step, step / 1000) for step in range(1, 1001)]
    assert values[4] / values[0] == pytest.approx(5)
    assert all(0 <= v <= 1 for v in values)
    assert values.index(max(values)) in (9, 10)  # step 10, or one later where a decay meets the warmup


def test_constant_and_plateau_stay() -> None:
    for schedule in ("constant", "plateau"):
        assert [lr_factor(make(schedule), step, 0.9) for step in (1, 2, 4, 5, 999)] == [0.25, 0.5, 1, 1, 1]
        assert lr_factor(make(schedule, warmup_steps=0), 1, 0) == 1


def test_warmup_takes_no_more_than_its_share_of_the_run() -> None:
    """Of 100 steps with a warmup of 400, the share of a fifth makes steps 1 to 20 the rise."""
    config = make("constant", warmup_steps=400, warmup_fraction=0.2)
    values = [lr_factor(config, step, (step - 1) / 100) for step in range(1, 101)]
    assert values[0] == pytest.approx(1 / 400)
    assert values[10] == pytest.approx(0.5)
    assert values[20:] == [1.0] * 80
    assert lr_factor(make("constant", warmup_steps=400), 100, 0.99) == pytest.approx(0.25)


def test_inverse_sqrt_by_hand() -> None:
    assert [lr_factor(make("inverse_sqrt"), step, 0) for step in (1, 2, 4, 16, 64)] == [0.25, 0.5, 1, 0.5, 0.25]


def test_noam_is_equation_3_of_vaswani_2017() -> None:
    config = make("noam", warmup_steps=4000, learning_rate=512**-0.5)
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        paper = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert config.learning_rate * lr_factor(config, step, 0) == pytest.approx(paper, rel=1e-12)
    # The paper's base model peaks at 7e-4.
    assert config.learning_rate * lr_factor(config, 4000, 0) == pytest.approx(6.988e-4, rel=1e-3)


def test_cosine_equals_torch() -> None:
    config = make("cosine", warmup_steps=0, min_lr_ratio=0.1)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40, eta_min=0.1)
    for step in range(1, 41):
        assert lr_factor(config, step, (step - 1) / 40) == pytest.approx(theirs.get_last_lr()[0], abs=1e-9)
        optimizer.step()
        theirs.step()


def test_linear_by_hand() -> None:
    config = make("linear", min_lr_ratio=0.2)
    assert [lr_factor(config, 100, p) for p in (0, 0.25, 0.5, 1)] == pytest.approx([1, 0.8, 0.6, 0.2])
    assert lr_factor(config, 2, 0.01) == 0.5


def test_wsd_stays_then_falls_as_one_minus_sqrt() -> None:
    config = make("wsd", decay_fraction=0.4)
    assert [lr_factor(config, 100, p) for p in (0.1, 0.6)] == [1, 1]
    assert lr_factor(config, 100, 0.7) == pytest.approx(1 - math.sqrt(0.25))
    assert lr_factor(config, 100, 1.0) == pytest.approx(0)
