"""One revision of attnkit for durability_cost.py: trains so many steps each time it is asked to, and reports.

    python durability_worker.py CORPUS RUN STEPS THREADS

It first says which operators one training step runs, counted by the profiler.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from peers import Conversation

PROFILED = 5
"""The step whose operators are counted: the first ones set things up."""


def operators(steps: Any) -> dict[str, int]:
    """Return how often each operator ran in the step that is next."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        next(steps)
    counted: Counter[str] = Counter()
    for event in profile.key_averages():
        if event.key.startswith(("aten::", "mkldnn::")):
            counted[event.key] += event.count
    return dict(counted)


def main() -> None:
    """Train and take turns until the input ends."""
    talk = Conversation()
    corpus, run, n_steps, threads = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

    import attnkit
    from attnkit.engine.resolve import resolve
    from attnkit.tasks.translation.task import TrainRequest, train
    from attnkit.training.records import StepRecord

    names = {"data.src": "train.en", "data.tgt": "train.fr", "data.valid_src": "valid.en", "data.valid_tgt": "valid.fr"}
    flags: dict[str, Any] = {key: [str(corpus / name)] for key, name in names.items()}
    sets = ["limits.max_epochs=1000000", "evaluation.every_epochs=1000000", "checkpoints.save_every=100"]
    config = resolve({**flags, "threads": threads}, sets=sets, preset_name="tiny").config
    steps = (event for event in train(TrainRequest(config, run)) if isinstance(event, StepRecord))
    for _ in range(PROFILED - 1):
        next(steps)
    talk.reply({"operators": operators(steps), "source": attnkit.__file__})
    while talk.listen() is not None:
        tokens, started = 0, time.perf_counter()
        for _ in range(n_steps):
            tokens += next(steps).n_tokens
        talk.reply({"tokens": tokens, "seconds": time.perf_counter() - started})


if __name__ == "__main__":
    main()
