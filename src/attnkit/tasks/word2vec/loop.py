"""The training loop of word vectors: slices of an epoch in compiled threads, a record after each. Torch-free."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from attnkit.errors import DivergedError
from attnkit.kernels.word2vec import PieceStats
from attnkit.tasks.word2vec.config import Counters, LossSums, Word2VecConfig
from attnkit.tasks.word2vec.hogwild import open_worker_pool
from attnkit.tasks.word2vec.matrices import Matrices
from attnkit.tasks.word2vec.workload import Workload, copies

_RECORDS = 200
"""Lines of the log of a whole run, about."""


@dataclass(frozen=True)
class SliceRecord:
    """A slice of an epoch is done, and all threads have joined."""

    counters: Counters
    """The state after the slice."""
    loss: float
    """Mean of -log σ over the terms of the slice, or the loss of the method."""
    learning_rate: float
    n_words: float
    """Words of the text that the slice covers, those without a vector included."""
    seconds: float
    """Wall time of the slice."""
    log: Sequence[dict[str, object]]
    """Records for ``metrics.jsonl``: the same in every run of one thread or of deterministic copies."""


def train_slices(
    config: Word2VecConfig, work: Workload, matrices: Matrices, counters: Counters, stop: Callable[[], bool]
) -> Iterator[SliceRecord]:
    """Train from the state ``counters`` to the end, or until a stop is requested; yields after each slice.

    Raises:
        DivergedError: the loss is not finite.
    """
    with open_worker_pool(work, matrices, config.threads, copies(config), stop) as pool:
        while counters.step < counters.n_steps:
            began = time.monotonic()
            stats = pool.run_slice(*divmod(counters.step, work.n_pieces))
            seconds = time.monotonic() - began
            after, log = _add(work, counters, stats)
            counters = after.model_copy(update={"minutes": counters.minutes + seconds / 60})
            n_words = counters.raw * config.epochs * len(stats) / counters.n_steps
            loss = mean(sum(t.loss for t in stats), sum(t.terms for t in stats))
            stopped = counters.finished is None and stop()
            if stopped:
                counters = counters.model_copy(update={"finished": "stopped"})
            yield SliceRecord(counters, loss, work.rate(counters.step), n_words, seconds, log)
            if stopped:
                return


def _add(work: Workload, counters: Counters, stats: Sequence[PieceStats]) -> tuple[Counters, list[dict[str, object]]]:
    """Return the state after some chunks, and the log records that they complete."""
    every = max(1, counters.n_steps // _RECORDS)
    step, pending, loss, trained = counters.step, counters.pending, counters.loss, counters.trained
    log: list[dict[str, object]] = []
    for one in stats:
        if not math.isfinite(one.loss):
            raise DivergedError(f"the loss is not finite after chunk {step + 1:,}", help="try a smaller --alpha")
        step += 1
        trained += one.words
        pending = LossSums(**{name: getattr(pending, name) + getattr(one, name) for name in ("loss", "terms", "words")})
        if step % every == 0 or step == counters.n_steps:
            loss = mean(pending.loss, pending.terms)
            position = {"kind": "words", "step": step, "epoch": round(step / work.n_pieces, 6)}
            log.append({**position, "loss": loss, "learning_rate": work.rate(step), "words": pending.words})
            pending = LossSums()
    finished = "epochs" if step == counters.n_steps else None
    changed = {"step": step, "pending": pending, "loss": loss, "trained": trained, "finished": finished}
    return counters.model_copy(update=changed), log


def mean(total: float, n: int) -> float:
    """Return a mean, 0 of nothing."""
    return total / n if n else 0.0
