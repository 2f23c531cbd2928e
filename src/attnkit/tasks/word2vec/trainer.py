"""From the first piece to the last: what is trained leg by leg, and what is said and saved between them. Torch-free."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from attnkit.errors import DivergedError
from attnkit.kernels.word2vec import PieceStats
from attnkit.tasks.word2vec.checkpoint import Pending, State
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.hogwild import open_worker_pool
from attnkit.tasks.word2vec.matrices import Matrices
from attnkit.tasks.word2vec.workload import Workload, copies

_RECORDS = 200
"""Lines of the log of a whole run, about."""


@dataclass(frozen=True)
class Progress:
    """A leg is done, and all threads have joined."""

    state: State
    """As it is now."""
    loss: float
    """Mean of -log σ over the terms of the leg, or whatever the method sums."""
    rate: float
    """The learning rate now."""
    words: float
    """Words of the text that the leg has covered, those that have no vector included."""
    seconds: float
    """That it took."""
    records: Sequence[dict[str, object]]
    """For the log: the same in every run of the same command with one thread, or with copies."""

    @property
    def done(self) -> float:
        """Which share of the run is done."""
        return self.state.step / self.state.n_steps


def train_slices(
    config: Word2VecConfig, work: Workload, matrices: Matrices, state: State, stop: Callable[[], bool]
) -> Iterator[Progress]:
    """Train from where ``state`` stands until the end, or until a stop is asked for; yields after each leg.

    Raises:
        DivergedError: the loss is no number any more.
    """
    with open_worker_pool(work, matrices, config.threads, copies(config), stop) as legs:
        while state.step < state.n_steps:
            began = time.monotonic()
            tallies = legs.run_slice(*divmod(state.step, work.n_pieces))
            seconds = time.monotonic() - began
            after, records = _counted(work, state, tallies)
            state = after.model_copy(update={"minutes": state.minutes + seconds / 60})
            words = state.raw * config.epochs * len(tallies) / state.n_steps
            loss = mean(sum(t.loss for t in tallies), sum(t.terms for t in tallies))
            yield Progress(state, loss, work.rate(state.step), words, seconds, records)
            if stop():
                return


def _counted(work: Workload, state: State, tallies: Sequence[PieceStats]) -> tuple[State, list[dict[str, object]]]:
    """Return the state after some pieces, and the lines of the log that they complete."""
    every = max(1, state.n_steps // _RECORDS)
    step, pending, loss, trained = state.step, state.pending, state.loss, state.trained
    records: list[dict[str, object]] = []
    for tally in tallies:
        if not math.isfinite(tally.loss):
            raise DivergedError(f"the loss is no number after piece {step + 1:,}", help="a smaller --alpha may do")
        step += 1
        trained += tally.words
        sums = {name: getattr(pending, name) + getattr(tally, name) for name in ("loss", "terms", "words")}
        pending = Pending(**sums)
        if step % every == 0 or step == state.n_steps:
            loss = mean(pending.loss, pending.terms)
            position = {"kind": "words", "step": step, "epoch": round(step / work.n_pieces, 6)}
            rate = work.rate(step)
            records.append({**position, "loss": loss, "learning_rate": rate, "words": pending.words})
            pending = Pending()
    changed = {"step": step, "pending": pending, "loss": loss, "trained": trained}
    return state.model_copy(update={**changed, "finished": step == state.n_steps}), records


def mean(total: float, n: int) -> float:
    """Return a mean, 0 of nothing."""
    return total / n if n else 0.0
