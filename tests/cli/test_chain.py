"""The commands one after another, as a user calls them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main
from attnkit.errors import StoppedError
from attnkit.plotting.progress_text import Clock
from attnkit.tasks.translation.task import TrainRequest, train

Call = Callable[..., tuple[int, str, str]]


def test_train_translate_score_average(call: Call, workshop: Any, tmp_path: Path) -> None:
    run, src, ref = tmp_path / "run", workshop.file("test.src"), workshop.file("test.tgt")
    train = workshop.arguments("transformer", run, limits__max_steps=10)
    code, out, err = call(*train)
    assert code == 0
    assert "done: 10 steps" in out and f"attnkit translate {run}\n" in out
    assert "\nlittle is learned: " in out, "BLEU 0.0"
    assert "pairs: " in err and "BLEU" in err

    code, out, err = call(*train)
    assert (code, err) == (0, "") and f"{run} is finished: 10 steps" in out
    code, out, err = call(*train, "--json")
    assert (code, err) == (0, "") and json.loads(out)["already"] is True

    code, out, err = call("translate", run, "-i", src, "--device", "cpu")
    assert code == 0 and out.count("\n") == 40
    assert err.startswith("40 of 40 lines may be wrong: 40 cut at the maximum length")
    code, to_stdout, err = call("translate", run, "-i", src, "-o", tmp_path / "out")
    assert (code, to_stdout) == (0, "") and err.startswith("40 of 40 lines may be wrong")
    assert (tmp_path / "out").read_text() == out

    code, out, err = call("score", run, src, ref)
    log_probs = [float(line) for line in out.splitlines()]
    assert code == 0 and len(log_probs) == 40 and max(log_probs) < 0
    assert "40 pairs" in err and "perplexity" in err
    code, out, err = call("score", run, src, ref, "--summary", "--json")
    totals = json.loads(out)
    assert (code, err.count("\n"), out.count("\n")) == (0, 1, 1)
    assert totals["log_prob"] == pytest.approx(sum(log_probs), abs=1e-3) and totals["pairs"] == 40

    code, out, err = call("average", run, "--json")
    assert (code, err) == (0, "") and json.loads(out)["averaged"] == ["step-5", "step-10"]
    code, out, err = call("translate", run, "-i", src)
    assert (code, out.count("\n")) == (0, 40)


def test_a_changed_key_is_named_with_old_and_new(call: Call, workshop: Any, trained: Path) -> None:
    code, out, err = call(*workshop.arguments("transformer", trained), "--set", "optimization.clip_norm=2.0")
    assert (code, out) == (2, "")
    assert "optimization.clip_norm: 1.0 -> 2.0" in err and "--overwrite" in err
    assert len(err.splitlines()) <= 3


def test_an_argument_that_begins_with_a_dash_is_no_flag_after_two_dashes(call: Call) -> None:
    code, out, err = call("translate", "--", "--debug")
    assert (code, out) == (4, "") and "no such run folder: --debug" in err
    assert "Traceback" not in err


def test_dry_run_shows_origins_and_does_nothing(call: Call, workshop: Any, tmp_path: Path) -> None:
    train = [*workshop.arguments("rnn", tmp_path / "run"), "--dry-run", "--seed", "7"]
    code, out, err = call(*train)
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split(maxsplit=2) for line in out.splitlines() if line.startswith("  ")}
    assert rows["seed"][1:] == ["7", "flag"]
    assert rows["model.d_hidden"][1:] == ["16", "--set model.d_hidden"]
    assert rows["model.cell"][1:] == ["gru", "default"]
    assert rows["evaluation.every_epochs"][1:] == ["null", "default"]
    assert "160 pairs" in out and "parameters" in out and "memory" in out and "steps" in out
    code, out, err = call(*train, "--json")
    shown = json.loads(out)
    assert shown["configuration"]["seed"] == {"value": "7", "origin": "flag"} or shown["configuration"]["seed"] == {
        "value": 7,
        "origin": "flag",
    }
    assert shown["plan"]["n_examples"] == 160
    assert not (tmp_path / "run").exists()


def test_the_plan_counts_the_parameters_of_the_run(call: Call, workshop: Any, tmp_path: Path) -> None:
    arguments = workshop.arguments("transformer", tmp_path / "run", limits__max_steps=1)
    planned = json.loads(call(*arguments, "--dry-run", "--json")[1])["plan"]
    call(*arguments)
    import safetensors.torch

    tensors = safetensors.torch.load_file(tmp_path / "run/checkpoints/step-1/model.safetensors")
    assert planned["n_parameters"] == sum(tensor.numel() for tensor in tensors.values())
    assert planned["tokens_per_epoch"] > 1000


def test_a_run_goes_on_without_its_text(call: Call, workshop: Any, tmp_path: Path) -> None:
    """No preset is named, and nothing is left whose lines could be counted."""
    shutil.copytree(workshop.corpus, tmp_path / "corpus")
    moved, run = type(workshop)(tmp_path / "corpus"), tmp_path / "run"
    arguments = moved.arguments("transformer", run, model__dropout=0.2)
    arguments.remove("--preset")
    arguments.remove("tiny")
    workshop.train(moved.configure(model__dropout=0.2), tmp_path / "whole")
    config = moved.configure(model__dropout=0.2)
    stops = itertools.count(1)
    with pytest.raises(StoppedError):
        list(
            train(TrainRequest(config, run, stop=lambda: next(stops) == 9))
        )  # 5 steps, 2 batches of an evaluation, 2 steps
    shutil.rmtree(tmp_path / "corpus")
    code, out, err = call(*arguments)
    assert code == 0 and "done: 12 steps" in out and "resuming from step 7" in err
    for name in ("model", "optimizer"):
        path = f"checkpoints/step-12/{name}.safetensors"
        assert (run / path).read_bytes() == (tmp_path / "whole" / path).read_bytes()
    code, out, err = call(*arguments)
    assert (code, err) == (0, "") and f"{run} is finished: 12 steps" in out


def test_a_text_that_grew_never_changes_the_preset(call: Call, workshop: Any, tmp_path: Path) -> None:
    shutil.copytree(workshop.corpus, tmp_path / "corpus")
    moved, run = type(workshop)(tmp_path / "corpus"), tmp_path / "run"
    arguments = moved.arguments("transformer", run, limits__max_steps=1)
    call(*arguments)
    arguments.remove("--preset")
    arguments.remove("tiny")
    for side in ("src", "tgt"):
        moved.file(f"train.{side}").write_text("1 2\n" * 20_001)
    code, out, err = call(*arguments, "--max-steps", "2")
    assert (code, out) == (2, "") and "has changed since the run started" in err and str(moved.file("train.src")) in err
    for more, preset, origin in (((), "tiny", "the run"), (("--overwrite",), "small", "number of lines")):
        shown = json.loads(call(*arguments, "--dry-run", "--json", *more)[1])
        assert shown["configuration"]["preset"] == {"value": preset, "origin": origin}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_same_command_goes_on(
    call: Call, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The signal comes while step 7 is shown, which no checkpoint was planned for."""
    tick, steps = Clock.tick, iter(range(1, 13))

    def interrupt(clock: Clock, n_tokens: int, progress: float) -> tuple[float, float]:
        if next(steps) == 7:
            os.kill(os.getpid(), number)
        return tick(clock, n_tokens, progress)

    monkeypatch.setattr(Clock, "tick", interrupt)
    train = workshop.arguments("transformer", tmp_path / "run", model__dropout=0.2)
    code, out, err = call(*train)
    assert (code, out) == (75, "")
    assert err.splitlines()[-2:] == [
        "error: stopped at step 8; everything is saved",
        "help: run the same command again to resume",
    ]
    assert json.loads((tmp_path / "run/status.json").read_text())["state"] == "stopped"
    monkeypatch.undo()
    monkeypatch.setattr(sys, "argv", ["attnkit", *train])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    workshop.train(workshop.configure(model__dropout=0.2), tmp_path / "whole")
    for name in ("model", "optimizer"):
        path = f"checkpoints/step-12/{name}.safetensors"
        assert (tmp_path / "run" / path).read_bytes() == (tmp_path / "whole" / path).read_bytes()
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()
    assert signal.getsignal(number) == signal.SIG_IGN


def test_a_signal_before_training_ends_the_command_as_usual(
    call: Call, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnkit.tasks.translation import data as prepare

    monkeypatch.setattr(prepare, "_check", lambda config: os.kill(os.getpid(), signal.SIGINT) or iter(()))
    code, out, err = call(*workshop.arguments("transformer", tmp_path / "run"))
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted"
    monkeypatch.undo()
    assert not (tmp_path / "run/data").exists()
