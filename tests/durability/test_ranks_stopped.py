"""A signal to one of two processes, at any moment: both end alike, and the same command ends where it would have."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rank_server import Group, start

N_STEPS = 30
CHANGES: dict[str, Any] = {
    "limits__max_steps": N_STEPS,
    "checkpoints__save_every": 4,
    "evaluation": {"every_steps": 7, "n_samples": 1},
    "rank_timeout": 5.0,  # no torchrun is here to end a process whose fellow has ended before they met
}


def call_train(folder: Path) -> None:
    """Be a rank of the command in ``call.json``, to which a signal comes if it is the one named there."""
    from attnkit.cli.main import main

    call = json.loads((folder / "call.json").read_text())
    if call["rank"] == int(os.environ["RANK"]):

        def send() -> None:
            time.sleep(call["seconds"])
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=send, daemon=True).start()
    sys.argv = ["attnkit", *call["arguments"]]
    main()


def stop_the_one_that_waits(folder: Path) -> None:
    """Rank 0 works for a day, rank 1 waits for it and gets a signal; both raise for one, as commands do."""
    from attnkit.distributed.process_group import join_process_group
    from attnkit.runtime.signals import Signals

    with Signals(), join_process_group("cpu") as ranks, ranks.synchronized():
        if ranks.rank == 0:
            time.sleep(86400)
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()


def stop_between_blocks(folder: Path) -> None:
    """Rank 1 gets a signal where the other would not know of it, and does not end before it does."""
    from attnkit.distributed.process_group import join_process_group
    from attnkit.runtime.signals import Signals

    with Signals(), join_process_group("cpu") as ranks:
        with ranks.synchronized():
            pass
        if ranks.rank == 1:
            signal.raise_signal(signal.SIGINT)
        (folder / f"came-{ranks.rank}").touch()
        with ranks.synchronized():
            time.sleep(86400 if ranks.rank == 0 else 0)


class Evaluating:
    """An evaluation that takes a day unless it is asked to stop."""

    def __init__(self, ranks: Any) -> None:
        import torch

        self.ranks, self.device = ranks, torch.device("cpu")

    def __call__(self, model: object) -> None:
        while not self.ranks.stop_requested():
            time.sleep(0.01)


def stop_an_evaluation(folder: Path) -> None:
    """Rank 0 evaluates; rank 1 gets a signal."""
    from attnkit.distributed.process_group import join_process_group
    from attnkit.engine.parallel import broadcast_metrics
    from attnkit.runtime.signals import StopRequests

    with StopRequests() as stop, join_process_group("cpu", stop=stop) as ranks:
        stop.defer()
        if ranks.rank == 1:
            threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
        evaluation: Any = Evaluating(ranks)
        assert broadcast_metrics(evaluation, ranks, ("loss",))(evaluation) is None


def wish_an_evaluation_to_stop(folder: Path) -> None:
    """Rank 0 evaluates; rank 1 is asked to stop by the program that it is part of, which has no use for signals."""
    from attnkit.distributed.process_group import join_process_group
    from attnkit.engine.parallel import broadcast_metrics

    main = threading.get_ident()

    def stop() -> bool:
        assert threading.get_ident() == main, "the program is asked in its own thread"
        return os.environ["RANK"] == "1" and time.monotonic() > until

    until = time.monotonic() + 1
    with join_process_group("cpu", stop=stop) as ranks:
        evaluation: Any = Evaluating(ranks)
        assert broadcast_metrics(evaluation, ranks, ("loss",))(evaluation) is None


def interrupt_the_caller(folder: Path) -> None:
    """A signal between the last block and the end of the group is not lost on whoever continues."""
    from attnkit.distributed.process_group import join_process_group

    with join_process_group("cpu"):
        signal.raise_signal(signal.SIGINT)
        (folder / f"came-{os.environ['RANK']}").touch()
    time.sleep(86400)


def call(workshop: Any, folder: Path, rank: int | None = None, seconds: float = 0.0) -> Group:
    arguments = workshop.arguments("transformer", folder / "run", **CHANGES)
    folder.mkdir(exist_ok=True)
    (folder / "codes.json").unlink(missing_ok=True)
    (folder / "call.json").write_text(json.dumps({"arguments": arguments, "rank": rank, "seconds": seconds}))
    return start(call_train, 2, folder)


def outcome(run: Path) -> dict[str, bytes]:
    """Return the bytes of all that must not depend on interruptions."""
    names = ("model.safetensors", "optimizer.safetensors")
    found = {name: (run / f"checkpoints/step-{N_STEPS}" / name).read_bytes() for name in names}
    return found | {name: (run / name).read_bytes() for name in ("metrics.jsonl", "best")}


def stop_at_random(workshop: Any, folder: Path, n: int) -> dict[str, int]:
    """Stop one of two so many times, continue, and compare; return how many ended in which state."""
    began = 0.0
    for name in ("first", "whole"):  # the first has to wait for the server
        began = time.monotonic()
        whole = call(workshop, folder / name)
        assert whole.codes() == [0, 0], whole.said(0)
    chance, seconds, states = random.Random(1), time.monotonic() - began, dict[str, int]()
    for trial in range(n):
        at = folder / str(trial)
        group = call(workshop, at, trial % 2, chance.uniform(0, seconds))
        codes, status = group.codes(), at / "run/status.json"
        state = json.loads(status.read_text())["state"] if status.exists() else "not begun"
        states[state] = states.get(state, 0) + 1
        # Until they have met a signal ends a process as any other, and the other one with it.
        assert (codes == [0, 0]) == (state in ("stopped", "finished")), (trial, codes, state, group.said(0))
        if state == "stopped":
            steps = [int(path.name.removeprefix("step-")) for path in (at / "run/checkpoints").glob("*")]
            assert max(steps, default=0) == json.loads(status.read_text())["step"]
        again = call(workshop, at)
        assert again.codes() == [0, 0], again.said(0)
        assert outcome(at / "run") == outcome(folder / "whole/run"), trial
    return states


def test_a_signal_to_a_rank_that_waits_ends_the_one_at_work(tmp_path: Path) -> None:
    group = start(stop_the_one_that_waits, 2, tmp_path)
    assert group.codes() == [143, 143], group.said(0) + group.said(1)


def test_a_signal_between_blocks_waits_for_the_next(tmp_path: Path) -> None:
    group = start(stop_between_blocks, 2, tmp_path)
    assert group.codes() == [143, 143], group.said(0) + group.said(1)
    assert (tmp_path / "came-1").exists()


@pytest.mark.parametrize("function", [stop_an_evaluation, wish_an_evaluation_to_stop])
def test_a_rank_that_waits_and_is_asked_to_stop_ends_an_evaluation(tmp_path: Path, function: Any) -> None:
    group = start(function, 2, tmp_path)
    assert group.codes() == [0, 0], group.said(0) + group.said(1)


def test_a_signal_that_waited_comes_when_the_group_is_left(tmp_path: Path) -> None:
    group = start(interrupt_the_caller, 2, tmp_path)
    assert group.codes() == [130, 130], group.said(0) + group.said(1)
    assert (tmp_path / "came-0").exists() and (tmp_path / "came-1").exists()


@pytest.mark.slow
def test_a_signal_to_one_of_two_at_any_moment(workshop: Any, tmp_path: Path) -> None:
    states = stop_at_random(workshop, tmp_path, 10)
    print(states)
    assert states["stopped"] >= 2
