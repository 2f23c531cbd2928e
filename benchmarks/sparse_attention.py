"""Dense against sparse attention over growing lengths: where patterns start to pay. Resumable: run it again to go on.

    PYTHONPATH=src python benchmarks/sparse_attention.py [--lengths 256 512 1024 2048 4096 8192 16384] [--size 128]
        [--rounds 5] [--repeats 3] [--again]

Every length and kind runs --repeats times, each time in a process of its own: one sentence, 4 heads of width 64,
float32, one thread, forward and backward. Kinds are torch's fused attention over all pairs (dense), the patterns
window, strided, block and global, and kernel attention in linear time (64 features of FAVOR+). The kinds of one length
take turns, in the opposite order every second time. The time of a repeat is the median of its rounds after one that
does not count, its peak the growth of the process's largest resident set over what it was before. A kind is called
faster than dense only where its slowest repeat is faster than dense's fastest.

Resumable by repeat; figures lie in benchmarks/results/sparse_attention.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from peers import machine, median_and_range, open_result, save_result
from torch import Tensor

from attnkit.models.attention.linear_attention import FavorFeatures, linear_attention
from attnkit.models.attention.patterns import PATTERNS, make_pattern
from attnkit.models.attention.sparse import sparse_attention

RESULT = Path(__file__).parent / "results" / "sparse_attention.json"
HEADS, WIDTH = 4, 64
KINDS = ("dense", *PATTERNS, "linear")
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def attention(kind: str, size: int, causal: bool) -> Attention:
    """Return the attention of one kind."""
    if kind == "dense":
        return lambda query, keys, values: F.scaled_dot_product_attention(query, keys, values, is_causal=causal)
    if kind == "linear":
        features = FavorFeatures(WIDTH, 64)
        return lambda query, keys, values: linear_attention(query, keys, values, features, None, causal)
    pattern = make_pattern(kind, size, causal)  # type: ignore[arg-type]
    return lambda query, keys, values: sparse_attention(query, keys, values, pattern)


def measure(kind: str, length: int, size: int, causal: bool, rounds: int) -> dict[str, Any]:
    """Run one kind at one length in this process and return its figures."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parts = [torch.randn(1, HEADS, length, WIDTH, requires_grad=True) for _ in range(3)]
    attend = attention(kind, size, causal)
    before, seconds = peak(), []
    for _ in range(rounds + 1):
        for part in parts:
            part.grad = None
        began = time.perf_counter()
        attend(*parts).sum().backward()
        seconds.append(time.perf_counter() - began)
    return {
        "milliseconds": round(1000 * statistics.median(seconds[1:]), 2),
        "peak growth, MB": round((peak() - before) / 1e6, 1),
        "load average": os.getloadavg()[0],
    }


def peak() -> int:
    """Return the bytes of this process's largest resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def show(runs: dict[str, dict[str, Any]], lengths: list[int], name: str) -> None:
    """Print one table of times and peaks, and where each kind starts to pay."""
    print(f"\n{name}: milliseconds forward and backward, median (range); peak growth in MB")
    print(f"{'tokens':>8}" + "".join(f"{kind:>34}" for kind in KINDS))
    for n in lengths:
        rows = [runs[f"{kind} {n}"] for kind in KINDS]
        cells = [f"{median_and_range(row['milliseconds'], 1)}; {max(row['peak growth, MB']):,.0f}" for row in rows]
        print(f"{n:>8,}" + "".join(f"{cell:>34}" for cell in cells))
    for kind in KINDS[1:]:
        faster = [n for n in lengths if is_faster(runs[f"{kind} {n}"], runs[f"dense {n}"])]
        # The first length from which it is faster at every longer one too.
        pays = next((n for n in lengths if all(m in faster for m in lengths if m >= n)), None)
        print(f"{kind}: faster than dense " + ("at none of these lengths" if pays is None else f"from {pays:,} tokens"))


def is_faster(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether the times of one lie below those of the other, all of them."""
    return bool(max(one["milliseconds"]) < min(other["milliseconds"]))


def add_repeat(found: dict[str, list[float]], key: str, name: str, options: argparse.Namespace) -> None:
    """Run one kind at one length once more, in a process of its own."""
    command = [sys.executable, __file__, "--child", *key.split(), name]
    command += ["--size", str(options.size), "--rounds", str(options.rounds)]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    for label, value in json.loads(ended.stdout).items():
        found.setdefault(label, []).append(value)
    print(name, key, ended.stdout.strip(), flush=True)


def main() -> None:
    """Measure what is missing, each in a process of its own, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--size", type=int, default=128, help="of the patterns")
    parser.add_argument("--rounds", type=int, default=5, help="of one process")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each kind and length")
    parser.add_argument("--again", action="store_true", help="measure anew what is there already")
    parser.add_argument("--result", type=Path, default=RESULT, help="the result file")
    parser.add_argument("--child", nargs=3, metavar=("KIND", "LENGTH", "CAUSAL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, length, causal = options.child
        print(json.dumps(measure(kind, int(length), options.size, causal == "causal", options.rounds)))
        return
    settings = {"size": options.size, "rounds": options.rounds, "heads": HEADS, "width": WIDTH}
    settings |= {"torch": torch.__version__, "cpus": machine()["cpus"], "cpu": machine()["cpu"]}
    result = open_result(options.result, settings, again=options.again)
    for name in ("both ways", "causal"):
        runs = result.setdefault(name, {})
        for length in options.lengths:
            for repeat in range(options.repeats):
                for kind in KINDS if repeat % 2 == 0 else reversed(KINDS):
                    found = runs.setdefault(f"{kind} {length}", {})
                    if len(found.get("milliseconds", [])) <= repeat:
                        add_repeat(found, f"{kind} {length}", name, options)
                        save_result(options.result, result)
        show(runs, options.lengths, name)


if __name__ == "__main__":
    main()
