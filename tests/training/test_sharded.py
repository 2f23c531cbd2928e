"""Ranks that hold a share of the weights each (FSDP2) train the same model as one that holds all."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from attnkit.distributed.process_group import ProcessGroup, join_process_group

sys.path.insert(0, str(Path(__file__).parents[1] / "durability"))
from rank_server import start

pytestmark = pytest.mark.slow

N_STEPS, HALF = 8, 4
RATES = {"embedding.weight": 0.5, "norm.bias": 0.25}


def train(toy: ModuleType, ranks: ProcessGroup, folder: Path, first: int, last: int) -> dict[str, Any]:
    """Train from step ``first``, where ``folder`` has what an earlier call has left, to ``last``; leave it there."""
    from attnkit.training.flat_optimizer import FlatParameterStore
    from attnkit.training.fsdp import FsdpParameterStore
    from attnkit.training.state import TrainState

    config = toy.make_config(optimization={"ema_decay": 0.9}, limits={"max_steps": last}, evaluation={"every_steps": 3})
    feed = toy.Feed(toy.make_pairs(65), size=32, accumulate=2, rank=ranks.rank, world=ranks.world, even=True)
    here = toy.setting(config, dtype=torch.float64, feed=None, rank=ranks.rank)
    model = toy.Toy().to(torch.float64)
    model.mix.bias.requires_grad_(False)
    if ranks.world > 1:
        state = TrainState(FsdpParameterStore(model, [model.mix], config.optimization, rates=RATES), toy.Place())
    else:
        state = TrainState(FlatParameterStore(model, config.optimization, rates=RATES), toy.Place())
    if first:
        saved = (safetensors.torch.load_file(folder / f"{name}-{first}.safetensors") for name in ("model", "optimizer"))
        state.restore(*saved, json.loads((folder / f"counters-{first}.json").read_text()))
    scores: list[float] = []

    def evaluate(model: Any) -> dict[str, float]:
        found = torch.zeros((), dtype=torch.float64)
        if ranks.rank == 0:
            found += toy.held_out_loss(model)["loss"]
        ranks.reduce(found)
        scores.append(float(found))
        return {"loss": float(found)}

    job = dataclasses.replace(
        here.job, model=model, loss=toy.Loss(model), feed=feed, evaluate=evaluate,
        reduce=ranks.reduce if ranks.world > 1 else None,
    )  # fmt: skip
    records = toy.Setting(job, state).run()
    shares = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel() for p in model.parameters())
    tensors = state.weights.tensors()
    if ranks.rank == 0:
        for name, part in zip(("model", "optimizer"), tensors, strict=True):
            whole = {key: tensor.contiguous() for key, tensor in part.items()}
            safetensors.torch.save_file(whole, folder / f"{name}-{last}.safetensors")
        (folder / f"counters-{last}.json").write_text(json.dumps(state.counters()))
    ranks.reduce(torch.zeros(()))  # nobody reads what is not yet written
    steps = [r for r in records if hasattr(r, "loss")]
    said = {"losses": [r.loss for r in steps], "norms": [r.grad_norm for r in steps], "scores": scores}
    return said | {
        "held": shares,
        "saved": sum(map(len, tensors)),
        "idle": feed.batch_at(toy.Place(0, 2))[0].n_padding_batches,
    }


def load_toy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("toy", Path(__file__).with_name("conftest.py"))
    assert spec is not None and spec.loader is not None
    toy = sys.modules["toy"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toy)
    return toy


def as_rank(folder: Path) -> None:
    """Train half of the way twice, the second time from the save of the first; then continue from one rank's half."""
    toy = load_toy()
    with join_process_group("cpu") as ranks:
        found = [train(toy, ranks, folder, 0, HALF), train(toy, ranks, folder, HALF, N_STEPS)]
        found.append(train(toy, ranks, folder / "alone", HALF, N_STEPS))
    (folder / f"rank{ranks.rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any], list[Any]]:
    """Where two ranks have left what they have saved, what they said, and what one rank that holds all said."""
    folder = tmp_path_factory.mktemp("sharded")
    (folder / "alone").mkdir()
    toy = load_toy()
    alone = [
        train(toy, ProcessGroup(), folder / "alone", 0, HALF),
        train(toy, ProcessGroup(), folder / "alone", HALF, N_STEPS),
    ]
    (folder / "alone" / f"model-{N_STEPS}.safetensors").rename(folder / "expected.safetensors")
    (folder / "alone" / f"optimizer-{N_STEPS}.safetensors").rename(folder / "expected-optimizer.safetensors")
    group = start(as_rank, 2, folder)
    assert group.codes() == [0, 0], group.said(0)
    return folder, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)], alone


def test_two_shares_train_as_one_whole(trained: tuple[Path, list[Any], list[Any]]) -> None:
    folder, ranks, alone = trained
    expected = [part[name] for name in ("losses", "norms", "scores") for part in alone]
    for rank in ranks:
        for again in (rank[:2], [rank[0], rank[2]]):  # the other half from their own save, and from one rank's
            found = [part[name] for name in ("losses", "norms", "scores") for part in again]
            for one, other in zip(found, expected, strict=True):
                assert one == pytest.approx(other, rel=1e-9)
    for name, file in (("model", "expected"), ("optimizer", "expected-optimizer")):
        found = safetensors.torch.load_file(folder / f"{name}-{N_STEPS}.safetensors")
        wanted = safetensors.torch.load_file(folder / f"{file}.safetensors")
        assert found.keys() == wanted.keys()
        for key, tensor in wanted.items():
            assert np.linalg.norm(found[key] - tensor) <= 1e-9 * max(1e-3, np.linalg.norm(tensor)), key


def test_each_rank_holds_its_share_and_one_saves_all(trained: tuple[Path, list[Any], list[Any]]) -> None:
    _, ranks, alone = trained
    whole = alone[0]["held"]
    assert [rank[0]["held"] for rank in ranks] == pytest.approx([whole / 2, whole / 2], rel=0.05)
    assert sum(rank[0]["held"] for rank in ranks) == whole
    assert [rank[0]["saved"] for rank in ranks] == [alone[0]["saved"], 0]
    assert [rank[0]["idle"] for rank in ranks] == [0, 1]  # of one sentence in four slices, one rank has none


def test_one_goes_on_from_what_two_have_saved(trained: tuple[Path, list[Any], list[Any]]) -> None:
    folder, _, alone = trained
    found = train(load_toy(), ProcessGroup(), folder, HALF, N_STEPS)
    assert found["losses"] == pytest.approx(alone[1]["losses"], rel=1e-9)
