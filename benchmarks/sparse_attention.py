"""Dense against sparse attention over growing lengths: where patterns start to pay. Resumable: run it again to go on.

    python benchmarks/sparse_attention.py [--lengths 256 512 1024 2048 4096 8192 16384] [--size 128] [--rounds 5]
        [--again]

Every length and kind runs in a process of its own: one sentence, 4 heads of width 64, float32, one thread, forward and
backward. Kinds are torch's fused attention over all pairs (dense), the patterns window, strided, block and global, and
kernel attention in linear time (64 features of FAVOR+). Times are medians of the rounds after one that does not count,
peaks the growth of the process's largest resident set over what it was before. Figures lie in
benchmarks/results/sparse_attention.json; what has figures already is kept.
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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnkit.models.attention.features import FavorFeatures
from attnkit.models.attention.linear import linear_attention
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
        "range_ms": [round(1000 * edge(seconds[1:]), 2) for edge in (min, max)],
        "peak_growth_mb": round((peak() - before) / 1e6, 1),
        "load_average": os.getloadavg()[0],
    }


def peak() -> int:
    """Return the bytes of this process's largest resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def show(result: dict[str, Any], lengths: list[int], causal: bool) -> None:
    """Print one table of times and peaks, and where each kind starts to pay."""
    runs = result["causal" if causal else "both ways"]
    print(f"\n{'causal' if causal else 'both ways'}: milliseconds forward and backward, peak growth in MB")
    print(f"{'tokens':>8}" + "".join(f"{kind:>18}" for kind in KINDS))
    for n in lengths:
        cells = (runs[f"{kind} {n}"] for kind in KINDS)
        print(f"{n:>8,}" + "".join(f"{c['milliseconds']:>10,.1f}{c['peak_growth_mb']:>8,.0f}" for c in cells))
    for kind in KINDS[1:]:
        faster = [n for n in lengths if runs[f"{kind} {n}"]["milliseconds"] < runs[f"dense {n}"]["milliseconds"]]
        # The first length from which it is faster at every longer one too.
        pays = next((n for n in lengths if all(m in faster for m in lengths if m >= n)), None)
        print(f"{kind}: faster than dense " + ("at none of these lengths" if pays is None else f"from {pays:,} tokens"))


def main() -> None:
    """Measure what is missing, each in a process of its own, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--size", type=int, default=128, help="of the patterns")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="measure anew what is there already")
    parser.add_argument("--child", nargs=3, metavar=("KIND", "LENGTH", "CAUSAL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        kind, length, causal = arguments.child
        print(json.dumps(measure(kind, int(length), arguments.size, causal == "causal", arguments.rounds)))
        return
    settings = {"size": arguments.size, "rounds": arguments.rounds, "heads": HEADS, "width": WIDTH}
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() and not arguments.again else {}
    if result and result["settings"] != settings:
        sys.exit(f"{RESULT} has figures of other settings, {result['settings']}: --again replaces them")
    result |= {"settings": settings, "torch": torch.__version__, "python": platform.python_version()}
    for name in ("both ways", "causal"):
        runs = result.setdefault(name, {})
        for key in (f"{kind} {length}" for length in arguments.lengths for kind in KINDS):
            if key not in runs:
                options = ["--size", str(arguments.size), "--rounds", str(arguments.rounds)]
                command = [sys.executable, __file__, "--child", *key.split(), name, *options]
                ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                runs[key] = json.loads(ended.stdout)
                RESULT.parent.mkdir(exist_ok=True)
                RESULT.write_text(json.dumps(result, indent=1) + "\n")
                print(name, key, json.dumps(runs[key]), flush=True)
        show(result, arguments.lengths, name == "causal")


if __name__ == "__main__":
    main()
