"""NaN and Inf: a step that has one is told and not applied, on any rank; weights that have one are not taken."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from rank_server import start

from attnkit.checkpoints import logs
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.cli._train import follow
from attnkit.config import dump_yaml, load_yaml, validate
from attnkit.engine import seq2seq as likelihood
from attnkit.engine.averaging import average_run
from attnkit.engine.gradient_session import GradientSession
from attnkit.errors import RunError
from attnkit.progress import console
from attnkit.tasks.translation import evaluate
from attnkit.tasks.translation import task as translation
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.training.records import StepRecord

Tensors = dict[str, torch.Tensor]
NAN, INF = float("nan"), float("inf")
POISON: dict[str, dict[int, dict[int, tuple[str, float]]]] = {
    "now and then": {
        2: {0: ("loss", NAN)},
        3: {1: ("loss", INF)},
        5: {1: ("gradient", NAN)},
        6: {0: ("gradient", INF)},
        8: {1: ("element", INF)},
        9: {0: ("element", NAN)},
        10: {0: ("loss", INF), 1: ("loss", -INF)},
    },
    "ten in a row": {step: {step % 2: ("loss", NAN)} for step in range(6, 16)},
}
"""Step -> rank -> what is not finite in its first micro-batch: the loss alone, the gradient, one number of it."""


def read_records(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the records of a log and the numbers of its damaged lines."""
    found = [logs.parse_line(line) for line in path.read_bytes().splitlines(keepends=True)]
    return [r for r in found if r is not None], [n for n, r in enumerate(found, start=1) if r is None]


class Poisoner:
    """Spoils what a rank computes in the steps of a plan, and notes what each step was like."""

    def __init__(self, plan: dict[int, dict[int, tuple[str, float]]], rank: int, world: int) -> None:
        self.plan = {
            step: bad for step, places in plan.items() for place, bad in places.items() if place % world == rank
        }
        self.steps: list[dict[str, Any]] = []
        """What came of each, and a digest of the tensors it left."""

    def install(self) -> None:
        """Work from now on, to the end of the process."""
        save, cross_entropy = GradientSession.log_and_save, likelihood.linear_cross_entropy

        def noting(session: GradientSession, record: Any, writer: Any) -> None:
            save(session, record, writer)
            if isinstance(record, StepRecord):
                self.note(record, *session.state.weights.tensors())

        def spoilt(hidden: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
            # Only the first micro-batch of a step, and no evaluation.
            kind, value = self.plan.pop(len(self.steps) + 1, ("", 0.0)) if hidden.requires_grad else ("", 0.0)
            if kind in ("gradient", "element"):
                hidden.register_hook(lambda gradient: spoil_gradient(gradient, kind, value))
            total, nll = cross_entropy(hidden, *arguments)
            return (total + value, nll + value) if kind == "loss" else (total, nll)

        GradientSession.log_and_save, likelihood.linear_cross_entropy = noting, spoilt  # type: ignore[method-assign]

    def note(self, record: StepRecord, model: Tensors, optimizer: Tensors) -> None:
        """Note a step."""
        every = [tensors[name] for tensors in (model, optimizer) for name in sorted(tensors)]
        digest = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in every)).hexdigest()
        finite = all(bool(tensor.isfinite().all()) for tensor in every)
        self.steps.append({"step": record.step, "skipped": record.skipped, "finite": finite, "digest": digest})


def spoil_gradient(gradient: torch.Tensor, kind: str, value: float) -> torch.Tensor:
    spoilt = gradient.clone()
    spoilt.view(-1)[-1 if kind == "element" else slice(None)] = value
    return spoilt


def train_poisoned(folder: Path) -> None:
    """Train as a rank that leaves what it has seen."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    poisoner = Poisoner(POISON[(folder / "poison").read_text()], rank, world)
    poisoner.install()
    config = validate(TranslationConfig, load_yaml(folder / "config.yaml"))
    try:
        for _ in translation.train(TrainRequest(config, folder / "run")):
            pass
    finally:
        (folder / f"steps-{rank}.json").write_text(json.dumps(poisoner.steps))


def poisoned(workshop: Any, folder: Path, poison: str, world: int, **changes: Any) -> tuple[Any, Any]:
    """Start to train; return configuration and group."""
    folder.mkdir()
    given = {
        "optimization__gradient_accumulation_steps": 2,
        "optimization__ema_decay": 0.9,
        "checkpoints__save_every": 4,
    }
    config = workshop.configure(**given, **changes)
    (folder / "config.yaml").write_text(dump_yaml(config))
    (folder / "poison").write_text(poison)
    return config, start(train_poisoned, world, folder)


def read_steps(folder: Path, world: int) -> list[dict[str, Any]]:
    """Return what all ranks have seen; they must have seen the same."""
    every = [json.loads((folder / f"steps-{rank}.json").read_text()) for rank in range(world)]
    for other in every[1:]:
        assert other == every[0]
    steps: list[dict[str, Any]] = every[0]
    return steps


@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_step_that_is_not_finite_is_applied_nowhere(workshop: Any, tmp_path: Path, world: int) -> None:
    """The tests of the loop do the like with one process."""
    bad = POISON["now and then"].keys()
    for precision in ("float32", "bfloat16"):
        config = {"limits__max_steps": 12, "evaluation": {"every_steps": 20}, "precision": precision}
        _, group = poisoned(workshop, tmp_path / precision, "now and then", world, **config)
        assert group.codes() == [0] * world, group.said(0)
        steps = read_steps(group.folder, world)
        assert [step["step"] for step in steps] == list(range(1, 13))
        assert all(step["finite"] for step in steps)
        assert {step["step"] for step in steps if step["skipped"]} == bad
        for before, after in itertools.pairwise(steps):
            assert (before["digest"] == after["digest"]) == after["skipped"], after
        records, warnings = read_records(group.folder / "run/metrics.jsonl")
        told = {r["step"]: {r["loss"], r["grad_norm"]} for r in records if r["kind"] == "step" and r["skipped"]}
        assert told.keys() == bad and warnings == []
        assert all(numbers & {"nan", "inf", "-inf"} for numbers in told.values())


@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ten_in_a_row_end_with_6_and_the_last_good_weights(workshop: Any, tmp_path: Path, world: int) -> None:
    config, group = poisoned(workshop, tmp_path / "folder", "ten in a row", world, limits__max_steps=17)
    assert group.codes() == [6] * world, group.said(0)
    steps = read_steps(group.folder, world)
    assert [step["step"] for step in steps if step["skipped"]] == list(range(6, 16))
    run = group.folder / "run"
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("failed", 6) and "10 steps in a row" in status["reason"]
    newest, warnings = RunFolder(run).newest()
    assert newest is not None and (newest.step, warnings) == (12, [])
    load_run(run, device="cpu")
    # What spoilt the numbers is gone: the same command continues.
    assert workshop.train(config, run).step == 17
    records, _ = read_records(run / "metrics.jsonl")
    assert [r["step"] for r in records if r["kind"] == "step" and r["skipped"]] == list(range(6, 13))


def test_a_skipped_step_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """However short a time ago something else was shown."""
    steps = [StepRecord(n, 0.1, NAN if n == 2 else 1.0, 0.1, 1.0, 9, 9 * n, 0.1, skipped=n == 2) for n in (1, 2, 3)]
    with console.StatusLine() as line:
        follow(iter(steps), line, lambda: None, lambda outcome: pytest.fail("nothing came out"))
    told = capsys.readouterr().err.splitlines()
    assert told[1:] == ["warning: step 2 is skipped: its loss or its gradient is not finite"]


def test_a_score_that_is_not_finite_is_kept_and_gone_on_from(
    workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "development_loss", lambda *arguments: NAN)
    config = workshop.configure(limits__metric="loss")
    workshop.train(config, tmp_path / "run", stops=(6, 3))
    records, warnings = read_records(tmp_path / "run/metrics.jsonl")
    scores = [r["loss"] for r in records if r["kind"] == "evaluation"]
    assert scores == ["nan"] * 3 and warnings == []
    assert not (tmp_path / "run/best").exists(), "none of them is the best"
    assert load_run(tmp_path / "run", device="cpu").checkpoint == "step-12"


def spoil(run: Path, file: str, name: str, value: float) -> None:
    """Save the newest checkpoint again, a number of one tensor changed: every byte of it verifies."""
    folder = RunFolder(run)
    newest = folder.newest()[0]
    assert newest is not None
    contents = {entry: newest.read(entry) for entry in newest.manifest.files}
    tensors = safetensors.torch.load(contents[file])
    tensors[name].view(-1)[-1] = value
    folder.save(newest.step, {**contents, file: safetensors.torch.save(tensors)})


def go_on(workshop: Any, run: Path) -> None:
    list(train(TrainRequest(workshop.configure(limits__max_steps=15), run)))


def begin_with(workshop: Any, run: Path) -> None:
    list(train(TrainRequest(workshop.configure(limits__max_steps=2), run.with_name("new"), init_from=run)))


USES: dict[str, Any] = {
    "translate": lambda workshop, run: load_run(run, device="cpu", checkpoint="last"),
    "continue": go_on,
    "--init-from": begin_with,
    "average": lambda workshop, run: average_run(run, None, []),
}


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("use", USES)
def test_weights_that_are_not_finite_are_refused(
    workshop: Any, trained: Path, tmp_path: Path, use: str, value: float
) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "best").unlink()
    spoil(run, "model.safetensors", "output.bias", value)
    with pytest.raises(RunError, match=r"not finite.*'output\.bias'|'output\.bias'.*not finite"):
        USES[use](workshop, run)
    assert not (run / "averaged").exists()


@pytest.mark.parametrize("kind", ["exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("value", [NAN, INF])
def test_moments_that_are_not_finite_are_refused(
    workshop: Any, trained: Path, tmp_path: Path, kind: str, value: float
) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    spoil(run, "optimizer.safetensors", f"{kind}.output.bias", value)
    with pytest.raises(RunError, match=rf"optimizer contains non-finite values in '{kind}\.output\.bias'"):
        go_on(workshop, run)
    load_run(run, device="cpu", checkpoint="last")
