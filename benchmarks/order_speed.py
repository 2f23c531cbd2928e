"""Time and memory of planning an epoch, and of collating a batch. Resumable: sizes already measured are kept.

    python benchmarks/order_speed.py [--examples 1000000 10000000] [--again]

Lengths are those of captions: normal, 13 with a deviation of 4, correlated by .7. Each size runs in a process of its
own; bytes an example are the growth of the process's largest resident set while planning, and what tracemalloc counts.
The figures lie in benchmarks/results/order_speed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

from attnkit.data.batch_plan import EpochPlan, plan_epoch
from attnkit.data.config import DataConfig
from attnkit.data.pairs import write_pairs
from attnkit.text.encoding import EncodedLines

RESULT = Path(__file__).parent / "results" / "order_speed.json"
MAX_TOKENS = 4096


def captions(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths of both sides, generated in parts so that they leave no high-water mark above themselves."""
    src, tgt = np.empty((2, n), np.int32)
    rng = np.random.default_rng(0)
    for start in range(0, n, 100_000):
        part = slice(start, start + 100_000)
        noise = rng.normal(size=(3, len(src[part])))
        src[part], tgt[part] = np.maximum(2, 13 + 4 * (np.sqrt(0.7) * noise[0] + np.sqrt(0.3) * noise[1:])).round()
    return src, tgt


def real_share(src: np.ndarray, tgt: np.ndarray, plan: EpochPlan) -> float:
    """Return the real tokens' share of the padded ones, over 2,000 batches of the epoch."""
    real = padded = 0
    for i in range(min(2000, plan.n_batches)):
        batch = plan.batch(i)
        real += int(src[batch].sum() + tgt[batch].sum())
        padded += int(src[batch].max() + tgt[batch].max()) * len(batch)
    return round(real / padded, 4)


def measure(n: int) -> dict[str, Any]:
    """Plan epochs of ``n`` examples in this process."""
    src, tgt = captions(n)
    plan_epoch(src[:200_000], tgt[:200_000], seed=1, epoch=0, max_tokens=MAX_TOKENS)
    scale = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, cpu_seconds = [], []
    for epoch in range(3):
        began, cpu = time.perf_counter(), time.process_time()
        plan = plan_epoch(src, tgt, seed=1, epoch=epoch, max_tokens=MAX_TOKENS)
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu)
        share = real_share(src, tgt, plan)
        del plan
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * scale
    tracemalloc.start()
    plan = plan_epoch(src, tgt, seed=1, epoch=0, max_tokens=MAX_TOKENS)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    began = time.perf_counter()
    for i in range(1000):
        plan.batch(i * 7919 % plan.n_batches)
    return {
        "examples": n,
        "batches": plan.n_batches,
        "real_share": share,
        "seconds": round(min(seconds), 2),
        "cpu_seconds": round(min(cpu_seconds), 2),
        "peak_rss_growth_bytes_an_example": round(grown / n, 2),
        "peak_traced_bytes_an_example": round(peak / n, 2),
        "kept_bytes_an_example": round(kept / n, 2),
        "microseconds_a_seek": round((time.perf_counter() - began) * 1000, 1),
        "load_average": os.getloadavg()[0],
    }


def collation() -> dict[str, Any]:
    """Time the collation of 160 pairs of 13 tokens a side, out of 100,000."""
    ids = np.random.default_rng(0).integers(4, 8000, (100_000, 13)).tolist()
    config = DataConfig(src=("a",), tgt=("b",))
    with tempfile.TemporaryDirectory() as folder:
        pairs = write_pairs(Path(folder) / "pairs", [[[EncodedLines.of(ids)] * 2]], (8000, 8000), config)
        batches = np.random.default_rng(1).integers(0, len(pairs), (500, 160))
        times = []
        for batch in batches:
            began = time.perf_counter()
            pairs.batch(batch)
            times.append(1000 * (time.perf_counter() - began))
    return {"pairs": 160, "tokens_a_side": 13, "milliseconds": round(statistics.median(times), 3)}


def main() -> None:
    """Measure what is missing and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--again", action="store_true", help="measure anew what is there already")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(measure(arguments.child) if arguments.child else collation()))
        return
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    result |= {"python": platform.python_version(), "numpy": np.__version__, "cpus": os.cpu_count()}
    for name, n in [("collate", 0), *((str(n), n) for n in arguments.examples)]:
        if arguments.again or name not in result:
            command = [sys.executable, __file__, "--child", str(n)]
            result[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            RESULT.parent.mkdir(exist_ok=True)
            RESULT.write_text(json.dumps(result, indent=1) + "\n")
        print(name, json.dumps(result[name]), flush=True)


if __name__ == "__main__":
    main()
