"""Threads that run compiled loops, each with its own working memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from attnkit.compiled.memory import Memory
from attnkit.compiled.packed_layers import PackedLayers
from attnkit.kernels.native import Library, Loops, PreparedArgument, load_loops

Job = Callable[[int], None]  #: takes the number of its thread


def receives_signals() -> bool:
    """Return whether signals of the process are handled in this thread.

    It must stay in Python. Others may compute themselves: where Python is busy, to hand work over adds a fifth to the
    time of a sentence.
    """
    return threading.current_thread() is threading.main_thread()


class _Look:
    """A function that is called until it is closed, or raises."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call, self._lock, self.is_open = call, threading.Lock(), True

    def call(self) -> None:
        """Call the function, unless it is closed."""
        with self._lock:
            if self.is_open:
                try:
                    self._call()
                except Exception:  # a thread that ended would leave all others without stops
                    self.is_open = False

    def close(self) -> None:
        """Call it no longer, and wait until it has returned."""
        with self._lock:
            self.is_open = False


class Watch:
    """One thread of the process that calls functions repeatedly, unless they raise."""

    SECONDS = 0.02

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._looks: list[_Look] = []
        self._thread: threading.Thread | None = None

    def renew(self) -> None:
        """Start anew in a fork, which has no threads, but perhaps a lock that one held."""
        self._lock, self._looks, self._thread = threading.Condition(), [], None

    @contextmanager
    def calling(self, function: Callable[[], None] | None) -> Iterator[None]:
        """Call a function, if there is one, while the block runs, but not after it."""
        if function is None:
            yield
            return
        look = _Look(function)
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="attnkit-watch", daemon=True)
                thread.start()
                self._thread = thread
            self._looks.append(look)
            if len(self._looks) == 1:
                self._lock.notify()
        try:
            yield
        finally:
            look.close()
            with self._lock:
                self._looks.remove(look)

    def _serve(self) -> None:
        from attnkit.runtime.scheduling import schedule_answering

        schedule_answering()
        while True:
            time.sleep(self.SECONDS)
            with self._lock:
                while not self._looks:
                    self._lock.wait()
                looks = list(self._looks)
            for look in looks:  # without the lock: searches begin and end meanwhile
                look.call()


WATCH = Watch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCH.renew)


class Threads:
    """Threads that wait for work: to start them would take as long as a step."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    def run(
        self, work: Callable[[int], None], n: int, stop: NDArray[np.int64], look: Callable[[], None] | None = None
    ) -> None:
        """Call work(0) to work(n - 1); set the flag at stop[0] on an interrupt.

        ``look`` is called again and again until they end.
        """
        if self._pool is None or n > self.n or self._process != os.getpid():  # a fork has no threads
            self.n, self._process = max(n, self.n), os.getpid()
            self._pool = ThreadPoolExecutor(self.n, "attnkit")
        jobs: list[Future[None]] = []
        try:
            for i in range(n):
                jobs.append(self._pool.submit(work, i))
            # In slices of time: Python handles signals between them.
            while wait(jobs, timeout=Watch.SECONDS).not_done:
                if look is not None:
                    look()
        except BaseException:
            stop[0] = 1
            wait(jobs)  # they use memory of the caller
            raise
        for job in jobs:
            job.result()


class Workers:
    """Compiled loops, and working memory for each of the threads that run them."""

    def __init__(self, loops: Loops, packed: PackedLayers, n_threads: int, notify: Callable[[str], None]) -> None:
        """Load the loops; raise ``SystemFailure`` if they cannot be compiled."""
        self.library: Library = load_loops(loops, packed.target, packed.precision, notify)
        self._packed = packed
        self.n_threads, self._threads = n_threads, Threads(n_threads)
        self.lock = threading.Lock()  # of the working memory: one call at a time
        self._made = (0, 0)
        self._memories: list[tuple[Memory, PreparedArgument]] = []

    def buffers(self, n_rows: int, n_positions: int) -> list[PreparedArgument]:
        """Return each thread's buffers, for so many rows at a time or more."""
        if n_rows > self._made[0] or n_positions > self._made[1]:
            self._made = max(n_rows, self._made[0]), -(-max(n_positions, self._made[1]) // 64) * 64
            self._memories.clear()  # the old ones are given up first
        while len(self._memories) < self.n_threads:
            memory = Memory()
            self._memories.append((memory, PreparedArgument(memory.buffers(self._packed, *self._made))))
        return [buffers for _, buffers in self._memories]

    def ranges(self, sizes: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of items of ``most`` tokens or less, as even as threads need them."""
        return ranges(sizes, min(most, -(-int(sizes.sum()) // self.n_threads)))

    def run(self, jobs: Sequence[Job]) -> None:
        """Call each job with the number of its thread."""
        n = min(self.n_threads, len(jobs))
        stop = np.zeros(1, np.int64)

        def work(thread: int) -> None:
            for job in jobs[thread::n]:
                if stop[0]:
                    return
                job(thread)

        if n == 1:
            work(0)
        elif n:
            self._threads.run(work, n, stop)


def ranges(sizes: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of items whose sizes add up to ``most`` or less; larger ones alone."""
    first, total = 0, 0
    for i, size in enumerate(sizes.tolist()):
        if i > first and total + size > most:
            yield first, i
            first, total = i, 0
        total += size
    if len(sizes):
        yield first, len(sizes)
