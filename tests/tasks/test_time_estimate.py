"""The time that a dry run estimates: products of the parameters, and what lies between them."""

from __future__ import annotations

from typing import Any

import pytest

from attnkit.engine import dry_run
from attnkit.engine.resolve import resolve
from attnkit.tasks.translation.task import TASK

PRODUCTS, ELEMENTS = 1e9, 1e8  # a second


@pytest.fixture
def files(workshop: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A corpus, on a machine with these rates."""
    monkeypatch.setattr(dry_run, "product_rate", lambda device, precision: PRODUCTS)
    monkeypatch.setattr(dry_run, "elementwise_rate", lambda device, precision: ELEMENTS)
    return {"data.src": [str(workshop.file("train.src"))], "data.tgt": [str(workshop.file("train.tgt"))]}


def estimate(files: dict[str, Any], *sets: str) -> Any:
    sets = ("device=cpu", "limits.max_epochs=3", *sets)
    config: Any = resolve(files, sets=sets, preset_name="tiny").config
    return TASK.dry_run(config), config.model.activation_floats_per_token


@pytest.mark.parametrize("sets", [(), ("model.d_model=64",), ("model.kind=rnn",)], ids=str)
def test_both_parts_count(files: dict[str, Any], sets: tuple[str, ...]) -> None:
    found, floats = estimate(files, *sets)
    per_token = 3 * found.n_parameters / PRODUCTS + dry_run.ELEMENTWISE * floats / ELEMENTS
    assert found.seconds == pytest.approx(3 * found.tokens_per_epoch * per_token, rel=1e-3)
    twice, _ = estimate(files, *sets, "regularization.r_drop=5")
    assert twice.seconds == pytest.approx(2 * found.seconds, rel=1e-6), "R-Drop passes each batch twice"


def test_rates_are_those_of_the_device() -> None:
    """A product of 512 x 512 matrices has many operations per element; both rates are positive and finite."""
    device, precision = dry_run.choose_device("cpu"), dry_run.torch.float32
    assert 1e6 < dry_run.elementwise_rate(device, precision) < dry_run.product_rate(device, precision) < 1e15
