"""Near-duplicates that `attnkit check` finds in corpora, and among repeats with a word changed or added.

    PYTHONPATH=src python benchmarks/near_duplicates.py --multi30k FOLDER

Repeats of 500 pairs drawn from each corpus are added at its end: one word of the source, or of either side, is replaced
by another of the corpus, or one is added. Pairs found before the end are those that the corpus has of its own. The
seconds are of the processor, for hashing and comparing.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import get_args

from attnkit.quality.near_duplicates import NearDuplicateFinder
from attnkit.text.toy.corpus import Kind, make_files

N_REPEATS, N_TOY = 500, 25_000
Pair = tuple[str, str]


def corpora(folder: Path) -> dict[str, list[Pair]]:
    """Return pairs by name: Multi30k, and the toy corpora of pairs."""
    sides = [(folder / f"train.{language}").read_text().split("\n")[:-1] for language in ("en", "de")]
    found = {"Multi30k": list(zip(*sides, strict=True))}
    for kind in get_args(Kind):
        made = make_files(kind, N_TOY, 1, n_valid=1, n_test=1)
        sides = [list(lines) for name, lines in sorted(made.items()) if name.startswith("train")]
        if len(sides) == 2:
            found[f"toy {kind}"] = list(zip(*sides, strict=True))
    return found


def change(line: str, words: list[str], draw: random.Random) -> str:
    """Replace a word of a line, or add one."""
    own = line.split() or [""]
    place = draw.randrange(len(own))
    own[place : place + draw.randint(0, 1)] = [draw.choice(words)]
    return " ".join(own)


def main() -> None:
    """Print a line for each corpus and kind of change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi30k", type=Path, required=True)
    for name, pairs in corpora(parser.parse_args().multi30k).items():
        words = [[word for line in side[:N_TOY] for word in line.split()] for side in zip(*pairs, strict=True)]
        for sides in ((0,), (0, 1)):
            draw = random.Random(1)
            added = [
                tuple(change(line, words[k], draw) if k in sides else line for k, line in enumerate(pairs[i]))
                for i in draw.sample(range(len(pairs)), N_REPEATS)
            ]
            began, finder = time.process_time(), NearDuplicateFinder()
            finder.add([*pairs, *((source, target) for source, target in added)])
            found = finder.repeats()
            seconds = time.process_time() - began
            own, again = int((found < len(pairs)).sum()), int((found >= len(pairs)).sum())
            what = "source" if sides == (0,) else "both sides"
            print(f"{name}, {len(pairs):,} pairs, {what}: {own} of its own, {again} of {N_REPEATS}, {seconds:.2f} s")


if __name__ == "__main__":
    main()
