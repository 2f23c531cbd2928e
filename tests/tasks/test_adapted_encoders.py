"""Encoders that train adapters: what they save, how they resume, and that predictions are those of merged weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.conversion.adapters import merge_run
from attnkit.engine.averaging import average_run
from attnkit.engine.loading import load_model
from attnkit.engine.resolve import init_layer, resolve
from attnkit.engine.task import task_of
from attnkit.engine.trainer import TrainRequest, train
from attnkit.errors import RunError, UsageError
from attnkit.models.lora import LoraConfig, adapted_blocks, factor_names

STEADY = ["precision=float32", "device=cpu", "threads=1", "evaluation.n_samples=0", "optimization.batch_tokens=300"]
STEADY += ["optimization.learning_rate=0.01", "optimization.warmup_steps=1", "optimization.schedule=constant"]
LORA = ["adapter.rank=2", "adapter.alpha=6"]
TASKS = ("mlm", "text-classification")
HEAD = {
    "mlm": [],
    "text-classification": ["output.bias", "output.weight", "pooler.linear.bias", "pooler.linear.weight"],
}


def configure(workshop: Any, base: Path, task: str, *sets: str) -> Any:
    file = workshop.file("text.txt" if task == "mlm" else "table.tsv")
    flags = {"task": task, "data.files": [str(file)]}
    return resolve(flags, sets=[*STEADY, *sets], preset_name="tiny", fixed=init_layer(base)).config


def adapt(workshop: Any, base: Path, run: Path, task: str, n_steps: int, *sets: str) -> Path:
    config = configure(workshop, base, task, *LORA, f"limits.max_steps={n_steps}", *sets)
    list(train(TrainRequest(config, run, init_from=base)))
    return run


@pytest.fixture(scope="module")
def adapted(workshop: Any, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("adapted")
    return {task: adapt(workshop, pretrained, place / task, task, 6, "checkpoints.save_every=2") for task in TASKS}


def tensors(run: Path, name: str, step: str = "last") -> dict[str, Any]:
    return safetensors.numpy.load(RunFolder(run).checkpoint(step)[0].read(f"{name}.safetensors"))


@pytest.mark.parametrize("task", TASKS)
def test_a_run_saves_adapters_and_the_head(task: str, adapted: dict[str, Path], pretrained: Path) -> None:
    run = adapted[task]
    held = RunFolder(run).checkpoint("last")[0]
    assert "model.safetensors" not in held.manifest.files
    base = safetensors.numpy.load((run / "base/model.safetensors").read_bytes())
    file, given = tensors(run, "adapter"), tensors(pretrained, "model")
    for name in [name for name in base if "layers." in name]:
        assert np.array_equal(base[name], given[name.removeprefix("encoder.")]), "the base is the pretrained encoder"
    assert sorted(name for name in file if ".lora." not in name) == HEAD[task]
    assert json.loads(held.read("adapter.json"))["whole"] == HEAD[task]
    assert {name.partition(".")[2] for name in tensors(run, "optimizer")} == file.keys()
    expected = {name: array.astype(np.float64) for name, array in base.items()} | {n: file[n] for n in HEAD[task]}
    for name, blocks in adapted_blocks({n: a.shape for n, a in base.items()}, LoraConfig(rank=2)).items():
        a, b = (np.split(file[factor].astype(np.float64), len(blocks)) for factor in factor_names(name))
        for (_, rows), own_a, own_b in zip(blocks, a, b, strict=True):
            assert own_b.any(), "B too is trained"
            expected[name][rows] += 6 / 2 * own_b @ own_a
    model = load_model(run, task, device="cpu", checkpoint="last").model
    for name, tensor in model.named_parameters():
        np.testing.assert_allclose(tensor.detach().numpy(), expected[name], rtol=0, atol=1e-6, err_msg=name)
    assert all(not np.array_equal(file[name], base[name]) for name in HEAD[task]), "the head is trained"
    assert verify_run(run).n_bad == 0


@pytest.mark.parametrize("task", TASKS)
def test_the_dry_run_counts_what_is_trained(
    workshop: Any, adapted: dict[str, Path], pretrained: Path, task: str, tmp_path: Path
) -> None:
    """Adapters, and the head with its pooler: those that have moments."""
    config = configure(workshop, pretrained, task, *LORA)
    found, moments = task_of(config).dry_run(config, pretrained), tensors(adapted[task], "optimizer")
    assert found.memory_parts["optimizer"] == 4 * sum(moment.size for moment in moments.values())
    base = safetensors.numpy.load((adapted[task] / "base/model.safetensors").read_bytes())
    assert found.n_parameters == sum(array.size for array in base.values())
    config = configure(workshop, pretrained, task, *LORA, "limits.max_steps=1")
    said = [str(event) for event in train(TrainRequest(config, tmp_path / "run", init_from=pretrained))]
    file = tensors(adapted[task], "adapter")
    n_whole = sum(file[name].size for name in HEAD[task])
    n_factors = sum(array.size for array in file.values()) - n_whole
    head = f" and a head of {n_whole:,}," if n_whole else ","
    assert any(f"training adapters of {n_factors:,} weights{head}" in text for text in said), said


@pytest.mark.parametrize("task", TASKS)
def test_stopping_and_going_on_changes_no_bit(workshop: Any, pretrained: Path, tmp_path: Path, task: str) -> None:
    adapt(workshop, pretrained, tmp_path / "whole", task, 4)
    for n_steps in (2, 4):
        adapt(workshop, pretrained, tmp_path / "parts", task, n_steps)
    for name in ("adapter", "optimizer"):
        one, other = tensors(tmp_path / "whole", name), tensors(tmp_path / "parts", name)
        assert one.keys() == other.keys() and all(np.array_equal(array, other[key]) for key, array in one.items())


def test_predictions_are_those_of_merged_weights_and_of_a_run_that_goes_on(
    workshop: Any, adapted: dict[str, Path], call: Callable[..., Any], tmp_path: Path
) -> None:
    run, texts = adapted["text-classification"], tmp_path / "texts"
    texts.write_text("the film was superb\nsome people went home\nit was dull\n")
    merge_run(run, tmp_path / "merged")
    adapt(workshop, run, tmp_path / "next", "text-classification", 1, "optimization.learning_rate=1e-30")
    found = []
    for path in (run, tmp_path / "merged", tmp_path / "next"):
        code, out, err = call("predict", path, texts, "--device", "cpu", "--json")
        assert code == 0, err
        found.append([json.loads(line) for line in out.splitlines()])
    assert found[0] == found[1]
    config = load_model(tmp_path / "merged", "text-classification", device="cpu").config
    assert config.adapter is None
    models = [load_model(path, "text-classification", device="cpu").model for path in (run, tmp_path / "next")]
    one, other = (model.state_dict() for model in models)
    assert all(torch.allclose(tensor, other[name], atol=1e-6) for name, tensor in one.items())


def test_the_mean_of_checkpoints_has_the_mean_of_heads(adapted: dict[str, Path], tmp_path: Path) -> None:
    run = shutil.copytree(adapted["text-classification"], tmp_path / "run")
    average_run(run, 2, [])
    mean, parts = tensors(run, "adapter", "averaged"), [tensors(run, "adapter", f"step-{n}") for n in (4, 6)]
    for name, array in mean.items():
        np.testing.assert_allclose(array, (parts[0][name] + parts[1][name]) / 2, rtol=1e-6, atol=1e-7)
    load_model(run, "text-classification", device="cpu", checkpoint="averaged")


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (["output.bias"], "tensor 'output.weight' is unknown"),
        (["output.bias", "absent"], "'absent' is unknown"),
        (["encoder.layers.0.attention.projection.weight"], "is adapted or named twice"),
        (["output.bias", "output.bias"], "is adapted or named twice"),
        ("output.bias", "invalid adapter.json: whole"),
    ],
)
def test_damaged_descriptions_are_refused(adapted: dict[str, Path], tmp_path: Path, whole: Any, said: str) -> None:
    run = shutil.copytree(adapted["text-classification"], tmp_path / "run")
    folder = RunFolder(run)
    held = folder.checkpoint("last")[0]
    contents = {name: held.read(name) for name in held.manifest.files}
    contents["adapter.json"] = json.dumps({**json.loads(contents["adapter.json"]), "whole": whole}).encode()
    with folder.lock():
        folder.save(12, contents)
    with pytest.raises(RunError, match=said):
        load_model(run, "text-classification", device="cpu", checkpoint="last")


def test_settings(workshop: Any, pretrained: Path) -> None:
    task = "text-classification"
    rates = []
    for sets in ([], LORA):
        flags = {"task": task, "data.files": [str(workshop.file("table.tsv"))]}
        rates.append(resolve(flags, sets=sets, fixed=init_layer(pretrained)).config.optimization.learning_rate)
    assert rates[1] == pytest.approx(5 * rates[0])
    for task, change, said in (
        ("mlm", "finetuning.freeze=[layers]", "adapters freeze all weights"),
        ("mlm", "fsdp=true", "adapters cannot be trained with fsdp"),
        ("mlm", "adapter.maps=[cells]", "'cells' is not a map of bert"),
        ("text-classification", "finetuning.freeze_layers=1", "adapters freeze the encoder"),
        ("text-classification", "finetuning.from_scratch=true", "adapters need a pretrained encoder"),
    ):
        with pytest.raises(UsageError, match=said):
            configure(workshop, pretrained, task, *LORA, change)
