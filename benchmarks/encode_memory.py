"""Encode generated parallel files of growing size and record the peak memory of each. Resumable: run it again to go on.

    python benchmarks/encode_memory.py [--lines 1000000 2000000 5000000 10000000] [--work DIR]

Each size runs in a process of its own: text is read in pairs, encoded by a vocabulary of 8,000 trained on the first
200,000 pairs, and written to a store. Peaks are the process's largest resident set, as the kernel counts it. Work lies
in benchmarks/.work (about 300 bytes a pair), the figures in benchmarks/results/encode_memory.json. Sizes that have
figures already are kept.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from attnkit.text.encoding import BatchEncoder, EncodedLines

HERE = Path(__file__).parent
RESULT = HERE / "results" / "encode_memory.json"
SIZES = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
BLOCK = 50_000  # lines generated at once
CHUNK = 4096  # lines encoded at once, as in training


def generate(path: Path, n_lines: int, seed: int) -> None:
    """Write lines of words from a lexicon of 30,000 with Zipf's frequencies, 13 words long with a deviation of 4."""
    if path.exists():
        return
    letters = np.random.default_rng(seed)
    lexicon = np.array(
        ["".join(map(chr, letters.integers(97, 123, size))) for size in letters.integers(2, 10, 30_000)], dtype=object
    )
    edges = np.cumsum(1 / np.arange(3, len(lexicon) + 3))
    temporary = path.with_suffix(".part")
    with temporary.open("w", encoding="utf-8") as stream:
        for block in range(n_lines // BLOCK):
            rng = np.random.default_rng([seed, block])
            lengths = np.maximum(1, rng.normal(13, 4, BLOCK).round().astype(int))
            words = lexicon[np.searchsorted(edges, rng.random(lengths.sum()) * edges[-1])]
            ends = np.cumsum(lengths).tolist()
            stream.writelines(" ".join(words[begin:end]) + "\n" for begin, end in itertools.pairwise([0, *ends]))
    temporary.rename(path)


def peak() -> float:
    """Return the largest resident set of this process so far in MB (10^6 bytes)."""
    return round(
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6, 1
    )


def encode(work: Path, n_lines: int) -> dict[str, Any]:
    """Encode one size in this process and return its figures."""
    from attnkit.data.batch_plan import plan_epoch
    from attnkit.data.config import DataConfig
    from attnkit.data.pairs import write_pairs
    from attnkit.text.encoding import BatchEncoder
    from attnkit.text.parallel import read_parallel
    from attnkit.text.tokenizer import load

    sides = work / f"{n_lines}.src", work / f"{n_lines}.tgt"
    tokenizer = load(work / "tokenizer.json")
    curve: list[list[float]] = []

    def batches() -> Iterator[tuple[int, list[tuple[str, ...]]]]:
        lines = read_parallel(*sides)
        while chunk := list(itertools.islice(lines, CHUNK)):
            yield len(chunk), list(zip(*chunk, strict=True))

    def encoded(encoder: BatchEncoder) -> Iterator[list[EncodedLines]]:
        done = 0
        for n, rows in encoder.encode(batches()):
            yield rows
            done += n
            if done // 250_000 > (done - n) // 250_000:
                curve.append([done, peak()])

    shutil.rmtree(work / "pairs", ignore_errors=True)
    figures: dict[str, Any] = {"lines": n_lines, "text_mb": round(sum(side.stat().st_size for side in sides) / 1e6, 1)}
    figures["peak_before_mb"] = peak()
    began, cpu = time.perf_counter(), time.process_time()
    config = DataConfig(src=(str(sides[0]),), tgt=(str(sides[1]),))
    with BatchEncoder([tokenizer] * 2) as encoder:
        pairs = write_pairs(work / "pairs", [encoded(encoder)], (tokenizer.vocab_size, tokenizer.vocab_size), config)
    figures |= {"seconds": round(time.perf_counter() - began, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
    figures |= {"pairs": len(pairs), "peak_encoded_mb": peak()}
    lengths = pairs.lengths
    figures |= {"tokens": int(sum(side.sum(dtype=np.int64) for side in lengths)), "peak_with_lengths_mb": peak()}
    plan = plan_epoch(*lengths, seed=1, epoch=0, max_tokens=8192)
    figures |= {"batches": plan.n_batches, "peak_with_plan_mb": peak(), "load_average": os.getloadavg()[0]}
    figures["store_mb"] = round(sum(f.stat().st_size for f in (work / "pairs").rglob("*") if f.is_file()) / 1e6, 1)
    return {**figures, "curve_lines_mb": curve}


def prepare(work: Path, n_lines: int) -> None:
    """Generate the text of one size, and the vocabulary, unless they are there."""
    from attnkit.text.config import VocabularyConfig
    from attnkit.text.lines import read_lines
    from attnkit.text.vocabulary import train_vocabulary

    work.mkdir(parents=True, exist_ok=True)
    sides = work / f"{n_lines}.src", work / f"{n_lines}.tgt"
    for seed, side in enumerate(sides):
        generate(side, n_lines, seed)
    if not (work / "tokenizer.json").exists():
        sample = itertools.chain.from_iterable(itertools.islice(read_lines(side), 200_000) for side in sides)
        (work / "tokenizer.json").write_text(train_vocabulary(sample, VocabularyConfig()).to_json())


def main() -> None:
    """Run the sizes that have no figures yet, each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, nargs="+", default=list(SIZES), help=f"multiples of {BLOCK}")
    parser.add_argument("--work", type=Path, default=HERE / ".work" / "encode_memory")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(encode(arguments.work, arguments.child)))
        return
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {"runs": {}}
    result |= {"python": platform.python_version(), "cpus": os.cpu_count()}
    for n_lines in arguments.lines:
        if str(n_lines) not in result["runs"]:
            prepare(arguments.work, n_lines)
            command = [sys.executable, __file__, "--work", str(arguments.work), "--child", str(n_lines)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            result["runs"][str(n_lines)] = json.loads(done.stdout)
            for side in ("src", "tgt"):
                (arguments.work / f"{n_lines}.{side}").unlink()
            RESULT.parent.mkdir(exist_ok=True)
            RESULT.write_text(json.dumps(result, indent=1) + "\n")
        show(result["runs"][str(n_lines)])


def show(run: dict[str, Any]) -> None:
    """Print one line of the curve."""
    figure = functools.partial("{:>8,.0f}".format)
    print(
        f"{run['lines']:>11,} lines, {figure(run['text_mb'])} MB of text: peak RSS {figure(run['peak_before_mb'])} MB"
        f" before, {figure(run['peak_encoded_mb'])} encoded, {figure(run['peak_with_plan_mb'])} with an epoch's plan",
        flush=True,
    )


if __name__ == "__main__":
    main()
