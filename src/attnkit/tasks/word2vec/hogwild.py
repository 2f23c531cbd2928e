"""Legs: runs of pieces between two moments at which all threads have joined, so that a save or a stop finds them whole.

Threads either share one set of matrices and write to it without locks (Niu et al. 2011, "Hogwild!"), or train a copy
each, and the copies are joined in a fixed order.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from attnkit.kernels.word2vec import PieceStats
from attnkit.tasks.word2vec.matrices import Matrices, copied
from attnkit.tasks.word2vec.workload import Workload

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
