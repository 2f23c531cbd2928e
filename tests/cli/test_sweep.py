"""``attnkit sweep``: which runs it has, that they are those of the command line, halving, failures, resuming."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnkit.checkpoints.logs import read_status
from attnkit.engine.sweep import Sweep
from attnkit.engine.sweep_config import MOST_RUNS, read_sweep, short_names
from attnkit.errors import StoppedError, UsageError

Call = Callable[..., tuple[int, str, str]]


def write(path: Path, tree: Any) -> Path:
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


@pytest.fixture
def base(workshop: Any, tmp_path: Path) -> Path:
    """A configuration of a small translator, evaluated at steps 2 and 4."""
    config = workshop.configure(evaluation={"every_steps": 2}, limits={"max_steps": 4})
    return write(tmp_path / "base.yaml", config.model_dump(mode="json"))


def test_a_run_for_each_combination_and_seed(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", {"model": {"dropout": 0.5, "d_model": 32}})
    values = {"model.dropout": [0.0, 0.1], "optimization.learning_rate": [0.001], "model.tie_embeddings": ["all", None]}
    file = write(tmp_path / "sweep.yaml", {"config": "base.yaml", "values": values, "seeds": [3, 4], "settings": {
        "limits.max_steps": 7, "model": {"n_heads": 2}}})  # fmt: skip
    trials = read_sweep(file).trials
    assert len(trials) == len({trial.name for trial in trials}) == 8
    assert trials[0].name == "dropout=0.0,learning_rate=0.001,tie_embeddings=all,seed=3"
    assert trials[3].configuration == "dropout=0.0,learning_rate=0.001,tie_embeddings=null"
    assert trials[0].tree == {
        "model": {"dropout": 0.0, "d_model": 32, "n_heads": 2, "tie_embeddings": "all"},
        "limits": {"max_steps": 7},
        "optimization": {"learning_rate": 0.001},
        "seed": 3,
    }


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"values": {"model.dropout": []}}, "at least one"),
        ({"values": {"seed": [1, 2]}}, "list of their own"),
        ({"seeds": [1, 1]}, "listed twice"),
        ({"values": {"a.b": list(range(MOST_RUNS + 1))}}, "at most 1,000"),
        ({"values": {"a.b": [0.1, 0.1]}}, "one name"),
        ({"halving": {"steps": [5, 5]}}, "ascending"),
        ({"command": "finetune"}, "init_from"),
        ({"command": "pretrain-mlm", "tests": [{"src": "a", "tgt": "b"}]}, "tests are for translators"),
        ({"command": "serve"}, "command"),
        ({"value": {}}, "value"),
        ({"config": "missing.yaml"}, "missing.yaml"),
    ],
)
def test_files_that_are_no_sweeps(tree: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        read_sweep(write(tmp_path / "sweep.yaml", tree))
    assert message in "\n".join(error.value.lines())


def test_short_names_are_the_shortest_that_differ() -> None:
    assert short_names(["dropout", "model.dropout"]) == {"dropout": "dropout", "model.dropout": "model.dropout"}


def test_names_of_folders_have_no_separators(tmp_path: Path) -> None:
    file = write(tmp_path / "sweep.yaml", {"values": {"data.src": [["../a/b c"], ["x"]]}})
    assert [trial.name for trial in read_sweep(file).trials] == ["src=.._a_b_c,seed=1", "src=x,seed=1"]


@pytest.mark.slow
def test_halving_ends_the_worse_and_the_rest_are_usual_runs(base: Path, tmp_path: Path, call: Call) -> None:
    """The second configuration cannot learn; what remains equals a run of ``train``."""
    values = {"optimization.learning_rate": [0.01, 1e-9]}
    file = write(tmp_path / "sweep.yaml", {"config": "base.yaml", "values": values, "halving": {"steps": [2]},
                                           "settings": {"limits.metric": "loss"}})  # fmt: skip
    out = tmp_path / "experiments"
    code, text, _ = call("sweep", str(file), "-o", str(out), "--jobs", "2", "--json")
    found = json.loads(text)
    good, bad = "learning_rate=0.01,seed=1", "learning_rate=1e-09,seed=1"
    assert code == 0 and found["finished"] == [good] and found["failed"] == {}
    assert found["ended_early"] == ["learning_rate=1e-09"]
    assert [group["paths"] for group in found["groups"]] == [[str(out / good)]]
    good_status, bad_status = read_status(out / good), read_status(out / bad)
    assert good_status is not None and (good_status.state, good_status.step) == ("finished", 4)
    assert bad_status is not None and bad_status.step <= 4
    before = (out / good / "metrics.jsonl").read_bytes()
    assert call("train", "--config", str(out / f"{good}.yaml"), "-o", str(tmp_path / "alone"), "--quiet")[0] == 0
    assert (tmp_path / "alone" / "metrics.jsonl").read_bytes() == before
    assert call("sweep", str(file), "-o", str(out), "--jobs", "2", "--json")[:2] == (0, text), "nothing is left to do"
    assert (out / good / "metrics.jsonl").read_bytes() == before
    write(tmp_path / "base.yaml", {**yaml.safe_load(base.read_text()), "limits": {"max_steps": 5}})
    code, _, err = call("sweep", str(file), "-o", str(out))
    assert code == 2 and "other settings" in err


@pytest.mark.slow
def test_a_run_that_fails_does_not_stop_the_others(base: Path, tmp_path: Path, call: Call) -> None:
    file = write(tmp_path / "sweep.yaml", {"config": "base.yaml", "values": {"model.n_heads": [3, 5]}})
    for n_attempts in (1, 2):
        code, text, err = call("sweep", str(file), "-o", str(tmp_path / "out"))
        assert code == 4 and "2 of 2 runs failed, the first with exit code 2" in err and text == ""
        for n_heads in (3, 5):
            log = (tmp_path / "out" / f"n_heads={n_heads},seed=1.log").read_text()
            assert log.count("error:") == n_attempts


def test_a_stopped_sweep_stops_its_runs(base: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "sweep.yaml", {"config": "base.yaml"})
    calls = iter([False, True])
    sweep = Sweep(read_sweep(file), tmp_path / "out", stop=lambda: next(calls))
    with pytest.raises(StoppedError):
        sweep.run()
    status = read_status(tmp_path / "out" / "base,seed=1")
    assert status is None or status.state != "running"


@pytest.mark.slow
def test_a_killed_sweep_leaves_no_process_and_resumes_to_the_same_bytes(base: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load(base.read_text())
    write(base, {**tree, "limits": {"max_steps": 60}, "checkpoints": {"save_every": 5}})
    file = write(tmp_path / "sweep.yaml", {"config": "base.yaml", "seeds": [1, 2]})
    command = [sys.executable, "-m", "attnkit", "sweep", str(file), "-o"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, timeout=300)
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen([*command, str(tmp_path / "out")], stderr=subprocess.PIPE)
        log = tmp_path / "out" / ("base,seed=1" if number == signal.SIGKILL else "base,seed=2") / "metrics.jsonl"
        end = time.monotonic() + 120
        while not (log.exists() and log.stat().st_size) and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=120)
        assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else StoppedError.exit_code)
    subprocess.run([*command, str(tmp_path / "out")], check=True, timeout=300)
    for seed in (1, 2):
        name = f"base,seed={seed}/metrics.jsonl"
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert (tmp_path / "out" / "base,seed=2.log").exists()
