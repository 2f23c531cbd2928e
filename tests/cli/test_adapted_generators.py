"""Text generators go on with other text: fully or by LoRA, from runs of GPT-2 and Llama; their adapters are swapped."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import attnkit
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.cli.main import main
from attnkit.models.lora import LoraConfig, adapted_blocks, factor_names

FIRST = ["--preset", "tiny", "--device", "cpu", "--set", "vocabulary.size=300", "--set", "data.sequence_length=24"]
LLAMA = ["positions=rotary", "glu=true", "activation=silu", "normalization=rms", "bias=false", "n_key_value_heads=1"]
KINDS = {"gpt": [], "llama": [*LLAMA, "head_width=24", "rope_scaling.kind=linear", "rope_scaling.factor=2"]}
STEPS = ["--device", "cpu", "--max-steps", "6", "--set", "data.sequence_length=24"]
LORA = [word for one in ("kind=lora", "rank=2", "alpha=6") for word in ("--set", f"adapter.{one}")]


def run_command(*words: Any) -> None:
    """Run a command in this process, outside a test."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["attnkit", *map(str, words)])
        main()
    assert not ended.value.code


@pytest.fixture(scope="module", params=list(KINDS))
def base(request: Any, workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run as an imported one is: of step 0, with the tokenizer files of its folder."""
    place = tmp_path_factory.mktemp(request.param)
    text, sets = workshop.file("text.txt"), [w for one in KINDS[request.param] for w in ("--set", f"model.{one}")]
    run_command("pretrain-clm", text, "-o", place / "run", *FIRST, "--max-steps", "3", *sets)
    if request.param == "gpt":
        return Path(place / "run")
    run_command("export", place / "run", "--to", "huggingface", place / "hub")
    run_command("import", "huggingface", place / "hub", "-o", place / "base")
    return Path(place / "base")


@pytest.fixture(scope="module")
def adapted(base: Path, workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("adapted") / "run"
    run_command("pretrain-clm", workshop.file("text.txt"), "-o", run, "--init-from", base, *STEPS, *LORA)
    return Path(run)


def generated(call: Any, *words: Any) -> str:
    code, out, err = call("generate", *words, "the", "--max-new-tokens", "8", "--engine", "torch", "--json")
    assert code == 0, err
    return str(out)


def test_a_run_saves_adapters_whose_weights_are_merged(base: Path, adapted: Path) -> None:
    chosen = RunFolder(adapted).checkpoint("last")[0]
    assert "model.safetensors" not in chosen.manifest.files
    weights = safetensors.numpy.load((adapted / "base/model.safetensors").read_bytes())
    factors = safetensors.numpy.load((chosen.path / "adapter.safetensors").read_bytes())
    assert all(np.any(array) for array in factors.values()), "B too is trained"
    small = sum(array.size for array in factors.values())
    assert small < 0.1 * sum(array.size for array in weights.values())
    loaded = attnkit.CausalLM.load(adapted, engine="torch", checkpoint="last")
    model = dict(loaded._generator.model.model.named_parameters())
    changed = adapted_blocks({name: array.shape for name, array in weights.items()}, LoraConfig(rank=2))
    for name, blocks in changed.items():
        a, b = (factors[factor].astype(np.float64) for factor in factor_names(name))
        whole, row = weights[name].astype(np.float64), 0
        for n, (_, rows) in enumerate(blocks):
            size = rows.stop - rows.start
            whole[rows] += 6 / 2 * b[row : row + size] @ a[2 * n : 2 * n + 2]
            row += size
        assert row == len(b) == len(whole)
        np.testing.assert_allclose(model[name].detach().numpy(), whole, rtol=0, atol=1e-5, err_msg=name)
    assert {name.rpartition(".")[0].split(".", 2)[2] for name in changed} >= {"attention.projection", "feed_forward.up"}


def test_an_adapter_alone_is_added_to_its_base(
    base: Path, adapted: Path, call: Any, workshop: Any, tmp_path: Path
) -> None:
    expected = generated(call, adapted)
    alone = shutil.copytree(adapted, tmp_path / "alone")
    shutil.rmtree(alone / "base")
    assert generated(call, base, "--adapter", alone) == expected != generated(call, base)
    code, _, err = call("generate", base, "the", "--adapter", base)
    assert code == 4 and "this run has no adapter" in err
    code, _, err = call("generate", alone, "the")
    assert code == 4 and f"--adapter {alone}" in err
    other = tmp_path / "other"
    code, _, err = call("pretrain-clm", workshop.file("text.txt"), "-o", other, "--init-from", base, *STEPS)
    assert code == 0, err
    code, _, err = call("generate", other, "the", "--adapter", alone)
    assert code == 4 and "trained on other weights" in err


def test_it_is_merged_and_exported_and_begins_another(adapted: Path, call: Any, workshop: Any, tmp_path: Path) -> None:
    expected = generated(call, adapted)
    code, _, err = call("export", adapted, "--to", "attnkit", tmp_path / "merged")
    assert code == 0, err
    assert generated(call, tmp_path / "merged") == expected
    config = (tmp_path / "merged/config.yaml").read_text()
    assert "adapter: null" in config or "adapter" not in config
    again = ["--max-steps", "1", "--set", "optimization.learning_rate=1e-30"]
    code, _, err = call(
        *("pretrain-clm", workshop.file("text.txt"), "-o", tmp_path / "again", "--init-from", adapted),
        *("--device", "cpu", *again),
    )
    assert code == 0, err
    one, other = (json.loads(each)["texts"][0]["text"] for each in (generated(call, tmp_path / "again"), expected))
    assert one == other


def test_a_resumed_run_has_the_same_bits(base: Path, call: Any, workshop: Any, tmp_path: Path) -> None:
    common = [*STEPS[:2], *STEPS[4:], *LORA, "--set", "optimization.schedule=constant"]  # the same for any end
    for run, ends in (("whole", (4,)), ("parts", (2, 4))):
        for n in ends:
            words = ["pretrain-clm", workshop.file("text.txt"), "-o", tmp_path / run, "--init-from", base]
            code, _, err = call(*words, *common, "--max-steps", n)
            assert code == 0, err
    one, other = (RunFolder(tmp_path / run).checkpoint("last")[0] for run in ("whole", "parts"))
    assert one.name == other.name == "step-4"
    assert one.read("adapter.safetensors") == other.read("adapter.safetensors")


def test_settings_follow_from_the_run_that_is_adapted(base: Path, call: Any, workshop: Any, tmp_path: Path) -> None:
    text = workshop.file("text.txt")
    words = ["pretrain-clm", text, "-o", tmp_path / "run", "--init-from", base, "--dry-run"]
    rates = []
    for more in ([], LORA):
        code, out, err = call(*words, *more)
        assert code == 0, err
        settings = {line.split()[0]: line.split()[1] for line in out.splitlines() if len(line.split()) > 1}
        assert settings["preset"] == "adapt"
        rates.append(float(settings["optimization.learning_rate"]))
    assert rates == [0.0005, 0.0025]  # 0.064 / 128, and five times as much
    for more, said in (
        (["--set", "adapter.maps=[cells]"], "'cells' is not a map of gpt"),
        ([*LORA, "--set", "fsdp=true"], "adapters cannot be trained with fsdp"),
    ):
        code, _, err = call(*words, *more)
        assert code == 2 and said in err
    code, _, err = call("pretrain-clm", text, "-o", tmp_path / "run", *FIRST, *LORA)
    assert code == 2 and "an adapter needs weights to adapt" in err
    code, _, err = call("pretrain-clm", text, "-o", tmp_path / "run", "--preset", "adapt")
    assert code == 2 and "--init-from" in err
