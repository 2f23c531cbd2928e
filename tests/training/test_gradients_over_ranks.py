"""Two real processes over gloo train the same model as one."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from attnkit.distributed.process_group import join_process_group

sys.path.insert(0, str(Path(__file__).parents[1] / "durability"))
from rank_server import start

N_STEPS, STOP_AT = 12, 7


def train(toy: ModuleType, rank: int, world: int, reduce: object, optimizer: str) -> dict[str, object]:
    optimization = {"ema_decay": 0.9, "optimizer": optimizer}
    config = toy.make_config(optimization=optimization, limits={"max_steps": N_STEPS}, evaluation={"every_steps": 5})
    # 65 sentences in batches of 32: the third batch is one sentence, so one rank has an empty slice.
    feed = toy.Feed(toy.make_pairs(65), size=32, accumulate=2, rank=rank, world=world)
    stopping = world == 1 or rank == 1  # only one rank is asked to stop
    here = toy.setting(config, dtype=torch.float64, feed=None, rank=rank, reduce=reduce)
    stop = lambda: stopping and here.state.step + 1 == STOP_AT  # noqa: E731
    clock = itertools.count(step=6 if rank == 0 else 999)  # rank 0's alone counts
    job = dataclasses.replace(
        here.job, feed=feed, evaluate=toy.held_out_loss, stop=stop, clock=lambda: float(next(clock))
    )
    records = toy.Setting(job, here.state).run()
    model, optimizer = here.state.weights.tensors()
    arrays = {name: tensor.numpy().copy() for name, tensor in (model | optimizer).items()}
    state = here.state
    losses = [r.loss for r in records if hasattr(r, "loss")]
    return {"arrays": arrays, "losses": losses, "why": state.finished, "minutes": state.minutes}


def train_as_rank(folder: Path) -> None:
    """Be one of two, and leave what came of it; the folder is called like the optimizer."""
    spec = importlib.util.spec_from_file_location("toy", Path(__file__).with_name("conftest.py"))
    assert spec is not None and spec.loader is not None
    toy = sys.modules["toy"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toy)
    calls: list[int] = []
    with join_process_group("cpu") as ranks:

        def reduce(tensor: torch.Tensor) -> None:
            calls.append(tensor.numel())
            ranks.reduce(tensor)

        found = train(toy, ranks.rank, ranks.world, reduce, folder.name)
    np.savez(folder / f"rank{ranks.rank}.npz", **found.pop("arrays"))
    (folder / f"rank{ranks.rank}.json").write_text(json.dumps(found | {"calls": calls}))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_two_processes_equal_one(toy: ModuleType, tmp_path: Path, optimizer: str) -> None:
    folder = tmp_path / optimizer
    folder.mkdir()
    group = start(train_as_rank, 2, folder)
    assert group.codes() == [0, 0], group.said(0)
    alone = train(toy, 0, 1, None, optimizer)
    weights = [dict(np.load(folder / f"rank{rank}.npz")) for rank in range(2)]
    reports = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert ("exp_avg_sq.mix.weight" in weights[0]) == (optimizer == "adamw")
    assert len(alone["losses"]) == STOP_AT
    for report in reports:
        assert report["why"] == alone["why"] == "stopped"
        assert report["minutes"] == alone["minutes"] == pytest.approx(STOP_AT * 0.1)
        assert report["losses"] == pytest.approx(alone["losses"], rel=1e-9)
        # A step has two exchanges: the flat gradient, and five numbers.
        assert len(report["calls"]) == 2 * STOP_AT
        assert report["calls"][1::2] == [5] * STOP_AT
    for name, expected in alone["arrays"].items():
        assert np.array_equal(weights[0][name], weights[1][name]), name
        assert np.linalg.norm(weights[0][name] - expected) <= 1e-9 * np.linalg.norm(expected), name
