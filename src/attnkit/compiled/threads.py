"""Threads for compiled loops, which run without the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray


class Threads:
    """Threads that wait for work: to start them would take as long as a step."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    def run(self, work: Callable[[int], None], n: int, stop: NDArray[np.int64]) -> None:
        """Call work(0) to work(n - 1); set the flag at stop[0] on an interrupt."""
        if self._pool is None or n > self.n or self._process != os.getpid():  # a fork has no threads
            self.n, self._process = max(n, self.n), os.getpid()
            self._pool = ThreadPoolExecutor(self.n, "attnkit")
        jobs: list[Future[None]] = []
        try:
            for i in range(n):
                jobs.append(self._pool.submit(work, i))
            # In slices of time: Python handles signals between them.
            while wait(jobs, timeout=0.05).not_done:
                pass
        except BaseException:
            stop[0] = 1
            wait(jobs)  # they use memory of the caller
            raise
        for job in jobs:
            job.result()
