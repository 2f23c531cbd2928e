"""Layers that torch compiles: the same training, and a compiler that fails is told of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from attnkit.errors import SystemFailure, UsageError

STILL = {"model__dropout": 0.0, "model__attention_dropout": 0.0}
STEPS = {"limits__steps": 10, "precision": "float32", **STILL}


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Follow the code as a compiler does, and generate none, which takes long; return the kinds of what is compiled."""
    given, compiled = nn.Module.compile, list[str]()

    def compile(self: nn.Module) -> None:
        compiled.append(type(self).__name__)
        given(self, backend="eager")

    monkeypatch.setattr(nn.Module, "compile", compile)
    torch._dynamo.reset()
    return compiled


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "loss" in row]


@pytest.mark.parametrize(
    "name", ["hidden words", *(pytest.param(name, marks=pytest.mark.slow) for name in ("next words", "transformer"))]
)
def test_the_training_is_the_same(workshop: Any, tmp_path: Path, backend: list[str], name: str) -> None:
    make, found = workshop.configure if name == "transformer" else workshop.configure_task, {}
    counters.clear()
    for compiled in (False, True):
        run = tmp_path / f"{compiled}"
        workshop.train(make(name, compiled=compiled, **STEPS), run)
        found[compiled] = losses(run)
        assert bool(backend) is compiled
    assert len(found[True]) > 1 and found[True] == pytest.approx(found[False], rel=1e-4)
    assert set(backend) <= {"EncoderLayer", "DecoderLayer"}
    # Layers alike share compilations, and batches of all sizes do: not one for each step and layer.
    assert 0 < counters["stats"]["unique_graphs"] < 20


def test_a_model_without_layers_is_refused(workshop: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no layers to compile"):
        workshop.train(workshop.configure("rnn", compiled=True, limits__steps=1), tmp_path / "run")


def test_a_compiler_that_fails_is_told_of(workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no compiler here")

    given = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self: given(self, backend=broken))
    torch._dynamo.reset()
    with pytest.raises(SystemFailure, match="could not compile the model") as failed:
        workshop.train(workshop.configure_task("hidden words", compiled=True, **STEPS), tmp_path / "run")
    assert failed.value.where == "compiled" and "compiled to false" in str(failed.value.help)


@pytest.mark.slow
def test_the_compiler_of_this_machine_gives_the_same(workshop: Any, tmp_path: Path) -> None:
    torch._dynamo.reset()
    found = []
    for compiled in (False, True):
        workshop.train(workshop.configure_task("hidden words", compiled=compiled, **STEPS), tmp_path / f"{compiled}")
        found.append(losses(tmp_path / f"{compiled}"))
    assert found[1] == pytest.approx(found[0], rel=1e-4)
