"""Whether one system is better than another beyond chance: Koehn's paired bootstrap (2004), as sacreBLEU does it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


@dataclass(frozen=True)
class Comparison:
    """Two systems under one metric: scores, 95 % half-widths, and the probability that the difference is chance."""

    name: str
    signature: str
    baseline: float
    baseline_interval: float
    system: float
    system_interval: float
    p_value: float


def paired_bootstrap(
    metric: Metric,
    baseline: Sequence[str],
    system: Sequence[str],
    refs: Sequence[Sequence[str]],
    *,
    n_samples: int = 1000,
    seed: int = 12345,
) -> Comparison:
    """Compare a system with a baseline on ``n_samples`` resamples of the same sentences.

    The defaults are those of ``sacrebleu --paired-bs``. A p-value below 0.05 is what papers call significant.

    Raises:
        ValueError: The two systems or a reference differ in their number of lines, or no lines.
    """
    from sacrebleu.significance import PairedTest, Result

    if not baseline or any(len(lines) != len(baseline) for lines in (system, *refs)):
        raise ValueError("both systems and every reference need the same number of lines, at least one")
    named = [("baseline", baseline), ("system", system)]
    # sacreBLEU takes its seed from the environment alone, which is put back afterwards.
    old = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        signatures, scores = PairedTest(named, {type(metric).__name__: metric}, refs, "bs", n_samples)()
    finally:
        if old is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = old
    (name,) = signatures
    first, second = (result for result in scores[name] if isinstance(result, Result))
    intervals = [float(result.ci or 0.0) for result in (first, second)]
    p_value = 1.0 if second.p_value is None else float(second.p_value)
    return Comparison(
        name, f"{name}|{signatures[name]}", first.score, intervals[0], second.score, intervals[1], p_value
    )
