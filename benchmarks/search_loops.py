"""Processor time of compiled searches alone, and a digest of what they find.

    PYTHONPATH=src python benchmarks/search_loops.py --run RUN --data SOURCE [--rounds 7]

One thread translates the same lines greedily and with beam 5 (length penalty 1, at most 128 tokens) in each precision;
the least of all rounds counts. Tokenization is not in it. With PYTHONPATH at the sources of another commit, two commits
can be compared within minutes; equal digests mean equal texts to the last token.
"""

from __future__ import annotations

import argparse
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

from attnkit.compiled.search import CompiledSearch
from attnkit.decoding.config import SearchConfig
from attnkit.kernels.simd.targets import Precision
from attnkit.tasks.translation.loading import open_run, pack_weights

MAX_TOKENS = 128


class TimedLibrary:
    """Compiled functions that note their processor time."""

    def __init__(self, library: Any) -> None:
        self.library, self.seconds = library, 0.0

    def call(self, *arguments: Any) -> None:
        """Call a function as ``Library.call``."""
        began = time.thread_time()
        self.library.call(*arguments)
        self.seconds = time.thread_time() - began


def main() -> None:
    """Print a line for each precision and search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--precision", choices=get_args(Precision), nargs="+", default=get_args(Precision))
    options = parser.parse_args()
    run = open_run(options.run)
    rows = run.src_tokenizer.encode([line for line in options.data.read_text().splitlines() if line.strip()])
    for precision in options.precision:
        packed = pack_weights(run, precision)
        search = CompiledSearch(packed)
        timed: Any = TimedLibrary(search.library)
        search.library = timed
        for beam_size in (1, 5):
            config, seconds = SearchConfig(beam_size=beam_size, scores=False), []
            for _ in range(options.rounds):
                found = search.search(rows, [MAX_TOKENS] * len(rows), config)
                seconds.append(timed.seconds)
            digest = sha256(repr([one[0].ids for one in found]).encode()).hexdigest()[:8]
            name = f"{packed.target.name} {precision:9} beam {beam_size}"
            print(f"{name}  {1000 * min(seconds):7.0f} ms  texts {digest}", flush=True)


if __name__ == "__main__":
    main()
