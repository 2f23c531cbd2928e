"""Adapters in PEFT's format: its documented formula on the exported base gives the merged model, and back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from attnkit.conversion.adapters import export_peft, import_peft, merge_run
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.resolve import inherited, resolve
from attnkit.errors import RunError, UsageError
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.lines import read_lines

MARIAN: dict[str, Any] = {
    "model__positions": "sinusoidal",
    "model__encoder_layers": 2,
    "model__decoder_layers": 2,
    "model__norm": "post",
}


@pytest.fixture(scope="module")
def base(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("base") / "run"
    workshop.train(workshop.configure(**MARIAN, limits__max_steps=3), run)
    return run


def adapt(workshop: Any, base: Path, run: Path, **changes: Any) -> Path:
    config = workshop.configure(**MARIAN, adapter__rank=3, adapter__alpha=5.0, limits__max_steps=8, **changes)
    workshop.train(config, run, init_from=base)
    return run


@pytest.fixture(scope="module")
def adapted(workshop: Any, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapt(workshop, base, tmp_path_factory.mktemp("adapted") / "run")


def apply_peft(weights: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Return weights of transformers with an adapter, as PEFT documents it: W + lora_alpha / r · B A per module."""
    tree = json.loads((folder / "adapter_config.json").read_text())
    factors = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    weights = {name: tensor.clone() for name, tensor in weights.items()}
    for name in [name for name in factors if name.endswith(".lora_A.weight")]:
        module = name.removesuffix(".lora_A.weight").removeprefix("base_model.model.")
        assert module.rpartition(".")[2] in tree["target_modules"]
        b = factors[name.replace("lora_A", "lora_B")]
        weights[f"{module}.weight"] += tree["lora_alpha"] / tree["r"] * (b @ factors[name])
    # Every module with one of the names is adapted, as PEFT requires.
    named = [n for n in weights if n.removesuffix(".weight").rpartition(".")[2] in tree["target_modules"]]
    assert len(named) > 3 and 2 * len([n for n in named if n.endswith(".weight")]) == len(factors)
    return weights


@pytest.mark.sample(2)
@pytest.mark.parametrize("maps", [None, ["query", "value"], ["down", "output"]])
def test_the_formula_on_the_exported_base_gives_the_exported_merged_model(
    workshop: Any, base: Path, adapted: Path, tmp_path: Path, maps: list[str] | None
) -> None:
    run = adapted if maps is None else adapt(workshop, base, tmp_path / "run", adapter__maps=maps)
    export_peft(run, tmp_path / "peft")
    for source, name in ((base, "base"), (run, "merged")):
        export_huggingface(source, tmp_path / name)
    before, after = (safetensors.torch.load_file(tmp_path / name / "model.safetensors") for name in ("base", "merged"))
    found = apply_peft(before, tmp_path / "peft")
    assert found.keys() == after.keys()
    assert sum(not torch.equal(before[name], after[name]) for name in after) > 3
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, after[name], rtol=1e-6, atol=1e-6, msg=name)


def test_transformers_computes_what_the_merged_run_computes(base: Path, adapted: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    export_huggingface(base, tmp_path / "hub")
    export_peft(adapted, tmp_path / "peft")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hub").eval()
    own = dict(model.named_parameters())
    changed = apply_peft({name: tensor.detach() for name, tensor in own.items()}, tmp_path / "peft")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(changed[name])
        src, tgt = torch.randint(4, 15, (3, 8)), torch.randint(4, 15, (3, 6))
        theirs = model(input_ids=src, decoder_input_ids=tgt).logits
        ours = load_run(adapted, device="cpu").model
        mine = ours.head(ours.hidden(src, None, tgt))
    torch.testing.assert_close(mine, theirs[..., : mine.shape[-1]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("maps", [None, ["value", "up"]])
def test_an_exported_adapter_comes_back(
    workshop: Any, base: Path, adapted: Path, tmp_path: Path, maps: list[str] | None
) -> None:
    run = adapted if maps is None else adapt(workshop, base, tmp_path / "run", adapter__maps=maps)
    export_peft(run, tmp_path / "peft")
    done = import_peft(tmp_path / "peft", base, tmp_path / "again")
    assert done.command == "translate" and done.n_parameters > 100
    one, other = (load_run(path, device="cpu").model.state_dict() for path in (run, tmp_path / "again"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    lines = list(read_lines(workshop.file("test.src")))[:10]
    texts = [load_translator([path], device="cpu").translate(lines) for path in (run, tmp_path / "again")]
    assert texts[0] == texts[1]
    export_peft(tmp_path / "again", tmp_path / "second")
    for name in ("adapter_model.safetensors",):
        assert (tmp_path / "second" / name).read_bytes() == (tmp_path / "peft" / name).read_bytes()


def test_merging_writes_a_run_without_adapters(workshop: Any, base: Path, adapted: Path, tmp_path: Path) -> None:
    alone = shutil.copytree(adapted, tmp_path / "alone")
    shutil.rmtree(alone / "base")
    merge_run(adapted, tmp_path / "one")
    merge_run(base, tmp_path / "two", adapter=alone)
    expected = load_run(adapted, device="cpu").model.state_dict()
    for name in ("one", "two"):
        found = load_run(tmp_path / name, device="cpu")
        assert found.config.adapter is None and "model.safetensors" in found.files.manifest.files
        assert all(torch.equal(tensor, expected[key]) for key, tensor in found.model.state_dict().items())
    workshop.train(workshop.configure(**MARIAN, limits__max_steps=1), tmp_path / "next", init_from=tmp_path / "one")
    with pytest.raises(RunError, match="no adapter to merge"):
        merge_run(base, tmp_path / "three")
    with pytest.raises(UsageError, match="already contains a run"):
        merge_run(adapted, tmp_path / "one")


def edit(change: str) -> Callable[[dict[str, Any], dict[str, Tensor]], object]:
    def changed(tree: dict[str, Any], factors: dict[str, Tensor]) -> object:
        first = min(factors)
        return {
            "kind": lambda: tree.update(peft_type="LOHA"),
            "other weights": lambda: tree.update(init_lora_weights="pissa"),
            "dora": lambda: tree.update(use_dora=True),
            "bias": lambda: tree.update(bias="all"),
            "ranks": lambda: tree.update(rank_pattern={"q_proj": 2}),
            "saved": lambda: tree.update(modules_to_save=["shared"]),
            "absurd": lambda: tree.update(r=10**9),
            "rank": lambda: tree.update(r=2),
            "missing": lambda: factors.pop(first),
            "unknown": lambda: factors.update(other=torch.ones(2)),
            "shape": lambda: factors.update({first: torch.ones(3, 5)}),
            "nan": lambda: factors[first].fill_(float("nan")),
            "empty": factors.clear,
        }[change]()

    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("kind", "not supported: peft_type"),
        ("other weights", "not supported: init_lora_weights"),
        ("dora", "not supported: use_dora"),
        ("bias", "not supported: bias"),
        ("ranks", r"is \[3, 16\], not \[2, 16\]"),
        ("saved", "not supported: modules_to_save"),
        ("absurd", "not supported: r: Input should be less"),
        ("rank", r"is \[3, 16\], not \[2, 16\]"),
        ("missing", "is missing"),
        ("unknown", "'other' is unexpected"),
        ("shape", r"is \[3, 5\], not \[3, 16\]"),
        ("nan", "not finite"),
        ("empty", "does not fit the base"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(
    base: Path, adapted: Path, tmp_path: Path, change: str, message: str
) -> None:
    folder = export_peft(adapted, tmp_path / "peft").path
    path, weights = folder / "adapter_config.json", folder / "adapter_model.safetensors"
    tree, factors = json.loads(path.read_text()), safetensors.torch.load(weights.read_bytes())
    edit(change)(tree, factors)
    path.write_text(json.dumps(tree))
    weights.write_bytes(safetensors.torch.save(factors))
    with pytest.raises(RunError, match=message):
        import_peft(folder, base, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_rank_stabilized_adapters_have_their_factor(base: Path, adapted: Path, tmp_path: Path) -> None:
    """Their factor is alpha / √r (Kalajdzievski 2023)."""
    folder = export_peft(adapted, tmp_path / "peft").path
    tree = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**tree, "use_rslora": True}))
    import_peft(folder, base, tmp_path / "run")
    assert load_run(tmp_path / "run").config.adapter.scale == pytest.approx(5.0 / 3**0.5)


def test_models_and_runs_without_a_counterpart(workshop: Any, base: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="this run has no adapter"):
        export_peft(base, tmp_path / "peft")
    workshop.train(workshop.configure("rnn", limits__max_steps=1), tmp_path / "rnn")
    config = workshop.configure("rnn", adapter__rank=2, limits__max_steps=1)
    workshop.train(config, tmp_path / "run", init_from=tmp_path / "rnn")
    with pytest.raises(RunError, match="does not support translation models of kind 'rnn'"):
        export_peft(tmp_path / "run", tmp_path / "peft")
    assert not (tmp_path / "peft").exists()


def test_an_imported_model_is_adapted_and_the_adapter_fits_its_folder(
    workshop: Any, base: Path, tmp_path: Path
) -> None:
    """The folder that was imported is the base of the exported adapter, whoever wrote it."""
    export_huggingface(base, tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "imported")
    flags = {"data.src": [str(workshop.file("train.src"))], "data.tgt": [str(workshop.file("train.tgt"))]}
    sets = ["adapter.rank=2", "limits.max_steps=4", "device=cpu", "threads=1", "evaluation.n_samples=0"]
    config = resolve(flags, sets=sets, fixed=inherited(tmp_path / "imported", None)).config
    assert config.preset == "adapt"
    workshop.train(config, tmp_path / "run", init_from=tmp_path / "imported")
    export_peft(tmp_path / "run", tmp_path / "peft")
    export_huggingface(tmp_path / "run", tmp_path / "merged")
    before, after = (safetensors.torch.load_file(tmp_path / name / "model.safetensors") for name in ("hub", "merged"))
    found = apply_peft(before, tmp_path / "peft")
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, after[name], rtol=1e-6, atol=1e-6, msg=name)
    lines = list(read_lines(workshop.file("test.src")))[:8]
    texts = [
        load_translator([tmp_path / "run"], device="cpu", engine=e).translate(lines) for e in ("compiled", "torch")
    ]
    assert texts[0] == texts[1]
