"""Simulation of the data order for 10^10 examples and 1,024 ranks: seconds, bytes and balance. Resumable.

    python benchmarks/order_scale.py [--examples 1000000 10000000 100000000] [--ranks 1024] [--again]

Epochs of growing size are planned, each in a process of its own, and extended to 10^10 examples: the time by n log n,
as of a sort, the bytes by n. More than 2^32 - 1 examples do not fit into one plan, which is tested; so 10^10 need 3.
The steps of an epoch are split over all ranks as in training, and the tokens of the ranks compared: real ones, and
padded ones, which decide how long the slowest rank takes. Lengths are those of captions, as in order_speed.py. The
figures lie in benchmarks/results/order_scale.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from order_speed import captions

from attnkit.data.batch_plan import plan_epoch, split

RESULT = Path(__file__).parent / "results" / "order_scale.json"
WANTED = 10**10
RANK_TOKENS = 8192  #: padded tokens of a rank and step
STEPS = 20  #: compared per size at most


def measure(n: int, ranks: int) -> dict[str, Any]:
    """Plan an epoch of ``n`` examples in this process, and split its steps over the ranks."""
    src, tgt = captions(n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), time.process_time()
    plan = plan_epoch(src, tgt, seed=1, epoch=0, max_tokens=ranks * RANK_TOKENS)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    most, means, worst, empty, step_seconds = np.zeros(2), np.zeros(2), 0.0, 0, 0.0
    steps = range(0, plan.n_batches, max(1, plan.n_batches // STEPS))
    for step in steps:
        cpu = time.process_time()
        batch = plan.batch(step)
        costs = src[batch].astype(np.int64) + tgt[batch]
        slices = split(batch, costs, ranks)
        step_seconds += time.process_time() - cpu
        real = np.array([src[part].sum(dtype=np.int64) + tgt[part].sum(dtype=np.int64) for part in slices])
        padded = np.array([(src[part].max(initial=0) + tgt[part].max(initial=0)) * len(part) for part in slices])
        most += real.max(), padded.max()
        means += real.mean(), padded.mean()
        worst = max(worst, float(padded.max() / padded.mean()))
        empty += int((real == 0).sum())
    return {
        "examples": n,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "bytes_per_example": round(grown / n, 2),
        "kept_bytes_per_example": round((plan.order.nbytes + plan.starts.nbytes + plan.shuffled.nbytes) / n, 3),
        "steps": plan.n_batches,
        "steps_compared": len(steps),
        "examples_per_step": round(n / plan.n_batches),
        "slowest_rank_over_mean": {  # over all steps, so that a short one counts little
            "real_tokens": round(float(most[0] / means[0]), 4),
            "padded_tokens": round(float(most[1] / means[1]), 4),
            "padded_tokens_in_the_worst_step": round(worst, 4),
        },
        "empty_slices": empty,
        "cpu_milliseconds_per_step": round(1000 * step_seconds / len(steps), 2),
        "load_average": round(os.getloadavg()[0], 1),
    }


def is_refused(n: int) -> bool:
    """Return whether ``n`` examples are too many for a plan; lengths take no memory."""
    lengths = np.broadcast_to(np.int32(5), (n,))
    try:
        plan_epoch(lengths, lengths, seed=1, epoch=0, max_tokens=100)
    except ValueError:
        return True
    return False


def extend(largest: dict[str, Any]) -> dict[str, Any]:
    """Return what 10^10 examples take, from the largest size that was measured."""
    n_plans = -(-WANTED // ((1 << 32) - 1))
    n = WANTED / n_plans
    growth = n * math.log(n) / (largest["examples"] * math.log(largest["examples"]))
    return {
        "examples": WANTED,
        "refused_in_one_plan": is_refused(WANTED),
        "plans": n_plans,
        "examples_per_plan": round(n),
        "cpu_minutes_per_plan": round(largest["cpu_seconds"] * growth / 60, 1),
        "gigabytes_per_plan": round(largest["bytes_per_example"] * n / 1e9, 1),
        "kept_gigabytes_per_plan": round(largest["kept_bytes_per_example"] * n / 1e9, 1),
        "gigabytes_of_lengths": round(8 * n / 1e9, 1),
    }


def main() -> None:
    """Measure what is missing, extend it and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--again", action="store_true", help="measure anew what is there already")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(measure(arguments.child, arguments.ranks)))
        return
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {"sizes": {}}
    result |= {"numpy": np.__version__, "cpus": os.cpu_count(), "ranks": arguments.ranks, "rank_tokens": RANK_TOKENS}
    for n in arguments.examples:
        if arguments.again or str(n) not in result["sizes"]:
            command = [sys.executable, __file__, "--child", str(n), "--ranks", str(arguments.ranks)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            result["sizes"][str(n)] = json.loads(done.stdout)
        largest = result["sizes"][max(result["sizes"], key=int)]
        result["extended"] = extend(largest)
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result["sizes"][str(n)]), flush=True)
    print(json.dumps(result["extended"]))


if __name__ == "__main__":
    main()
