"""Asked to stop at any moment, training ends as it promises, and the same command ends where a whole run does."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import pytest
import signalled

from attnkit.checkpoints.logs import read_status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.errors import StoppedError
from attnkit.tasks.translation.task import TrainingFinished, TrainRequest, ValidationFinished, train
from attnkit.training.records import StepRecord


@pytest.fixture(scope="module")
def signals() -> Any:
    return signalled.signals()


MOST_SIGNALS = 2
BLOCK, BLOCKS = 20, 5
# The last makes its vocabulary in a process of its own, which takes most of its time.
KINDS: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "transformer": ("transformer", {}, None),
    "rnn": ("rnn", {}, None),
    "vocabulary": ("transformer", {"vocabulary__kind": "bpe", "vocabulary__size": 300}, 500),
}


class Runs:
    """Whole runs of each kind, and how to start one."""

    def __init__(self, workshop: Any, signals: Any, folder: Path) -> None:
        self.workshop, self.signals = workshop, signals
        self.expected: dict[str, dict[str, bytes]] = {}
        self.seconds: dict[str, float] = {}
        for kind in KINDS:
            run = folder / kind / "run"
            self.seconds[kind] = self.done(kind, run).seconds
            self.expected[kind] = signalled.outcome(run)
        assert len(self.expected["rnn"]) >= 15

    def start(self, kind: str, run: Path, **request: Any) -> Any:
        model, changes, at_once = KINDS[kind]
        arguments = self.workshop.arguments(model, run, **signalled.RUN, **changes)
        return self.signals(*arguments, at_once=at_once, **request)

    def done(self, kind: str, run: Path) -> Any:
        ended = self.start(kind, run)
        assert ended.code == 0, ended.err
        return ended


@pytest.fixture(scope="module")
def runs(workshop: Any, signals: Any, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(workshop, signals, tmp_path_factory.mktemp("whole"))


def check(ended: Any, number: int, run: Path, before: list[int]) -> None:
    """Check how a command ended that got one signal at some moment, and what it has left."""
    folder = RunFolder(run)
    assert ended.code in (0, 75, 128 + number), (ended.code, ended.err)
    assert "Traceback" not in ended.err and "Exception" not in ended.err, ended.err
    assert not ended.alive
    assert list(run.parent.rglob(".tmp-*")) == []
    newest = folder.newest()[0] if run.exists() else None
    if ended.code == 75:
        assert newest is not None
        said = f"error: stopped at step {newest.step}; everything is saved"
        assert ended.err.splitlines()[-2:] == [said, "help: run the same command again to resume"]
        status = read_status(folder.path)
        assert status is not None and (status.state, status.step, status.exit_code) == ("stopped", newest.step, 75)
    elif ended.code:
        assert ended.err.splitlines()[-1] == "interrupted"
        status = read_status(folder.path) if run.exists() else None
        if status is not None and status.state == "finished":  # the signal came while the result was printed
            assert newest is not None and newest.step == status.step
        else:
            assert folder.steps() == before


def trial(runs: Runs, folder: Path, seed: int) -> tuple[list[int], list[str]]:
    """Stop a command again and again, then let it end; return the exit codes, and what is not as in a whole run."""
    chance = random.Random(seed)
    kind = list(KINDS)[2 if seed % 5 == 4 else seed % 2]
    run = folder / "run"
    codes: list[int] = []
    for _ in range(chance.randint(1, MOST_SIGNALS)):
        number, before = chance.choice((SIGINT, SIGTERM)), RunFolder(run).steps()
        moment = chance.random() * runs.seconds[kind]
        ended = runs.start(kind, run, signals=[(moment, number)])
        check(ended, number, run, before)
        codes.append(ended.code)
        if ended.code == 0:
            break
    runs.done(kind, run)
    found, expected = signalled.outcome(run), runs.expected[kind]
    shutil.rmtree(folder)
    return codes, [name for name in expected if found.get(name) != expected[name]]


def judge(runs: Runs, folder: Path, seeds: range) -> bool:
    """Stop runs and compare them; return whether some were stopped with a save and some without one."""
    outcomes = {seed: trial(runs, folder / str(seed), seed) for seed in seeds}
    codes = [code for ended, _ in outcomes.values() for code in ended]
    print(f"{sum(not odd for _, odd in outcomes.values())} of {len(seeds)} identical; exit codes {codes}")
    assert {seed: odd for seed, (_, odd) in outcomes.items() if odd} == {}
    return 75 in codes and bool({130, 143} & set(codes))


def test_a_stop_at_any_moment_ends_as_promised_and_changes_nothing(runs: Runs, tmp_path: Path) -> None:
    # The pace of the machine decides where the moments fall.
    assert any(judge(runs, tmp_path, range(first, first + 5)) for first in (0, 5, 10, 15))


@pytest.mark.parametrize(
    "where", ["attnkit.engine.run_state.RunState.load", "attnkit.engine.checkpointing.RunWriter._write_config"]
)
def test_a_stop_while_a_run_is_looked_through_has_its_checkpoint(
    workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """One that is to be begun anew has none, nor has one that was never begun."""
    config = workshop.configure(limits__max_steps=6, checkpoints__save_every=2)
    with pytest.raises(StoppedError):
        list(train(TrainRequest(config, tmp_path / "run", stop=lambda: True)))
    begun = RunFolder(tmp_path / "run").steps()[-1]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, interrupted)
        with pytest.raises(StoppedError, match=f"stopped at step {begun}; everything is saved"):
            list(train(TrainRequest(config, tmp_path / "run", stop=lambda: False)))
        for request in (
            TrainRequest(config, tmp_path / "new", stop=lambda: False),
            TrainRequest(config, tmp_path / "run"),
        ):
            with pytest.raises(KeyboardInterrupt):
                list(train(request))
        patch.setenv("TORCHELASTIC_RUN_ID", "restarting")  # whoever starts again what has not ended with 0
        for name, step in ("run", begun), ("new", 0):
            with pytest.raises(StoppedError):
                list(train(TrainRequest(config, tmp_path / name, stop=lambda: False)))
            status = read_status(tmp_path / name)
            assert status is not None and (status.state, status.step, status.exit_code) == ("stopped", step, 75)


def test_a_signal_while_the_end_is_told_leaves_the_run_finished(workshop: Any, tmp_path: Path) -> None:
    config = workshop.configure(limits__max_steps=3)
    for already in (False, True):
        events = train(TrainRequest(config, tmp_path / "run", stop=lambda: False))
        assert next(event for event in events if isinstance(event, TrainingFinished)).already == already
        with pytest.raises(KeyboardInterrupt):
            events.throw(KeyboardInterrupt)
        status = read_status(tmp_path / "run")
        assert status is not None and (status.state, status.exit_code) == ("finished", 0)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_100_stopped_runs(runs: Runs, tmp_path: Path, block: int) -> None:
    # Whether some stops come before the first save and some after it depends on the pace of the machine.
    firsts = (1000 * (1 + again) + block * BLOCK for again in range(3))
    assert any(judge(runs, tmp_path / str(first), range(first, first + BLOCK)) for first in firsts)


def test_a_second_signal_ends_at_once(runs: Runs, tmp_path: Path) -> None:
    """The first one comes while a save continues that would take minutes."""
    run, asleep = tmp_path / "run", tmp_path / "asleep"
    ended = runs.start(
        "rnn",
        run,
        sleep_in=("attnkit.checkpoints.run_folder", "write_checkpoint"),
        asleep=str(asleep),
        when=str(asleep),
        signals=[(0.0, SIGTERM), (0.05, SIGINT)],
    )
    assert ended.code in (130, 143) and "Traceback" not in ended.err  # two that wait are taken in either order
    runs.done("rnn", run)
    assert signalled.outcome(run) == runs.expected["rnn"]


class Asked:
    """A wish to stop that comes at one question of many."""

    def __init__(self, at: int | None = None) -> None:
        self.n, self.at = 0, at

    def __call__(self) -> bool:
        self.n += 1
        return self.n == self.at


def test_a_stop_at_any_question_abandons_what_is_under_way(workshop: Any, tmp_path: Path) -> None:
    """The questions of steps, of the batches of evaluations, and of the last one, of the average."""
    config = workshop.configure(
        limits__max_steps=6, evaluation={"every_steps": 3, "n_samples": 1}, checkpoints__average=2
    )
    whole = Asked()
    expected = list(train(TrainRequest(config, tmp_path / "whole", stop=whole)))
    n_evaluations = 3
    per_evaluation, left = divmod(whole.n - 6, n_evaluations)
    assert left == 0 and per_evaluation >= 2
    first = 3 + per_evaluation
    for at in (4, first + 4, whole.n - per_evaluation + 1, whole.n):
        run, asked, events = tmp_path / f"run-{at}", Asked(at), []
        with pytest.raises(StoppedError) as stopped:
            for event in train(TrainRequest(config, run, stop=asked)):
                events.append(event)
        assert asked.n == at, "nothing more is asked, and so nothing more done"
        assert stopped.value.what.startswith(f"stopped at step {3 if at <= first else 6};")
        n_scored = sum(isinstance(event, ValidationFinished) for event in events)
        assert n_scored == {4: 0, first + 4: 1}.get(at, 2)
        assert RunFolder(run).newest()[0] is not None and not (run / "averaged").exists()
        last = list(train(TrainRequest(config, run)))
        assert isinstance(last[-1], TrainingFinished) and last[-1] == expected[-1]
        for name in ("metrics.jsonl", "best", "averaged/model.safetensors", "checkpoints/step-6/optimizer.safetensors"):
            assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), (at, name)


def test_a_stop_comes_within_one_step(workshop: Any, tmp_path: Path) -> None:
    asked = Asked(4)
    events = []
    with pytest.raises(StoppedError):
        for event in train(TrainRequest(workshop.configure(), tmp_path / "run", stop=asked)):
            events.append(event)
    assert [event.step for event in events if isinstance(event, StepRecord)] == [1, 2, 3, 4]


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_before_training_the_code_tells_whether_anything_is_saved(
    workshop: Any, signals: Any, tmp_path: Path, number: int
) -> None:
    run, asleep = tmp_path / "run", tmp_path / "asleep"
    opening = {
        "sleep_in": ("attnkit.tasks.translation.task", "open_prepared"),
        "asleep": str(asleep),
        "when": str(asleep),
        "signals": [(0.0, number)],
    }
    whole = workshop.arguments("transformer", run, **signalled.RUN)
    ended = signals(*whole, **opening)
    check(ended, number, run, [])
    assert ended.code == 128 + number
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["step"], status["exit_code"]) == ("stopped", 0, 128 + number)

    assert signals(*workshop.arguments("transformer", run, **{**signalled.RUN, "limits__max_steps": 3})).code == 0
    asleep.unlink()
    ended = signals(*whole, **opening)
    check(ended, number, run, [3])
    assert ended.code == 75
