"""Training loop of word vectors: threads, slices and their records. Torch-free."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any, TypeVar

import numpy as np

from attnkit.errors import DivergedError
from attnkit.kernels.word2vec_backend import PieceStats
from attnkit.tasks.word2vec.config import LossSums, Word2VecConfig, Word2VecCounters
from attnkit.tasks.word2vec.matrices import Matrices, copied
from attnkit.tasks.word2vec.workload import Workload, n_copies, n_threads

SECONDS = 2.0  #: time after which no further piece of a slice is started
_BLOCK = 1 << 9  # rows merged at a time, few enough to stay in cache
Stop = Callable[[], bool]
_T = TypeVar("_T")


class WorkerPool:
    """Pool of threads that train pieces of work on the matrices."""

    def __init__(self, work: Workload, matrices: Matrices, threads: int, copies: int, stop: Stop | None = None) -> None:
        """Share ``matrices`` among threads, or merge a copy per thread if ``copies`` > 1."""
        self._work, self._matrices, self._stop = work, matrices, stop
        self._n_threads = threads if work.concurrent else 1
        self._copies = [copied(matrices) for _ in range(copies)] if copies > 1 else []
        self._pool = ThreadPoolExecutor(self._n_threads) if max(self._n_threads, copies) > 1 else None
        self._closed = threading.Event()

    def close(self) -> None:
        """Stop the threads, each after its current piece."""
        self._closed.set()
        if self._pool is not None:
            self._pool.shutdown()

    def run_slice(self, epoch: int, first: int) -> list[PieceStats]:
        """Train for ``SECONDS`` from piece ``first``, at least one piece; return stats."""
        run = self._run_rounds if self._copies else self._run_shared
        found = run(epoch, first, time.monotonic() + SECONDS)
        self._work.settle()
        return found

    def _run_shared(self, epoch: int, first: int, until: float) -> list[PieceStats]:
        """Train pieces on shared matrices; each thread takes the next free piece."""
        numbers, lock = iter(range(first, self._work.n_pieces)), threading.Lock()
        found: dict[int, PieceStats] = {}

        def take_pieces() -> None:
            while True:
                with lock:
                    number = next(numbers, None)
                    if number is None or (number > first and self._is_over(until)):
                        # The number drawn last is not trained, so no thread may draw a later one.
                        deque(numbers, maxlen=0)
                        return
                found[number] = self._work.piece(self._matrices, epoch, number)

        self._run_jobs([take_pieces] * self._n_threads)
        return [found[number] for number in sorted(found)]

    def _run_rounds(self, epoch: int, first: int, until: float) -> list[PieceStats]:
        """Train one piece per copy, then merge; rounds do not depend on the clock."""
        found: list[PieceStats] = []
        while (begin := first + len(found)) < self._work.n_pieces and not (found and self._is_over(until)):
            numbers = range(begin, min(begin + len(self._copies), self._work.n_pieces))
            pieces = zip(self._copies, numbers, strict=False)  # the last round may have fewer pieces than copies
            found += self._run_jobs([partial(self._work.piece, copy, epoch, number) for copy, number in pieces])
            for name, base in self._matrices.items():
                copies = [copy[name] for copy in self._copies]
                trained, idle = copies[: len(numbers)], copies[len(numbers) :]
                parts = range(self._n_threads)
                self._run_jobs([partial(average_replicas, base, trained, idle, p, len(parts)) for p in parts])
        return found

    def _is_over(self, until: float) -> bool:
        return self._closed.is_set() or (self._stop is not None and self._stop()) or time.monotonic() > until

    def _run_jobs(self, jobs: Sequence[Callable[[], _T]]) -> list[_T]:
        """Run jobs in parallel threads; return their results in order."""
        if self._pool is None or len(jobs) == 1:
            return [job() for job in jobs]

        def run(job: Callable[[], _T]) -> _T:
            try:
                return job()
            except BaseException:  # keeps the other threads from starting further pieces
                self._closed.set()
                raise

        futures = [self._pool.submit(run, job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:  # may also come from a signal while other threads work
            self._closed.set()
            raise


def average_replicas(base: Any, copies: Sequence[Any], idle: Sequence[Any], part: int, n_parts: int) -> None:
    """Set base and copies to base + Σ(copy - base) / √n, for one part of the rows.

    The mean (1 / n) loses too much of each copy's progress; the sum diverges on rows that all copies train.
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
        for copy in (*copies, *idle):
            copy[block] = old


_RECORDS = 200  #: approximate number of log records per run


@dataclass(frozen=True)
class SliceRecord:
    """Result of a slice of an epoch, after all threads have joined."""

    counters: Word2VecCounters  #: the state after the slice
    loss: float  #: mean of -log σ over the terms of the slice, or the loss of the method
    learning_rate: float
    n_words: float  #: words of the text that the slice covers, out-of-vocabulary words included
    seconds: float  #: wall-clock time of the slice
    log: Sequence[dict[str, object]]  #: for ``metrics.jsonl``; reproducible with one thread or deterministic copies


def train_slices(
    config: Word2VecConfig, work: Workload, matrices: Matrices, counters: Word2VecCounters, stop: Stop | None = None
) -> Iterator[SliceRecord]:
    """Train; yield a record per slice. Raises ``DivergedError`` at a non-finite loss."""
    state = counters.model_copy()
    every = max(1, state.n_steps // _RECORDS)
    with closing(WorkerPool(work, matrices, n_threads(config), n_copies(config), stop)) as pool:
        while state.step < state.n_steps and state.finished != "stopped":
            began = time.monotonic()
            stats = pool.run_slice(*divmod(state.step, work.n_pieces))
            seconds = time.monotonic() - began
            log: list[dict[str, object]] = []
            # Records that were already yielded must not change.
            state = state.model_copy(update={"minutes": state.minutes + seconds / 60, "finished": None})
            for piece in stats:
                if not math.isfinite(piece.loss):
                    what = f"the loss is not finite after chunk {state.step + 1:,}"
                    raise DivergedError(what, help="try a smaller --alpha")
                state.step += 1
                state.trained += piece.words
                sums = state.pending
                state.pending = sums = LossSums(
                    loss=sums.loss + piece.loss, terms=sums.terms + piece.terms, words=sums.words + piece.words
                )
                if state.step % every == 0 or state.step == state.n_steps:
                    state.loss = _mean(sums.loss, sums.terms)
                    position = {"kind": "words", "step": state.step, "epoch": round(state.step / work.n_pieces, 6)}
                    rate = work.rate(state.step)
                    log.append({**position, "loss": state.loss, "learning_rate": rate, "words": sums.words})
                    state.pending = LossSums()
            if state.step == state.n_steps:
                state.finished = "epochs"
            elif stop is not None and stop():
                state.finished = "stopped"
            n_words = state.raw * config.epochs * len(stats) / state.n_steps
            loss = _mean(sum(piece.loss for piece in stats), sum(piece.terms for piece in stats))
            yield SliceRecord(state, loss, work.rate(state.step), n_words, seconds, log)


def _mean(total: float, n: int) -> float:
    return total / n if n else 0.0
