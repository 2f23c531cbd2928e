"""``pretrain-mlm`` and ``pretrain-clm`` as a user calls them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli import pretrain_clm, pretrain_mlm

Call = Callable[..., tuple[int, str, str]]
SETS = ["data.sequence_length=24", "vocabulary.size=300", "optimization.batch_tokens=300", "evaluation.every_steps=4"]
SETS += ["model.d_model=16", "model.n_heads=2", "model.n_layers=1", "model.d_ff=32", "model.max_length=24"]
STEADY = ["--precision", "float32", "--device", "cpu", "--threads", "1", "--preset", "tiny", "--max-steps", "6"]

USES = {"pretrain-mlm": "fill-mask", "pretrain-clm": "generate"}


def arguments(command: str, text: Path, run: Path, *more: str) -> list[str]:
    return [command, str(text), "-o", str(run), *STEADY, *(word for one in SETS for word in ("--set", one)), *more]


def outcome(run: Path) -> dict[str, bytes]:
    folder = run / "checkpoints/step-6"
    return {
        name: (folder / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors", "config.yaml")
    }


@pytest.mark.parametrize("command", ["pretrain-mlm", "pretrain-clm"])
def test_one_command_from_text_to_a_model(call: Call, workshop: Any, tmp_path: Path, command: str) -> None:
    text, run = workshop.file("text.txt"), tmp_path / "run"
    train = arguments(command, text, run)
    code, out, err = call(*train)
    assert code == 0, err
    assert "done: 6 steps" in out and f"attnkit {USES[command]} {run}" in out
    assert "documents: " in err and "ppl" in err and "top 5" in err and "accuracy" in err
    code, out, err = call(*train)
    assert (code, err) == (0, "") and "is finished" in out
    code, out, _ = call("verify", run)
    assert code == 0 and "all" in out and "good" in out
    code, out, err = call(*train, "--seed", "9")
    assert code == 2 and "seed: 1 -> 9" in err
    for other in (["translate", run, "-i", text], ["predict", run, text]):
        code, _, err = call(*other)
        assert code == 4 and len(err.splitlines()) <= 3 and f"of task '{command[-3:]}'" in err, err
    card = (run / "README.md").read_text()
    assert f"attnkit {USES[command]} run" in card and "perplexity" in card


@pytest.mark.parametrize("command", ["pretrain-mlm", "pretrain-clm"])
def test_the_general_command_trains_the_same(call: Call, workshop: Any, tmp_path: Path, command: str) -> None:
    text = workshop.file("text.txt")
    assert call(*arguments(command, text, tmp_path / "own"))[0] == 0
    general = ["train", "--task", command[-3:], "--data", str(text), *arguments(command, text, tmp_path / "train")[2:]]
    assert call(*general)[0] == 0
    assert outcome(tmp_path / "own") == outcome(tmp_path / "train")


def test_dry_run_shows_origins_and_does_nothing(call: Call, workshop: Any, tmp_path: Path) -> None:
    text, run = workshop.file("text.txt"), tmp_path / "run"
    code, out, err = call(
        "pretrain-mlm", text, "-o", run, "--units", "spans", "--preset", "mini", "--dry-run", "--json"
    )
    shown = json.loads(out)
    assert (code, err) == (0, "") and not run.exists()
    values = shown["configuration"]
    assert values["masking.mask_unit"] == {"value": "spans", "origin": "flag"}
    assert values["model.d_model"] == {"value": 256, "origin": "preset mini"}
    assert values["vocabulary.symbols"]["value"] == ["[MASK]"]
    assert shown["plan"]["unit"] == "documents" and shown["plan"]["n_examples"] == 60
    code, out, _ = call("pretrain-clm", text, "-o", run, "--direction", "right-to-left", "--dry-run")
    assert code == 0 and "right-to-left" in out and "60 documents" in out


def test_the_plan_counts_the_tokens_that_training_reads(call: Call, workshop: Any, tmp_path: Path) -> None:
    """The sample is all there is; what is held out the plan does not know."""
    text, run = workshop.file("text.txt"), tmp_path / "run"
    code, out, _ = call(*arguments("pretrain-clm", text, run, "--dry-run", "--json"))
    planned = json.loads(out)["plan"]["tokens_per_epoch"]
    assert code == 0 and call(*arguments("pretrain-clm", text, run))[0] == 0
    counts = json.loads((run / "data/prepared.json").read_text())["counts"]
    assert 0.9 < (counts["tokens"] + counts["train"]) / planned < 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["pretrain-mlm"], 2, "no training data given"),
        (["pretrain-mlm", "none.txt"], 2, "none.txt"),
        (["pretrain-mlm", "text.txt", "--preset", "big"], 2, "big"),
        (["pretrain-mlm", "text.txt", "--set", "preset=big"], 2, "unknown preset 'big'"),
        (["pretrain-mlm", "text.txt", "--set", "model.n_hads=2"], 2, "n_heads"),
        (["pretrain-mlm", "text.txt", "--set", "masking.mask_replace_prob=1.5"], 2, "masking.mask_replace_prob"),
        (["pretrain-mlm", "text.txt", "--set", "masking.random_replace_prob=0.5"], 2, "must sum to at most 1"),
        (["pretrain-mlm", "empty.txt"], 3, "empty"),
        (["pretrain-mlm", "text.txt", "--valid", "none.txt", "--dry-run"], 2, "none.txt"),
        (["pretrain-clm", "text.txt", "--valid", "empty.txt", "--dry-run"], 3, "no validation documents"),
        (["pretrain-mlm", "blank.txt"], 3, "too few for training and validation"),
        (["pretrain-mlm", "one.txt", "--dry-run"], 3, "1 row: too few for training and validation"),
        (["pretrain-mlm", "bytes.txt"], 3, "not UTF-8"),
        (["pretrain-clm", "text.txt", "--direction", "up"], 2, "up"),
        (["pretrain-clm", "-"], 2, "only once"),
        (["train", "--task", "translation", "--preset", "mini", "--src", "text.txt", "--tgt", "text.txt"], 2, "'mini'"),
    ],
)
def test_errors_are_short_and_say_what_to_do(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"line {n}\n" for n in range(50)))
    Path("empty.txt").write_text("")
    Path("blank.txt").write_text("\n \n\n")
    Path("one.txt").write_text("one line\n")
    Path("bytes.txt").write_bytes(b"one\ntwo\n\xff\n")
    found, out, err = call(*words, "-o", "run")
    assert (found, out) == (code, "") and said in err, err
    assert len(err.strip().splitlines()) <= 4 and "Traceback" not in err


def test_further_pretraining_begins_with_weights_and_vocabulary(call: Call, workshop: Any, tmp_path: Path) -> None:
    text = workshop.file("text.txt")
    assert call(*arguments("pretrain-mlm", text, tmp_path / "first"))[0] == 0
    more = ["pretrain-mlm", str(text), "-o", str(tmp_path / "second"), *STEADY]
    code, _, err = call(*more, "--set", "data.language_sampling_alpha=0.5", "--init-from", tmp_path / "first")
    assert code == 0, err
    own, other = ((tmp_path / name / "tokenizer.json").read_bytes() for name in ("first", "second"))
    assert own == other
    words = [*more, "--init-from", tmp_path / "first", "--vocab", tmp_path / "first/tokenizer.json"]
    for way in ([], ["--dry-run"]):
        code, _, err = call(*words, *way)
        assert code == 2 and "need that run's vocabulary" in err
    code, _, err = call("pretrain-clm", text, "-o", tmp_path / "third", "--init-from", tmp_path / "first")
    assert code == 4 and "'mlm', not a language model" in err


def test_further_pretraining_keeps_the_direction(call: Call, workshop: Any, tmp_path: Path) -> None:
    text, first = workshop.file("text.txt"), tmp_path / "first"
    assert call(*arguments("pretrain-clm", text, first, "--direction", "right-to-left"))[0] == 0
    more = ["pretrain-clm", text, "-o", tmp_path / "second", "--init-from", first, "--dry-run", "--json"]
    for way, expected in ([], "right-to-left"), (["--direction", "left-to-right"], "left-to-right"):
        code, out, err = call(*more, *way)
        assert code == 0, err
        values = json.loads(out)["configuration"]
        assert values["direction"]["value"] == expected
        # The rows are as long as those of the first run, which its positions are made for, not as the preset's.
        assert values["data.sequence_length"] == {"value": 24, "origin": f"--init-from {first}"}


@pytest.mark.parametrize("module", [pretrain_mlm, pretrain_clm])
def test_the_examples_of_the_help(
    call: Call, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    """As dry runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("text.txt", "a.en", "b.de"):
        Path(name).symlink_to(workshop.file("text.txt"))
    shown = re.sub(r"\\\n *", "", module.command.__doc__ or "")
    examples = re.findall(r"^ +(attnkit .+)$", shown, re.MULTILINE)
    assert len(examples) >= 3
    for line in examples:
        code, out, err = call(*dict.fromkeys([*line.split()[1:], "--dry-run"]))
        assert (code, err) == (0, "") and "documents, about" in out, line


SHAPES = {
    "learned": (["positions=learned"], ""),
    "sinusoidal": (["positions=sinusoidal", "max_length=8"], ""),
    "rotary": (["positions=rotary", "max_length=8"], ""),
    "alibi, pre-norm": (["positions=alibi", "norm=pre"], "model.norm"),
    "glu": (["glu=true", "activation=silu"], "model.glu"),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("command", ["pretrain-mlm", pytest.param("pretrain-clm", marks=pytest.mark.slow)])
def test_positions_norms_and_units_train_and_are_exported_or_refused(
    call: Call, workshop: Any, tmp_path: Path, command: str, shape: str
) -> None:
    given, refused = SHAPES[shape]
    for_gpt = {"alibi, pre-norm": "model.positions", "rotary": "model.positions"}
    refused = for_gpt.get(shape, refused) if command == "pretrain-clm" else refused
    sets = [word for one in given for word in ("--set", f"model.{one}")]
    code, _, err = call(*arguments(command, workshop.file("text.txt"), tmp_path / "run", "--max-steps", "3", *sets))
    assert code == 0, err
    code, out, err = call("export", tmp_path / "run", "--to", "huggingface", tmp_path / "hub")
    if refused:
        assert (code, out) == (4, "") and refused in err and "help: supported: " in err, err
        assert not (tmp_path / "hub").exists()
        return
    assert code == 0, err
    described = json.loads((tmp_path / "hub/config.json").read_text())
    # Rows of 24 tokens were trained on, so that many are taken.
    assert described["max_position_embeddings" if command == "pretrain-mlm" else "n_positions"] == 24
