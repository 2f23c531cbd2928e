"""Lines of several sentences: do `translate --split` and its rules keep every sentence, and the quality of lines?

    PYTHONPATH=src python benchmarks/sentences.py --run RUN --data FOLDER [--beam-size 5]

RUN is a translator of Multi30k; FOLDER has val.en, val.de, test_2016_flickr.en and .de. Their sentences, each ended by
a mark, are joined to lines of two to five by spaces, double spaces and tabs. Printed and written to
benchmarks/results/sentences.json: how many sentences the rules find, how many lines come back with as many, and BLEU of
the joined lines translated as sentences, as whole lines, and of the single sentences translated and then joined.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

from attnkit.metrics.bleu import corpus_bleu
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.sentences import SentenceSplitter

RESULTS = Path(__file__).parent / "results" / "sentences.json"
ENDED = re.compile(r"[.!?]\s*$")


def read_pairs(folder: Path) -> list[tuple[str, str]]:
    """Return the sentence pairs of both files; every source ends with a mark."""
    pairs = []
    for name in ("val", "test_2016_flickr"):
        src, tgt = ((folder / f"{name}.{side}").read_text().splitlines() for side in ("en", "de"))
        ended = [line.strip() if ENDED.search(line) else f"{line.strip()}." for line in src]
        pairs += [(a, b.strip()) for a, b in zip(ended, tgt, strict=True)]
    return pairs


def main() -> None:
    """Translate the lines in three ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--beam-size", type=int, default=5)
    given = parser.parse_args()
    rng, pairs = random.Random(1), read_pairs(given.data)
    groups, place = [], 0
    while place < len(pairs):
        n = rng.randint(2, 5)
        groups.append(pairs[place : place + n])
        place += n
    gaps = [[rng.choice([" ", "  ", "\t"]) for _ in group[1:]] for group in groups]

    def join(texts: list[str], between: list[str]) -> str:
        return "".join(text + gap for text, gap in zip(texts, [*between, ""], strict=True))

    lines = [join([src for src, _ in group], between) for group, between in zip(groups, gaps, strict=True)]
    references = [join([tgt for _, tgt in group], between) for group, between in zip(groups, gaps, strict=True)]
    found = [SentenceSplitter().split(line) for line in lines]
    exact = sum(
        [src for src, _ in group] == [text for text, _ in own] for group, own in zip(groups, found, strict=True)
    )
    translator = load_translator([given.run])
    translated: dict[str, list[str]] = {}
    for policy in ("sentences", "lines"):
        translator.segmenter.policy = policy
        translated[policy] = translator.translate(lines, beam_size=given.beam_size)
    single = iter(translator.translate([src for src, _ in pairs], beam_size=given.beam_size))
    translated["one by one"] = [
        join([next(single) for _ in group], between) for group, between in zip(groups, gaps, strict=True)
    ]
    facts = {
        "sentences": len(pairs),
        "lines": len(lines),
        "sentences_found": sum(map(len, found)),
        "lines_split_exactly": exact,
        "lines_equal_to_one_by_one": sum(map(str.__eq__, translated["sentences"], translated["one by one"])),
        "bleu": {name: round(corpus_bleu(texts, [references]).score, 2) for name, texts in translated.items()},
    }
    print(json.dumps(facts, indent=1))
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
