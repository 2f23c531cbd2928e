"""The training loop of word vectors: pieces of an epoch in compiled threads, a record per slice. Torch-free."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from attnkit.errors import DivergedError
from attnkit.kernels.word2vec import PieceStats
from attnkit.tasks.word2vec.config import Counters, LossSums, Word2VecConfig
from attnkit.tasks.word2vec.matrices import Matrices, copied
from attnkit.tasks.word2vec.workload import Workload, copies

SECONDS = 2.0
"""After which no further piece of a leg is begun."""
_BLOCK = 1 << 9  # rows that are joined at a time, few enough to stay in a cache
Stop = Callable[[], bool]


class WorkerPool:
    """Threads that do pieces of work on matrices."""

    def __init__(self, work: Workload, matrices: Matrices, threads: int, copies: int, stop: Stop) -> None:
        """Take the matrices; with more than one copy each thread has its own, and ``matrices`` is what they make."""
        self._work, self._matrices, self._stop = work, matrices, stop
        self._n_threads = threads if work.concurrent else 1
        self._copies = [copied(matrices) for _ in range(copies)] if copies > 1 else []
        self._pool = ThreadPoolExecutor(self._n_threads) if max(self._n_threads, copies) > 1 else None
        self._left = threading.Event()

    def close(self) -> None:
        """Let the threads end, each after the piece it is at."""
        self._left.set()
        if self._pool is not None:
            self._pool.shutdown()

    def run_slice(self, epoch: int, first: int) -> list[PieceStats]:
        """Do pieces of an epoch from ``first`` on, for some seconds, until its end, or until a stop is asked for.

        Returns what became of each, at least of one.
        """
        until = time.monotonic() + SECONDS
        if self._copies:
            found = self._rounds(epoch, first, until)
        else:
            taken = self._numbers(first, until)
            parts = self._each(lambda _: [(n, self._work.piece(self._matrices, epoch, n)) for n in taken()])
            found = [tally for _, tally in sorted(itertools.chain.from_iterable(parts), key=lambda pair: pair[0])]
        self._work.settle()
        return found

    def _numbers(self, first: int, until: float) -> Callable[[], Iterator[int]]:
        """Return what gives each thread its pieces: one after another, none twice and none left out."""
        numbers, lock = iter(range(first, self._work.n_pieces)), threading.Lock()

        def taken() -> Iterator[int]:
            while True:
                with lock:
                    number = next(numbers, None)
                    if number is None or (number > first and self._done(until)):
                        # What was drawn last is begun by nobody, so nobody may draw after it either.
                        for _ in numbers:
                            pass
                        return
                yield number

        return taken

    def _done(self, until: float) -> bool:
        return self._left.is_set() or self._stop() or time.monotonic() > until

    def _rounds(self, epoch: int, first: int, until: float) -> list[PieceStats]:
        """Let each copy do the next piece, then join them; rounds begin at the same pieces whatever the clock says."""
        found: list[PieceStats] = []
        while (begin := first + len(found)) < self._work.n_pieces and not (found and self._done(until)):
            numbers = range(begin, min(begin + len(self._copies), self._work.n_pieces))
            found += self._each(partial(self._one, epoch, numbers), len(numbers))
            for name in self._matrices:
                self._each(partial(self._join, name, len(numbers)))
        return found

    def _one(self, epoch: int, numbers: Sequence[int], i: int) -> PieceStats:
        return self._work.piece(self._copies[i], epoch, numbers[i])

    def _join(self, name: str, n: int, part: int) -> None:
        copies = [copy[name] for copy in self._copies]
        average_replicas(self._matrices[name], copies[:n], copies[n:], part, self._n_threads)

    def _each(self, job: Callable[[int], Any], n: int | None = None) -> list[Any]:
        """Do a job in each thread at once; return what they gave, in order."""
        n = self._n_threads if n is None else n
        if self._pool is None or n == 1:
            return [job(i) for i in range(n)]
        futures: list[Future[Any]] = [self._pool.submit(self._ending, job, i) for i in range(n)]
        try:
            return [future.result() for future in futures]
        except BaseException:  # which may come from a signal, while the others work
            self._left.set()
            raise

    def _ending(self, job: Callable[[int], Any], i: int) -> Any:
        """Do a job; where it fails, let the other threads begin nothing more."""
        try:
            return job(i)
        except BaseException:
            self._left.set()
            raise


@contextmanager
def open_worker_pool(work: Workload, matrices: Matrices, threads: int, copies: int, stop: Stop) -> Iterator[WorkerPool]:
    """Yield legs whose threads have ended when the block has."""
    legs = WorkerPool(work, matrices, threads, copies, stop)
    try:
        yield legs
    finally:
        legs.close()


def average_replicas(base: Any, copies: Sequence[Any], idle: Sequence[Any], part: int, n_parts: int) -> None:
    """Put base + Σ(copy - base) / √n into the base and into all copies, for one of so many parts of the rows.

    The mean (1 / n) loses what the others learnt, the sum diverges on rows that all of them train.
    """
    scale = np.float32(1 / sqrt(len(copies)))
    for begin in range(part * _BLOCK, len(base), n_parts * _BLOCK):
        block = slice(begin, begin + _BLOCK)
        old = base[block]
        change = copies[0][block] - old
        for copy in copies[1:]:
            change += copy[block] - old
        change *= scale
        old += change
        for copy in itertools.chain(copies, idle):
            copy[block] = old


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
