"""Several processes as one: silence and death among them, any number of them after a save, their threads."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from rank_server import STOPPED, Group, start

from attnkit.errors import StoppedError
from attnkit.tasks.translation.task import TrainRequest, train

SILENCE = 3.0
"""Seconds that make a rank count as dead here."""
FIRST, LATER = 10, 50
"""Steps before the save, and after it."""


# --- what ranks do


def wait_for_each_other(folder: Path) -> None:
    """Rank 0 works for a long time, rank 1 for a while; rank 2 waits."""
    from attnkit.distributed.process_group import join_process_group

    with join_process_group("cpu", SILENCE) as ranks:
        with ranks.synchronized():
            time.sleep((2.5, 1.5, 0.0)[ranks.rank] * SILENCE)
        with ranks.synchronized():
            pass


def stop_in_a_block(folder: Path) -> None:
    """Rank 0 is stopped while the other waits for it."""
    from attnkit.distributed.process_group import join_process_group

    with join_process_group("cpu", SILENCE) as ranks, ranks.synchronized():
        if ranks.rank == 0:
            os.kill(os.getpid(), signal.SIGSTOP)


def stop_while_another_works(folder: Path) -> None:
    """Rank 1 is stopped while rank 0 works for long: as long as it works it cannot tell."""
    from attnkit.distributed.process_group import join_process_group

    with join_process_group("cpu", SILENCE) as ranks, ranks.synchronized():
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(2 * SILENCE)


def stop_in_a_step(folder: Path) -> None:
    """Rank 1 is stopped where all exchange something."""
    import torch

    from attnkit.distributed.process_group import join_process_group

    with join_process_group("cpu", SILENCE) as ranks:
        ranks.reduce(torch.ones(3))
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        ranks.reduce(torch.ones(3))


def die_in_a_block(folder: Path) -> None:
    """Rank 0 is killed while the others wait for it, for an hour if need be."""
    from attnkit.distributed.process_group import join_process_group

    with join_process_group("cpu", 3600) as ranks, ranks.synchronized():
        if ranks.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def share_the_cpus(folder: Path) -> None:
    """On a machine of twelve CPUs, then of one."""
    import torch

    from attnkit.runtime.devices import set_threads

    found = []
    for n_cpus, threads in (12, None), (12, 5), (1, None):
        os.sched_getaffinity = lambda pid, n=n_cpus: set(range(n))
        set_threads(threads)
        found.append(torch.get_num_threads())
    (folder / f"threads-{os.environ['RANK']}.json").write_text(json.dumps(found))


def train_in_float64(folder: Path) -> None:
    """Go on from a save to its last step; without one, make one on the way. Rank 0 leaves the losses."""
    import dataclasses

    import safetensors.torch
    import torch

    from attnkit.config import load_yaml, validate
    from attnkit.data.loader import DataPosition
    from attnkit.distributed.process_group import join_process_group
    from attnkit.engine.gradient_session import build_job
    from attnkit.models.translation import build_model
    from attnkit.tasks.translation.config import TranslationConfig
    from attnkit.tasks.translation.data import open_prepared
    from attnkit.tasks.translation.evaluate import TranslationEvaluation
    from attnkit.tasks.translation.task import TASK
    from attnkit.training.flat_optimizer import FlatParameterStore
    from attnkit.training.loop import fit
    from attnkit.training.state import TrainState

    run = folder.parent / "run"
    config = validate(TranslationConfig, load_yaml(run / "config.yaml"))
    prepared = open_prepared(run / "data")
    torch.manual_seed(1)
    size = prepared.vocabularies.src.vocab_size
    model: Any = build_model(config.model, size, size).double()  # type: ignore[attr-defined]
    state = TrainState(FlatParameterStore(model, config.optimization), DataPosition())
    saved = folder.parent / "saved"
    if folder.name != "whole":
        tensors = (safetensors.torch.load_file(saved / f"{name}.safetensors") for name in ("model", "optimizer"))
        state.restore(*tensors, json.loads((saved / "counters.json").read_text()))
    with join_process_group("cpu") as ranks:
        evaluation = TranslationEvaluation(prepared, config.decoding, torch.device("cpu"), 0)
        job = dataclasses.replace(build_job(TASK, config, model, prepared, evaluation, ranks), evaluate=None)
        losses = []
        for record in fit(job, state):
            losses.append(record.loss)
            if record.step == FIRST and ranks.rank == 0:
                leave(saved, state)
        leave(folder / str(ranks.rank), state)
        (folder / f"losses-{ranks.rank}.json").write_text(json.dumps(losses))


def leave(folder: Path, state: Any) -> None:
    import safetensors.torch

    folder.mkdir()
    for name, tensors in zip(("model", "optimizer"), state.weights.tensors(), strict=True):
        safetensors.torch.save_file(tensors, folder / f"{name}.safetensors")
    (folder / "counters.json").write_text(json.dumps(state.counters() | {"minutes": 0.0}))


# --- what comes of it


@pytest.fixture(scope="module", autouse=True)
def silent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Group]:
    """All groups in which somebody waits for long, at the same time: asked last, they take the others' time."""
    folder = tmp_path_factory.mktemp("silent")
    cases = {wait_for_each_other: 3, stop_in_a_block: 2, stop_while_another_works: 2, stop_in_a_step: 2}
    return {function.__name__: start(function, world, folder / function.__name__) for function, world in cases.items()}


def test_a_dead_rank_ends_the_others_at_once(tmp_path: Path) -> None:
    """Within the server's limit, that is, which is far less than an hour."""
    group = start(die_in_a_block, 3, tmp_path)
    assert group.codes() == [-9, 5, 5]
    assert "another process of this run ended or is unreachable" in group.said(1)


@pytest.mark.parametrize("kind", ["transformer", pytest.param("rnn", marks=pytest.mark.slow)])
def test_a_save_goes_on_at_any_number_of_ranks(workshop: Any, tmp_path: Path, kind: str) -> None:
    changes = {"limits__max_steps": FIRST + LATER, "model__dropout": 0.0, "optimization__ema_decay": 0.9}
    config = workshop.configure(kind, **changes)
    with pytest.raises(StoppedError):  # it leaves the encoded text
        list(train(TrainRequest(config, tmp_path / "run", stop=lambda: True)))
    assert start(train_in_float64, 2, tmp_path / "whole").codes() == [0, 0], (tmp_path / "whole/rank-0.log").read_text()
    groups = {world: start(train_in_float64, world, tmp_path / str(world)) for world in (1, 2, 4)}
    whole = losses(tmp_path / "whole")[FIRST:]
    assert len(whole) == LATER and len(set(whole)) == LATER
    for world, group in groups.items():
        assert group.codes() == [0] * world, group.said(0)
        assert losses(group.folder) == (whole if world == 2 else pytest.approx(whole, rel=1e-9)), world
        alike = {(group.folder / f"losses-{rank}.json").read_bytes() for rank in range(world)}
        assert len(alike) == 1 and len({contents(group.folder / str(rank)) for rank in range(world)}) == 1, world
    assert contents(tmp_path / "2/0") == contents(tmp_path / "whole/0")
    assert contents(tmp_path / "1/0") != contents(tmp_path / "whole/0"), "otherwise 1e-9 says nothing"


@pytest.mark.parametrize(("world", "expected"), [(1, [1, 5, 5]), (2, [6, 5, 1]), (3, [4, 5, 1])])
def test_ranks_share_the_cpus_unless_told(tmp_path: Path, world: int, expected: list[int]) -> None:
    """The server has torch compute with one thread, as torchrun does; a process alone keeps what it finds."""
    group = start(share_the_cpus, world, tmp_path)
    assert group.codes() == [0] * world, group.said(0)
    found = [json.loads((tmp_path / f"threads-{rank}.json").read_text()) for rank in range(world)]
    assert found == [expected] * world


def test_a_rank_that_works_for_long_is_waited_for(silent: dict[str, Group]) -> None:
    group = silent["wait_for_each_other"]
    assert group.codes() == [0, 0, 0], [group.said(rank) for rank in range(3)]


@pytest.mark.parametrize(
    ("function", "codes"),
    [("stop_in_a_block", [STOPPED, 5]), ("stop_while_another_works", [5, STOPPED]), ("stop_in_a_step", [5, STOPPED])],
)
def test_a_silent_rank_ends_the_others(silent: dict[str, Group], function: str, codes: list[object]) -> None:
    group = silent[function]
    assert group.codes() == codes
    told = group.said(codes.index(5))
    assert f"PeerLostError: no response from another process of this run for {SILENCE:g} seconds" in told


def losses(folder: Path) -> list[float]:
    found: list[float] = json.loads((folder / "losses-0.json").read_text())
    return found


def contents(folder: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(folder.iterdir()))
