"""Language models that begin from another run: frozen parts stay, layers have their own rates, resuming is exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import language
import numpy as np
import pytest
import safetensors.numpy

from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.resolve import resolve
from attnkit.engine.trainer import TrainRequest, train
from attnkit.errors import UsageError
from attnkit.models.parts import language_part_of, layerwise_rates

BASES = {"mlm": ["model.next_sentence=true"], "clm": [], "clm, untied": ["model.tie_embeddings=false"]}
FITTING = ["model.n_layers=2", "evaluation.every_steps=5", "optimization.warmup_steps=4"]
LOW = ("embedding.", "places.", "segments.", "embedding_norm.", "layers.0.")


def configure(workshop: Any, name: str, *sets: str) -> Any:
    files = [workshop.file("text.txt")]
    return language.configure(name[:3], files, *FITTING, "optimization.learning_rate=0.01", *BASES[name], *sets)


@pytest.fixture(scope="module")
def bases(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name in BASES:
        found[name] = tmp_path_factory.mktemp("base") / "run"
        workshop.train(configure(workshop, name, "limits.max_steps=3"), found[name])
    return found


def tensors(run: Path, name: str, step: int | None = None) -> dict[str, Any]:
    chosen = RunFolder(run).checkpoint(None if step is None else f"step-{step}")[0]
    return safetensors.numpy.load(chosen.read(f"{name}.safetensors"))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("mlm", "freeze", ["embeddings"]),
        ("mlm", "freeze", ["layers", "output"]),
        ("mlm", "freeze_layers", 1),
        ("clm", "freeze", ["layers"]),
        ("clm", "freeze_layers", 1),
        ("clm", "freeze_layers", 2),
        ("clm, untied", "freeze", ["embeddings"]),
        ("clm, untied", "freeze", ["output"]),
    ],
)
def test_frozen_parts_stay_as_they_are(
    workshop: Any, bases: dict[str, Path], tmp_path: Path, name: str, key: str, value: Any
) -> None:
    base, run, pieces = bases[name], tmp_path / "run", tmp_path / "pieces"
    sets = [f"finetuning.{key}={json.dumps(value)}", "limits.max_steps=6", "optimization.ema_decay=0.9"]
    config = configure(workshop, name, *sets)
    assert workshop.train(config, run, init_from=base) == workshop.train(config, pieces, stops=(2,), init_from=base)
    found, again = tensors(run, "model", 6), tensors(pieces, "model", 6)
    assert all(np.array_equal(array, again[tensor]) for tensor, array in found.items())
    moments, others = tensors(run, "optimizer", 6), tensors(pieces, "optimizer", 6)
    assert all(np.array_equal(array, others[tensor]) for tensor, array in moments.items())
    given = tensors(base, "model")
    still = {tensor for tensor, array in found.items() if np.array_equal(array, given[tensor])}
    low = (*LOW, "layers.1.") if value == 2 else LOW
    expected = {t for t in found if (language_part_of(t) in value if key == "freeze" else t.startswith(low))}
    assert still == expected != set()
    assert {t.removeprefix("exp_avg.") for t in moments if t.startswith("exp_avg.")} == found.keys() - still
    assert verify_run(run).n_bad == 0


@pytest.mark.parametrize("name", BASES)
def test_layers_learn_at_their_own_rates(workshop: Any, bases: dict[str, Path], tmp_path: Path, name: str) -> None:
    """AdamW's first step is the learning rate in size, whatever the gradient."""
    sets = ["optimization.weight_decay=0", "optimization.schedule=constant", "optimization.warmup_steps=1"]
    config = configure(workshop, name, *sets, "finetuning.layerwise_lr_decay=0.25", "limits.max_steps=1")
    workshop.train(config, tmp_path / "run", init_from=bases[name])
    before, after = tensors(bases[name], "model"), tensors(tmp_path / "run", "model", 1)
    moved = {tensor: np.abs(after[tensor] - before[tensor]).max() for tensor in after}
    top = moved["layers.1.feed_forward.up.weight"]
    assert top > 0
    assert moved["layers.0.feed_forward.up.weight"] == pytest.approx(top / 4, rel=1e-2)
    assert moved["embedding.weight"] == pytest.approx(top / 16, rel=1e-2)
    if name != "clm":  # whose output is its embeddings
        assert moved["output.bias" if name == "mlm" else "output.weight"] == pytest.approx(top, rel=1e-2)


def test_rates_and_adapters_go_together(workshop: Any, bases: dict[str, Path], tmp_path: Path) -> None:
    names = ["layers.0.attention.output.lora.weight.A", "layers.1.norm.weight", "norm.weight", "places.table.table"]
    found = layerwise_rates(names, 0.5, language_part_of)
    assert [found.get(name, 1.0) for name in names] == [0.5, 1.0, 1.0, 0.25]
    config = configure(workshop, "clm", "adapter.rank=2", "finetuning.layerwise_lr_decay=0.5", "limits.max_steps=4")
    workshop.train(config, tmp_path / "run", init_from=bases["clm"])
    workshop.train(config, tmp_path / "pieces", stops=(2,), init_from=bases["clm"])
    one, other = (RunFolder(tmp_path / run).checkpoint("step-4")[0] for run in ("run", "pieces"))
    assert one.read("adapter.safetensors") == other.read("adapter.safetensors")


def test_what_cannot_be_frozen(workshop: Any, tmp_path: Path) -> None:
    for key, value in (("freeze", "embeddings"), ("freeze_layers", 1)):
        with pytest.raises(UsageError, match="random weights cannot be frozen") as caught:
            list(train(TrainRequest(configure(workshop, "clm", f"finetuning.{key}={value}"), tmp_path / "run")))
        assert caught.value.where == f"finetuning.{key}"
    with pytest.raises(UsageError, match="freeze_layers=3: the model has 2 layers"):
        configure(workshop, "mlm", "finetuning.freeze_layers=3")
    with pytest.raises(UsageError, match="leaves no weights to train"):
        configure(workshop, "clm", "finetuning.freeze=[embeddings, layers]")
    with pytest.raises(UsageError, match="leaves no weights to train"):
        configure(workshop, "mlm", "finetuning.freeze=[embeddings, layers, output]")
    for name in ("clm, untied", "mlm"):
        configure(workshop, name, "finetuning.freeze=[embeddings, layers]")
    with pytest.raises(UsageError, match="adapters freeze all weights"):
        configure(workshop, "clm", "adapter.rank=2", "finetuning.freeze_layers=1")
    with pytest.raises(UsageError, match="cannot be combined with fsdp"):
        configure(workshop, "clm", "fsdp=true", "finetuning.freeze_layers=1")
    with pytest.raises(UsageError, match=r'finetuning\.freeze\.0 cannot be "encoder"'):
        configure(workshop, "clm", "finetuning.freeze=[encoder]")


def test_a_single_part_needs_no_brackets(workshop: Any) -> None:
    flags = {"task": "clm", "data.files": [str(workshop.file("text.txt"))]}
    config = resolve(flags, sets=["finetuning.freeze=embeddings"], preset_name="tiny").config
    assert config.finetuning.freeze == ("embeddings",)
