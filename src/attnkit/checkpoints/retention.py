"""Which checkpoints may go: a pure function of steps and scores."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Retention:
    """What to keep: the newest few, and the few with the best scores. A checkpoint may be both."""

    keep_last: int = 3
    keep_best: int = 1
    lower_is_better: bool = False
    metrics: Mapping[int, float] = field(default_factory=dict)
    """Step to score. A checkpoint without a finite score is never among the best."""


def removable(steps: Collection[int], retention: Retention, protected: Collection[int]) -> list[int]:
    """Return the steps that may be removed, oldest first; never the newest nor a protected one.

    Of equal scores the newer is the better.

    >>> removable([1, 2, 3, 4], Retention(keep_last=1, keep_best=1, metrics={1: 30.0, 2: 31.5}), protected=[])
    [1, 3]
    """
    sign = -1.0 if retention.lower_is_better else 1.0
    scored = [step for step in steps if math.isfinite(retention.metrics.get(step, math.nan))]
    best = sorted(scored, key=lambda step: (sign * retention.metrics[step], step), reverse=True)
    last = sorted(steps, reverse=True)
    kept = {*last[: max(retention.keep_last, 1)], *best[: max(retention.keep_best, 0)], *protected}
    return sorted(set(steps) - kept)
