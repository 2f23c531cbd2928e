"""Two processes pretrain what one does, whatever is guessed, and one continues where two have stopped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from rank_server import start

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_run_config

# Adam would turn rounding into steps where the gradient is zero if eps did not drown it. How long the rate rises would
# hang on the limit, which differs here.
CHANGES: dict[str, Any] = {
    **{"limits__max_steps": 8, "evaluation": {"every_steps": 4}, "optimization__schedule": "constant"},
    "optimization__warmup_steps": 0,
    **{"model__dropout": 0.0, "model__attention_dropout": 0.0, "optimization__eps": 1e-3},
}


def call(folder: Path) -> None:
    """Be a rank that calls ``attnkit``."""
    from attnkit.cli.main import main

    sys.argv = ["attnkit", *json.loads((folder / "arguments.json").read_text())]
    main()


def weights(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = safetensors.torch.load_file(run / "checkpoints/step-8/model.safetensors")
    return found


def scores(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [record for record in records if record["kind"] == "evaluation"]
    return [{key: value for key, value in record.items() if not isinstance(value, str)} for record in found]


SKIPPED: dict[str, Any] = {"model__layer_dropout": 0.5}  # all ranks skip the same layers
CASES: list[tuple[str, bool, dict[str, Any]]] = [
    *((name, sharded, {}) for name in ("masked tokens", "pairs", "next words") for sharded in (False, True)),
    ("replaced tokens", False, {}),
    *((name, sharded, SKIPPED) for name in ("pairs, two layers", "next words") for sharded in (False, True)),
]


@pytest.mark.parametrize(("name", "sharded", "own"), CASES)
def test_two_processes_pretrain_what_one_does(
    workshop: Any, tmp_path: Path, name: str, sharded: bool, own: dict[str, Any]
) -> None:
    """Four steps by two, each with all weights or with its share (FSDP2), then four by one."""
    for steps, world in ((4, 2), (8, 1)):
        folder = tmp_path / str(world)
        folder.mkdir()
        changes = {**CHANGES, **own, "limits__max_steps": steps, "fsdp": sharded and world > 1}
        arguments = workshop.task_arguments(name, tmp_path / "both", **changes)
        (folder / "arguments.json").write_text(json.dumps(arguments))
        group = start(call, world, folder)
        assert group.codes() == [0] * world, group.said(0)
    config = read_run_config(RunFolder(tmp_path / "both").checkpoint("step-4")[0])
    assert config.fsdp is sharded, "or two processes did something else than they are said to"
    workshop.train(workshop.configure_task(name, **CHANGES, **own), tmp_path / "alone")
    expected, found = weights(tmp_path / "alone"), weights(tmp_path / "both")
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert float((found[key] - tensor).norm()) <= 1e-5 * float(tensor.norm()), key
    for mine, theirs in zip(scores(tmp_path / "both"), scores(tmp_path / "alone"), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3)
