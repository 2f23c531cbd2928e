"""Runs that train adapters: what they save, how they resume, and that every engine translates with merged weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.cli.score import command as score
from attnkit.engine.averaging import average_run
from attnkit.errors import RunError, UsageError
from attnkit.models.lora import LoraConfig, adapted_blocks, factor_names
from attnkit.models.parts import layerwise_rates, part_of
from attnkit.tasks.translation.loading import load_run, open_run, pack_weights
from attnkit.tasks.translation.synthetic_config import SyntheticConfig
from attnkit.tasks.translation.synthetic_pairs import SyntheticRequest, make_pairs
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.lines import read_lines

LORA = {"adapter__rank": 2, "adapter__alpha": 6.0, "adapter__dropout": 0.1}


def adapt(workshop: Any, base: Path, run: Path, kind: str = "transformer", **changes: Any) -> Any:
    return workshop.train(workshop.configure(kind, **{**LORA, **changes}), run, init_from=base)


@pytest.fixture(scope="module")
def adapted(workshop: Any, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("adapted") / "run"
    adapt(workshop, trained, run)
    return run


@pytest.fixture(scope="module")
def recurrent(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("recurrent") / "run"
    workshop.train(workshop.configure("rnn", limits__max_steps=3), run)
    return run


def tensors(run: Path, name: str, step: int = 12) -> dict[str, Any]:
    return safetensors.numpy.load((run / f"checkpoints/step-{step}/{name}.safetensors").read_bytes())


def merged_by_hand(run: Path, step: int) -> dict[str, Any]:
    """Return W + (alpha / r) B A in float64, from the files alone."""
    weights = safetensors.numpy.load((run / "base/model.safetensors").read_bytes())
    factors, lora = tensors(run, "adapter", step), LoraConfig(rank=2, alpha=6.0)
    for name, blocks in adapted_blocks({n: array.shape for n, array in weights.items()}, lora).items():
        a, b = (np.split(factors[factor].astype(np.float64), len(blocks)) for factor in factor_names(name))
        weights[name] = weights[name].astype(np.float64)
        for (_, rows), own_a, own_b in zip(blocks, a, b, strict=True):
            weights[name][rows] += 6.0 / 2 * own_b @ own_a
    return weights


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_a_run_saves_adapters_and_a_copy_of_the_base(
    workshop: Any, trained: Path, recurrent: Path, tmp_path: Path, kind: str
) -> None:
    base, run = trained if kind == "transformer" else recurrent, tmp_path / "run"
    adapt(workshop, base, run, kind)
    held = RunFolder(run).checkpoint("last")[0]
    given = RunFolder(base).checkpoint()[0]
    assert "model.safetensors" not in held.manifest.files
    factors = tensors(run, "adapter")
    assert factors and all(".lora." in name for name in factors)
    assert all(np.any(array) for name, array in factors.items()), "B too is trained"
    assert {n.partition(".")[2] for n in tensors(run, "optimizer")} == factors.keys()
    one, other = given.read("model.safetensors"), (run / "base/model.safetensors").read_bytes()
    assert safetensors.torch.load(one).keys() == safetensors.torch.load(other).keys()
    assert all(torch.equal(a, safetensors.torch.load(other)[n]) for n, a in safetensors.torch.load(one).items())
    expected, model = merged_by_hand(run, 12), load_run(run, device="cpu", checkpoint="last").model
    for name, tensor in model.named_parameters():
        np.testing.assert_allclose(tensor.detach().numpy(), expected[name], rtol=0, atol=1e-6, err_msg=name)
    assert verify_run(run).n_bad == 0


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_stopping_and_resuming_changes_no_bit(
    workshop: Any, trained: Path, recurrent: Path, tmp_path: Path, kind: str
) -> None:
    base = trained if kind == "transformer" else recurrent
    config = workshop.configure(kind, **LORA, optimization__ema_decay=0.9)
    whole = workshop.train(config, tmp_path / "whole", init_from=base)
    pieces = workshop.train(config, tmp_path / "pieces", stops=(3, 4), init_from=base)
    assert whole == pieces and whole.step == 12
    for name in ("adapter", "optimizer"):
        one, other = tensors(tmp_path / "whole", name), tensors(tmp_path / "pieces", name)
        assert one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one), name
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "pieces/metrics.jsonl").read_bytes()


def test_compiled_loops_and_torch_use_the_same_merged_weights(workshop: Any, adapted: Path, trained: Path) -> None:
    loaded = load_run(adapted, device="cpu")
    opened = open_run(adapted)
    packed = pack_weights(opened, "float32")
    lines = list(read_lines(workshop.file("test.src")))
    texts = {e: load_translator([adapted], device="cpu", engine=e).translate(lines) for e in ("compiled", "torch")}
    assert packed is not None and loaded.model is not None
    assert texts["compiled"] == texts["torch"]
    assert texts["torch"] != load_translator([trained], device="cpu", engine="torch").translate(lines)


def test_an_adapter_alone_is_added_to_the_run_that_it_adapts(
    workshop: Any, adapted: Path, trained: Path, recurrent: Path, tmp_path: Path
) -> None:
    lines = list(read_lines(workshop.file("test.src")))
    expected = load_translator([adapted], device="cpu", engine="torch").translate(lines)
    alone = shutil.copytree(adapted, tmp_path / "alone")
    shutil.rmtree(alone / "base")
    with pytest.raises(RunError, match="the base of this adapter is missing") as caught:
        load_run(alone)
    assert caught.value.help == f"give the run that it adapts, and --adapter {alone}"
    for base in (trained, adapted):  # of another adapter, the base alone
        swapped = load_translator([base], device="cpu", engine="torch", adapter=alone)
        assert swapped.translate(lines) == expected
    source = workshop.file("test.src")
    written = []
    for run, adapter in ((adapted, None), (trained, alone)):
        config, folder = SyntheticConfig(keep_flagged=True), tmp_path / f"pairs-{run.name}-{adapter is None}"
        search = {"sampling": True, "seed": 1, "max_length": 8}  # the best translation is blank
        make_pairs(SyntheticRequest(run, source, folder, config, search, device="cpu", adapter=adapter))
        output = folder / "scores"
        score(run, source, workshop.file("test.tgt"), output=output, device="cpu", adapter=adapter, quiet=True)
        written.append([(folder / "pairs.tgt").read_bytes(), output.read_bytes()])
    assert written[0] == written[1]
    workshop.train(workshop.configure(limits__max_steps=2), tmp_path / "other", init_from=trained)
    with pytest.raises(RunError, match="this adapter was trained on other weights"):
        open_run(tmp_path / "other", adapter=alone)
    with pytest.raises(RunError, match="this run has no adapter"):
        open_run(trained, adapter=trained)
    with pytest.raises(UsageError, match="not to an ensemble"):
        load_translator([trained, trained], adapter=alone)


def test_an_adapted_run_begins_another(workshop: Any, adapted: Path, tmp_path: Path) -> None:
    """Its merged weights are the initial ones, of all weights or of a second adapter."""
    merged = {name: tensor.clone() for name, tensor in load_run(adapted, device="cpu").model.named_parameters()}
    still = {"optimization__learning_rate": 1e-30, "limits__max_steps": 1}
    workshop.train(workshop.configure(**still), tmp_path / "full", init_from=adapted)
    adapt(workshop, adapted, tmp_path / "second", **still)
    for run in ("full", "second"):
        model = load_run(tmp_path / run, device="cpu").model
        assert all(torch.equal(tensor, merged[name]) for name, tensor in model.named_parameters()), run
    assert workshop.train(workshop.configure(**still), tmp_path / "full", init_from=adapted).already


def test_checkpoints_of_adapters_are_averaged_factor_by_factor(workshop: Any, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    adapt(workshop, trained, run, checkpoints__average=2, checkpoints__keep_last=3)
    for made in ("by training", "by hand"):
        if made == "by hand":
            average_run(run, None, ["step-10", "step-12"])
        found = safetensors.numpy.load((run / "averaged/adapter.safetensors").read_bytes())
        one, other = tensors(run, "adapter", 10), tensors(run, "adapter", 12)
        for name, array in found.items():
            np.testing.assert_allclose(array, (one[name].astype(np.float64) + other[name]) / 2, rtol=1e-6, atol=1e-9)
        load_run(run, checkpoint="averaged")
    assert verify_run(run).n_bad == 0


def test_refusals(workshop: Any, trained: Path, recurrent: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an adapter needs weights to adapt"):
        list(train(TrainRequest(workshop.configure(**LORA), tmp_path / "run")))
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="'cells' is not a map of transformer; query, key"):
        workshop.configure(adapter__maps=["cells"])
    with pytest.raises(UsageError, match="adapters cannot be trained with fsdp"):
        workshop.configure(**LORA, fsdp=True)
    with pytest.raises(UsageError, match="the model has no map 'gate'"):
        adapt(workshop, trained, tmp_path / "run", adapter__maps=["gate"])
    assert not (tmp_path / "run/checkpoints").exists()
    adapt(workshop, trained, tmp_path / "run", limits__max_steps=2)
    with pytest.raises(UsageError, match=r"adapter\.rank: 2 -> 3"):
        adapt(workshop, trained, tmp_path / "run", adapter__rank=3)
    with pytest.raises(UsageError, match=r"adapter\.kind: lora -> None"):
        workshop.train(workshop.configure(limits__max_steps=2), tmp_path / "run")


@pytest.mark.parametrize("change", ["base", "rank", "factor", "json", "nan"])
def test_crafted_adapters_are_refused(workshop: Any, adapted: Path, tmp_path: Path, change: str) -> None:
    """Each under a manifest that fits."""
    run = shutil.copytree(adapted, tmp_path / "run")
    folder = RunFolder(run)
    checkpoint = folder.checkpoint("last")[0]
    contents: dict[str, bytes] = {name: checkpoint.read(name) for name in checkpoint.manifest.files}
    described, factors = json.loads(contents["adapter.json"]), safetensors.torch.load(contents["adapter.safetensors"])
    if change == "base":
        described["base"]["sha256"] = "0" * 64
    elif change == "rank":
        described["lora"]["rank"] = 1000
    elif change == "json":
        described["lora"]["rank"] = "2; rm"
    elif change == "factor":
        del factors[min(factors)]
    else:
        factors[min(factors)][0, 0] = float("nan")
    contents |= {"adapter.json": json.dumps(described).encode(), "adapter.safetensors": safetensors.torch.save(factors)}
    folder.save(12, contents)
    what = {
        "base": "trained on other weights",
        "rank": "expected about",
        "json": r"invalid adapter.json: lora.rank: Input should be a valid integer",
        "factor": "expected about|is missing",
        "nan": "are not finite",
    }[change]
    for load in (load_run, lambda path, checkpoint: pack_weights(open_run(path, checkpoint), "float32")):
        with pytest.raises(RunError, match=what):
            load(run, checkpoint="last")
    assert verify_run(run).n_bad > 0


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kind", "part"), [("transformer", "encoder"), ("transformer", "embeddings"), ("rnn", "decoder")]
)
def test_frozen_parts_stay_as_they_are(
    workshop: Any, trained: Path, recurrent: Path, tmp_path: Path, kind: str, part: str
) -> None:
    base, run = trained if kind == "transformer" else recurrent, tmp_path / "run"
    config = workshop.configure(kind, finetuning__freeze=[part], limits__max_steps=6, optimization__ema_decay=0.9)
    whole = workshop.train(config, run, init_from=base)
    pieces = workshop.train(config, tmp_path / "pieces", stops=(2,), init_from=base)
    assert whole == pieces
    found, again = tensors(run, "model", 6), tensors(tmp_path / "pieces", "model", 6)
    assert all(np.array_equal(array, again[name]) for name, array in found.items())
    given = safetensors.numpy.load(RunFolder(base).checkpoint()[0].read("model.safetensors"))
    still = {name for name, array in found.items() if np.array_equal(array, given[name])}
    assert still == {name for name in found if part_of(name) == part} != set()
    moments = {n.removeprefix("exp_avg.") for n in tensors(run, "optimizer", 6) if n.startswith("exp_avg.")}
    assert moments == found.keys() - still
    assert verify_run(run).n_bad == 0


def test_layers_learn_at_their_own_rates(workshop: Any, trained: Path, tmp_path: Path) -> None:
    """AdamW's first step is the learning rate in size, whatever the gradient."""
    names = [
        "encoder.embedding.words.weight",
        "encoder.layers.0.attention.output.weight",
        "encoder.layers.2.feed_forward.up.bias",
        "decoder.layers.1.cross.output.weight",
        "decoder.layers.0.lora.weight.A",
        "decoder.memory.weight",
        "output.bias",
    ]
    found = layerwise_rates(names, 0.5)
    assert [found.get(name, 1.0) for name in names] == [0.125, 0.25, 1.0, 1.0, 0.5, 1.0, 1.0]
    recurrent = ["src_embedding.weight", "encoder.forwards.0.weight_ih_l0", "encoder.backwards.1.bias_hh_l0"]
    assert layerwise_rates(recurrent, 0.1) == pytest.approx(dict(zip(recurrent, [0.01, 0.1, 1.0], strict=True)))
    still = {"optimization__weight_decay": 0.0, "optimization__schedule": "constant", "optimization__warmup_steps": 1}
    config = workshop.configure(finetuning__layerwise_lr_decay=0.25, limits__max_steps=1, **still)
    workshop.train(config, tmp_path / "run", init_from=trained)
    before = safetensors.numpy.load(RunFolder(trained).checkpoint()[0].read("model.safetensors"))
    after = tensors(tmp_path / "run", "model", 1)
    moved = {name: np.abs(after[name] - before[name]).max() for name in after}
    top = moved["encoder.layers.0.feed_forward.up.weight"]
    assert top > 0 and moved["encoder.embedding.words.weight"] == pytest.approx(top / 4, rel=1e-2)


def test_frozen_parts_need_weights(workshop: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="random weights cannot be frozen"):
        list(train(TrainRequest(workshop.configure(finetuning__freeze=["encoder"]), tmp_path / "run")))
    with pytest.raises(UsageError, match="adapters freeze all weights"):
        workshop.configure(**LORA, finetuning__freeze=["encoder"])
