"""Runs that skip layers: steps do not depend on how they are split, and interruptions change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from attnkit.checkpoints.run_folder import RunFolder

DEEP = {"model__encoder_layers": 3, "model__decoder_layers": 2, "model__layer_dropout": 0.4}


def losses_of(run: Path) -> list[float]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row["loss"] for row in rows if row["kind"] in ("step", "evaluation")]


def weights_of(run: Path, name: str = "model") -> dict[str, np.ndarray]:
    return dict(safetensors.numpy.load(RunFolder(run).checkpoint("last")[0].read(f"{name}.safetensors")))


@pytest.mark.parametrize("kind", ["transformer", "pairs, two layers"])
def test_micro_batches_of_a_step_skip_the_same_layers(workshop: Any, tmp_path: Path, kind: str) -> None:
    """Without other dropout the gradient of a batch is that of its parts."""
    still = {"model__dropout": 0.0, "optimization__eps": 1e-3, "limits__max_steps": 8}
    make = workshop.configure
    if kind == "pairs, two layers":
        still |= {"model__attention_dropout": 0.0, "model__layer_dropout": 0.4}
        make = workshop.configure_task
    else:
        still |= DEEP
    for name, changes in {
        "whole": {},
        "parts": {"optimization__gradient_accumulation_steps": 3},
        "none": {"model__layer_dropout": 0.0},
    }.items():
        workshop.train(make(kind, **{**still, **changes}), tmp_path / name)
    whole, parts, none = (losses_of(tmp_path / name) for name in ("whole", "parts", "none"))
    assert len(whole) > 1 and parts == pytest.approx(whole, rel=1e-4)
    assert none != pytest.approx(whole, rel=1e-3)
    expected, found = weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts")
    for name, array in expected.items():
        assert np.linalg.norm(found[name] - array) <= 1e-3 * np.linalg.norm(array), name


@pytest.mark.parametrize(
    "changes",
    [
        {"model__dropout": 0.3, "optimization__gradient_accumulation_steps": 2, "optimization__ema_decay": 0.9},
        {"optimization__optimizer": "muon", "regularization": {"r_drop": 5.0}, "model__dropout": 0.2},
    ],
    ids=["accumulated", "Muon, R-Drop"],
)
def test_stopping_changes_no_choice_of_layers(workshop: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    config = workshop.configure("transformer", **DEEP, **changes)
    whole = workshop.train(config, tmp_path / "whole")
    pieces = workshop.train(config, tmp_path / "pieces", stops=(1, 4, 3, 3))
    assert whole == pieces and whole.step == 12
    for name in ("model", "optimizer"):
        expected, found = (weights_of(tmp_path / run, name) for run in ("whole", "pieces"))
        assert expected.keys() == found.keys() and len(expected) > 10
        assert [key for key, array in expected.items() if array.tobytes() != found[key].tobytes()] == []
    assert losses_of(tmp_path / "whole") == losses_of(tmp_path / "pieces")


def test_only_skipped_layers_lack_gradients(workshop: Any, tmp_path: Path) -> None:
    """At a rate next to one, one step from the start, the moments of nearly all layers are zero and of nothing else."""
    config = workshop.configure(
        "transformer", limits__max_steps=1, model__encoder_layers=2, model__layer_dropout=0.999999, model__dropout=0.0
    )
    workshop.train(config, tmp_path / "run")
    moments = weights_of(tmp_path / "run", "optimizer")
    idle = {name for name, array in moments.items() if name.startswith("exp_avg.") and not array.any()}
    layers = {name for name in moments if name.startswith("exp_avg.") and ".layers." in name}
    # No layer reads the memory, so that the encoder and the maps of the memory learn nothing either.
    assert layers <= idle and "exp_avg.decoder.memory.weight" in idle
    assert "exp_avg.decoder.embedding.words.weight" not in idle and "exp_avg.output.bias" not in idle
    for name, array in weights_of(tmp_path / "run").items():
        assert np.isfinite(array).all(), name


def test_adapters_learn_nothing_in_a_step_that_skips_all_layers(workshop: Any, trained: Path, tmp_path: Path) -> None:
    """What is left is frozen, so that there is no gradient to compute."""
    lora = {"adapter__rank": 2, "adapter__alpha": 6.0, "model__layer_dropout": 0.999999}
    workshop.train(workshop.configure("transformer", limits__max_steps=2, **lora), tmp_path / "run", init_from=trained)
    factors = weights_of(tmp_path / "run", "adapter")
    unchanged = [name for name, array in factors.items() if not array.any()]
    assert len(factors) > 4 and 2 * len(unchanged) == len(factors)  # one of the two factors of a map starts at zero


def test_r_drop_needs_dropout_that_differs_between_its_passes(workshop: Any) -> None:
    """Both passes are one batch, which skips the same layers."""
    from attnkit.errors import UsageError

    with pytest.raises(UsageError, match="r_drop needs dropout"):
        workshop.configure("transformer", **DEEP, model__dropout=0.0, regularization={"r_drop": 5.0})


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own doing
def test_compiled_layers_are_skipped(workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are compiled one by one: a skipped one is not called."""
    from torch import _dynamo, nn

    given = nn.Module.compile

    def compile(self: nn.Module, dynamic: bool) -> None:
        given(self, backend="eager", dynamic=dynamic)

    monkeypatch.setattr(nn.Module, "compile", compile)
    _dynamo.reset()
    for compiled in (False, True):
        config = workshop.configure(
            "transformer", **DEEP, model__dropout=0.0, torch_compile=compiled, limits__max_steps=5
        )
        workshop.train(config, tmp_path / f"{compiled}")
    assert losses_of(tmp_path / "True") == pytest.approx(losses_of(tmp_path / "False"), rel=1e-4)
