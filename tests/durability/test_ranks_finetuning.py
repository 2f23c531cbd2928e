"""Two processes fine-tune what one does: layers at rates of their own, some frozen, labels that weigh differently."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from rank_server import start

# As for pretraining: eps drowns what Adam would make of rounding.
SETS = ["optimization.schedule=constant", "optimization.warmup_steps=0", "optimization.eps=1e-3", "model.dropout=0"]
SETS += [
    "model.attention_dropout=0",
    "optimization.batch_tokens=300",
    "evaluation.every_steps=3",
    "finetuning.freeze_layers=1",
]
SETS += ["finetuning.class_weights=balanced", "optimization.learning_rate=0.01"]
STEADY = ["--precision", "float32", "--device", "cpu", "--threads", "1", *(w for one in SETS for w in ("--set", one))]


def call(folder: Path) -> None:
    """Be a rank that calls ``attnkit``."""
    from attnkit.cli.main import main

    sys.argv = ["attnkit", *json.loads((folder / "arguments.json").read_text())]
    main()


@pytest.mark.parametrize("sharded", [False, True])
def test_two_processes_finetune_what_one_does(workshop: Any, pretrained: Path, tmp_path: Path, sharded: bool) -> None:
    """Three steps by two, each with all weights or with its share (FSDP2), and three by one, beside six by one."""
    for name, steps, world in (("both", 3, 2), ("both", 6, 1), ("alone", 6, 1)):
        folder = tmp_path / f"{name}-{steps}"
        folder.mkdir()
        train = [
            "finetune",
            str(pretrained),
            "--task",
            "text-classification",
            "--train",
            str(workshop.file("table.tsv")),
        ]
        words = [*train, "-o", str(tmp_path / name), "--max-steps", str(steps), *STEADY]
        words += ["--set", f"fsdp={sharded and world > 1}".lower()]
        (folder / "arguments.json").write_text(json.dumps(words))
        group = start(call, world, folder)
        assert group.codes() == [0] * world, group.said(0)
    both, alone = (
        safetensors.torch.load_file(tmp_path / name / "checkpoints/step-6/model.safetensors")
        for name in ("both", "alone")
    )
    assert both.keys() == alone.keys()
    for key, tensor in alone.items():
        assert float((both[key] - tensor).norm()) <= 1e-5 * float(tensor.norm()), key
