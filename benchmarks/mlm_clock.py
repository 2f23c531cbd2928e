"""A training command of attnkit as it is, noting when its first step began and when each ended.

    PYTHONPATH=src python benchmarks/mlm_clock.py TIMES.json pretrain-mlm TEXT -o RUN

The file has seconds of one clock. A step ends when the loop gives its record: it has waited for the gradient by
then, not for the update.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnkit.cli.main import main
from attnkit.engine import gradient_session as course
from attnkit.training.records import StepRecord

_fit = course.fit


class Clock:
    """The training loop with a clock beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fit(self, *arguments: Any) -> Iterator[Any]:
        """Train as the loop does."""
        times = [time.perf_counter()]
        for record in _fit(*arguments):
            if isinstance(record, StepRecord):
                times.append(time.perf_counter())
            yield record
        self.path.write_text(json.dumps(times))


if __name__ == "__main__":
    course.fit = Clock(Path(sys.argv[1])).fit  # type: ignore[assignment]
    sys.argv[:2] = ["attnkit"]
    main()
