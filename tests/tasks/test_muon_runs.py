"""Runs with Muon: what they save, what a dry run tells of them, what they cannot be combined with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import language
import numpy as np
import pytest
import safetensors.numpy

from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine import dry_run
from attnkit.engine.plan import PlanRequest, plan
from attnkit.engine.task import task_of
from attnkit.engine.trainer import TrainRequest, train
from attnkit.errors import RunError, UsageError

MUON = {"optimization__optimizer": "muon"}


def optimizer_of(run: Path) -> dict[str, np.ndarray]:
    return dict(safetensors.numpy.load(RunFolder(run).checkpoint()[0].read("optimizer.safetensors")))


@pytest.fixture(scope="module")
def run(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("muon") / "run"
    workshop.train(workshop.configure(**MUON, optimization__ema_decay=0.9), path)
    return path


def test_checkpoints_hold_what_muon_needs_and_are_verified(run: Path) -> None:
    moments = optimizer_of(run)
    kinds = {
        kind: {n.partition(".")[2] for n in moments if n.startswith(f"{kind}.")} for kind in ("exp_avg", "weights")
    }
    assert kinds["exp_avg"] == kinds["weights"]
    alone = kinds["exp_avg"] - {n.partition(".")[2] for n in moments if n.startswith("exp_avg_sq.")}
    assert "encoder.layers.0.attention.projection.weight" in alone
    assert not [name for name in alone if "embedding" in name or name.endswith("bias") or "norm" in name]
    assert verify_run(run).n_bad == 0


def test_verifying_expects_the_moments_of_the_optimizer(workshop: Any, run: Path) -> None:
    checkpoint = RunFolder(run).checkpoint()[0]
    muon, adamw = (workshop.configure(**own, optimization__ema_decay=0.9) for own in (MUON, {}))
    assert list(task_of(muon).find_errors(checkpoint, muon)) == []
    with pytest.raises(RunError, match=r"the weights do not fit the configuration(.|\n)*optimizer\.safetensors"):
        list(task_of(adamw).find_errors(checkpoint, adamw))


def test_the_optimizer_of_a_run_is_not_changed(workshop: Any, tmp_path: Path, run: Path) -> None:
    config = workshop.configure(optimization__ema_decay=0.9)
    with pytest.raises(UsageError, match=r"optimization\.optimizer: muon -> adamw"):
        list(train(TrainRequest(config, run)))


def test_a_new_run_of_either_begins_from_the_other(workshop: Any, tmp_path: Path, run: Path) -> None:
    workshop.train(workshop.configure(limits__max_steps=2), tmp_path / "adamw", init_from=run)
    workshop.train(workshop.configure(**MUON, limits__max_steps=2), tmp_path / "muon", init_from=tmp_path / "adamw")
    assert verify_run(tmp_path / "muon").n_bad == 0


def test_steps_of_matrices_have_their_size_and_their_rate(workshop: Any, tmp_path: Path) -> None:
    """The root mean square of a step is 0.2 of the learning rate; layers may have rates of their own."""
    files = [workshop.file("text.txt")]
    sets = ["model.n_layers=2", "optimization.schedule=constant", "optimization.warmup_steps=1"]
    sets += ["optimization.weight_decay=0", "optimization.optimizer=muon", "limits.max_steps=1"]
    base = tmp_path / "base"
    workshop.train(language.configure("clm", files, *sets), base)
    rate = "optimization.learning_rate=0.01"
    decays = {"even": [], "falling": ["finetuning.layerwise_lr_decay=0.25"]}
    moved = {}
    for name, own in decays.items():
        workshop.train(language.configure("clm", files, *sets, *own, rate), tmp_path / name, init_from=base)
        old, new = (
            safetensors.numpy.load(RunFolder(path).checkpoint()[0].read("model.safetensors"))
            for path in (base, tmp_path / name)
        )
        keys = [f"layers.{i}.feed_forward.up.weight" for i in range(2)]
        moved[name] = [float(np.sqrt(np.square(new[key] - old[key]).mean())) for key in keys]
    for found in (*moved["even"], moved["falling"][1]):
        assert found == pytest.approx(0.2 * 0.01, rel=0.3)  # singular values of 0.68 to 1.14
    assert moved["falling"][0] == pytest.approx(moved["even"][0] / 4, rel=0.01)


def test_what_muon_cannot_be_combined_with(workshop: Any, tmp_path: Path, run: Path) -> None:
    refused: dict[str, tuple[dict[str, Any], str]] = {
        "fsdp": ({"fsdp": True}, "set fsdp=false"),
        "adapter": ({"adapter__rank": 2}, "leave out the adapter"),
    }
    for key, (changes, other) in refused.items():
        with pytest.raises(UsageError, match=f"optimizer=muon cannot be combined with {key}") as caught:
            workshop.configure(**MUON, **changes)
        assert str(caught.value).count("\n") <= 2
        assert caught.value.help == f"set optimization.optimizer=adamw, or {other}"
    frozen = workshop.configure(**MUON, finetuning__freeze=["encoder", "decoder"], limits__max_steps=1)
    with pytest.raises(UsageError, match="no matrix of a hidden layer is trained") as found:
        workshop.train(frozen, tmp_path / "run", init_from=run)
    assert found.value.where == "optimization.optimizer" and found.value.help == "set optimization.optimizer to adamw"
    assert not (tmp_path / "run/checkpoints").exists()
    with pytest.raises(UsageError, match="no matrix of a hidden layer is trained"):
        task_of(frozen).dry_run(frozen)


def test_the_dry_run_counts_momentum_and_products(workshop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"product_rate": 1e9, "elementwise_rate": 1e12}
    for name, rate in rates.items():
        monkeypatch.setattr(dry_run, name, lambda device, precision, rate=rate: rate)
    sizes = {"model__d_model": 32, "model__d_ff": 48, "model__encoder_layers": 1, "model__decoder_layers": 1}
    adamw, muon = (workshop.configure(**sizes, **own) for own in ({}, MUON))
    plain, found = (task_of(config).dry_run(config) for config in (adamw, muon))
    squares, oblong = 3 + 1 + 3 + 1 + 1 + 1 + 2, 4  # of encoder and decoder, with the memory's key and value
    n_hidden = squares * 32 * 32 + oblong * 32 * 48
    for part in ("optimizer", "checkpoint"):
        assert plain.memory_parts[part] - found.memory_parts[part] == 4 * n_hidden
    assert plain.memory - found.memory == 8 * n_hidden
    # Five iterations: X Xᵀ, its square, and its product with X.
    operations = squares * 5 * 3 * 2 * 32**3 + oblong * 5 * (2 * 2 * 32 * 32 * 48 + 2 * 32**3)
    n_steps = muon.limits.max_steps
    assert found.seconds - plain.seconds == pytest.approx(n_steps * operations / 1e9, rel=1e-6)


def test_a_plan_measures_steps_with_muon() -> None:
    sets = ["optimization.optimizer=muon", "device=cpu", "model.d_model=32", "model.d_ff=64"]
    found = plan(PlanRequest({}, sets=sets, preset="tiny", examples=1000, seconds=0.1))
    assert found.is_measured and found.tokens_per_second > 0
