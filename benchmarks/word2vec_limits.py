"""What the machine can do of what skip-gram is made of: arithmetic, and rows of a large table at random. Prints JSON.

    OPENBLAS_NUM_THREADS=N python word2vec_limits.py THREADS ROWS DIM

"GFLOP/s" is a large float32 matrix product by numpy's BLAS, which hardly anything beats. "rows/s" are rows of a table
of ROWS x DIM that are read, added to and written, at random places, by numba, in so many threads: each word of the text
costs a few such rows however little is computed with them.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np


@numba.njit(nogil=True, fastmath=True, error_model="numpy")
def touch(table: Any, order: Any, added: Any) -> None:
    """Add a row to rows of the table, in this order."""
    for i in range(order.size):
        row = table[order[i]]
        for k in range(added.size):
            row[k] += added[k]


def best(action: Callable[[], None], repeats: int = 5) -> float:
    """Return the median time of an action."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def rows(threads: int, n_rows: int, dim: int) -> float:
    """Return rows a second that so many threads touch."""
    width, n = -(-dim // 16) * 16, 2_000_000
    table = np.zeros((n_rows, width), np.float32)
    added = np.full(width, 1e-9, np.float32)
    orders = [np.random.default_rng(seed).integers(0, n_rows, n) for seed in range(threads)]
    touch(table, orders[0][:10], added)

    def all_at_once() -> None:
        running = [threading.Thread(target=touch, args=(table, order, added)) for order in orders]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    return threads * n / best(all_at_once)


def arithmetic() -> float:
    """Return float operations a second of a matrix product; its threads are the environment's."""
    n = 2048
    a = np.random.default_rng(0).random((n, n), np.float32)
    out = np.empty_like(a)
    np.matmul(a, a, out=out)
    return 2 * n**3 / best(lambda: np.matmul(a, a, out=out), 7)


def main() -> None:
    """Print both."""
    threads, n_rows, dim = map(int, sys.argv[1:])
    print(json.dumps({"GFLOP/s": round(arithmetic() / 1e9, 1), "rows/s": round(rows(threads, n_rows, dim))}))


if __name__ == "__main__":
    main()
