"""Means of weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnkit.engine.averaging import average
from attnkit.training.config import OptimizationConfig
from attnkit.training.flat_optimizer import FlatParameterStore


def test_mean_is_summed_in_float64() -> None:
    values = [1e8, 1.0, 3.0, -1e8]  # a float32 sum loses the 1
    found = average({"w": torch.tensor([v])} for v in values)
    assert found["w"].dtype == torch.float32
    assert found["w"].item() == 1.0


def test_mean_of_many_and_of_one() -> None:
    sets = [{"a": torch.randn(3, 4), "n": torch.tensor([7])} for _ in range(5)]
    found = average(sets)
    torch.testing.assert_close(found["a"], torch.stack([s["a"] for s in sets]).mean(0))
    assert found["n"].item() == 7
    assert torch.equal(average(sets[:1])["a"], sets[0]["a"])


def test_inputs_are_left_alone() -> None:
    first = {"a": torch.ones(2, dtype=torch.float64)}
    average([first, {"a": torch.zeros(2, dtype=torch.float64)}])
    assert first["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([], "no checkpoints"),
        ([{"a": torch.ones(2)}, {"b": torch.ones(2)}], "'a' is in only one"),
        ([{"a": torch.ones(2)}, {"a": torch.ones(3)}], "differs in shape"),
        ([{"a": torch.ones(2, dtype=torch.int64)}, {"a": torch.zeros(2, dtype=torch.int64)}], "cannot be averaged"),
    ],
)
def test_refuses_what_does_not_match(others: list[dict[str, torch.Tensor]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        average(others)


def test_moving_average_equals_the_naive_formula() -> None:
    flat = FlatParameterStore(nn.Linear(3, 2).double(), OptimizationConfig(ema_decay=0.7))
    naive = flat.master.clone()
    for n in range(1, 40):
        flat.gradient.normal_(generator=torch.Generator().manual_seed(n))
        flat.update(0.1, 0.0)
        decay = min(0.7, (1 + n) / (10 + n))
        naive = decay * naive + (1 - decay) * flat.master
    assert flat.average is not None
    torch.testing.assert_close(flat.average, naive, rtol=1e-12, atol=1e-12)
