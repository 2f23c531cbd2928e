"""Event files: what the run reported, once each, also after going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnkit.training.records import EvaluationRecord

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def test_event_files_hold_each_step_once(workshop: Any, tmp_path: Path) -> None:
    config = workshop.configure(tensorboard=True, limits__max_steps=40)
    workshop.train(config, tmp_path / "run", stops=[12])
    found = accumulators.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.step for event in found.Scalars("train/loss")] == [10, 20, 30, 40]
    assert [event.step for event in found.Scalars("dev/bleu")] == [5, 10, 15, 20, 25, 30, 35, 40]


def test_what_was_written_past_the_place_of_going_on_is_forgotten(tmp_path: Path) -> None:
    """As after a kill: steps were reported that no checkpoint holds."""
    from attnkit.engine.tensorboard import TensorBoardLogger

    for first, last in ((0, 40), (20, 60)):
        board = TensorBoardLogger(tmp_path, first)
        for step in range(first + 10, last + 1, 10):
            board.add(EvaluationRecord(step, 1.0, {"bleu": float(first)}, False))
        board.close()
    found = accumulators.EventAccumulator(str(tmp_path)).Reload().Scalars("dev/bleu")
    assert [(event.step, event.value) for event in found] == [(10, 0), (20, 0), (30, 20), (40, 20), (50, 20), (60, 20)]
