"""Records of a training: losses, scores, speed, samples by step. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnkit.checkpoints.logs import read_records
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.events import Sample
from attnkit.errors import RunError

_NO_SCORES = ("kind", "step", "epoch")


@dataclass(frozen=True)
class RunHistory:
    """Records of a run by step, of ``metrics.jsonl`` and ``timings.jsonl``."""

    steps: list[int]  #: steps whose training loss is recorded
    losses: list[float]  #: training loss at each of ``steps``; NaN where it was not finite
    learning_rates: list[float]  #: at each of ``steps``
    scores: Mapping[str, list[tuple[int, float]]]
    """Development score -> (step, value) of each evaluation; BLEU, chrF, accuracy and F1 in percent, losses in nats."""
    samples: list[tuple[int, list[Sample]]]  #: step and (input, reference, prediction) of each evaluation that has any
    minutes: list[tuple[int, float]]  #: (step, minutes of training so far) at each evaluation
    speeds: list[tuple[int, float]]  #: (step, tokens per second since the evaluation before), evaluations included


def read_history(path: Path) -> RunHistory:
    """Return the records of a run, finished or not.

    Raises:
        RunError: the folder is not a run, or has no records.
    """
    folder = RunFolder(path)
    if not folder.metrics_path.exists():
        raise RunError("no records of a training run", where=str(folder.metrics_path), help="name the folder of a run")
    steps, losses, rates = [], [], []
    scores: dict[str, list[tuple[int, float]]] = {}
    samples: list[tuple[int, list[Sample]]] = []
    for record in read_records(folder.metrics_path):
        step = int(record["step"])
        if record.get("kind") == "evaluation":
            for name, value in record.items():
                if name not in _NO_SCORES and isinstance(value, int | float | str):
                    scores.setdefault(name, []).append((step, float(value)))
        elif record.get("kind") == "samples":
            samples.append((step, [(str(text), str(gold), str(found)) for text, gold, found in record["samples"]]))
        elif "loss" in record:
            steps.append(step)
            losses.append(float(record["loss"]))
            rates.append(float(record["learning_rate"]))
    return RunHistory(steps, losses, rates, scores, samples, *_read_timings(folder.timings_path))


def _read_timings(path: Path) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Return minutes and tokens per second by step; empty without a log of times."""
    minutes: list[tuple[int, float]] = []
    speeds: list[tuple[int, float]] = []
    before = 0.0, 0
    for record in read_records(path) if path.exists() else ():
        if "minutes" in record and "tokens" in record:  # word vectors record seconds
            now, step = (float(record["minutes"]), int(record["tokens"])), int(record["step"])
            minutes.append((step, now[0]))
            if now[0] > before[0]:
                speeds.append((step, (now[1] - before[1]) / (60 * (now[0] - before[0]))))
            before = now
    return minutes, speeds
