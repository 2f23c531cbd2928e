"""Signs of trouble: precision and recall of each flag of `translate --json`, on drawn faults.

    PYTHONPATH=src python benchmarks/translation_signs.py --multi30k RUN FOLDER --toy RUN FOLDER

The first RUN translates English of Multi30k to German; its FOLDER has val.en, val.de, test_2016_flickr.en and .de. The
second translates the toy corpus to French; its FOLDER has test.en and test.fr. Faults are drawn into lines that neither
run was trained on: into sources, and into their reference translations. Then each run translates lines itself. Written
to benchmarks/results/translation_signs.json.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnkit.tasks.translation.loading import OpenedRun, open_run
from attnkit.tasks.translation.signs import NO_PROFILE, Sign, SourceSigns
from attnkit.tasks.translation.translated_line import Output, TranslatedLine
from attnkit.tasks.translation.translator import load_translator

RESULTS = Path(__file__).parent / "results" / "translation_signs.json"
N = 500  #: lines per fault
SOURCE_SIGNS: tuple[Sign, ...] = ("unlike", "unknown", "length")
OUTPUT_SIGNS: tuple[Sign, ...] = ("repeated", "copied", "empty", "short", "long")
CYRILLIC = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопкрстувшхыз")
SHORT = [
    f"{a} {noun} {verb}."
    for a in ("A", "The", "This")
    for noun in ("boy", "child", "dog", "girl", "man", "woman")
    for verb in ("is eating", "runs", "sleeps", "stood", "waits")
]
"""Correct sentences, shorter than most of either training text."""
STRANGE = "łşđ☃中ψ🙂"

Pair = tuple[str, str]
Fault = Callable[[random.Random, Pair, Pair], Pair]


def shuffle(draw: random.Random, line: str) -> str:
    """Return a line with the letters of each word in another order."""
    return " ".join("".join(draw.sample(word, len(word))) for word in line.split())


def insert(draw: random.Random, line: str) -> str:
    """Return a line with a strange character in it."""
    at = draw.randint(0, len(line))
    return line[:at] + draw.choice(STRANGE) + line[at:]


def double(draw: random.Random, line: str) -> str:
    """Return a line in which one to four words come three to eight times in a row."""
    words = line.split()
    at, n = draw.randrange(len(words)), draw.randint(1, 4)
    span = words[at : at + n]
    return " ".join(words[:at] + span * draw.randint(3, 8) + words[at + n :])


def copy_most(draw: random.Random, source: str, target: str) -> str:
    """Return a source in which one word in five is from the translation."""
    words, others = source.split(), target.split()
    for at in draw.sample(range(len(words)), len(words) // 5):
        words[at] = draw.choice(others)
    return " ".join(words)


def shorten(line: str) -> str:
    """Return the first quarter of a line's words."""
    words = line.split()
    return " ".join(words[: max(1, len(words) // 4)])


# Each fault, the signs that it must have, and those that it may have.
FAULTS: dict[str, tuple[Fault, set[Sign], set[Sign]]] = {
    "letters shuffled": (lambda draw, a, b: (shuffle(draw, a[0]), a[1]), {"unlike"}, {"length"}),
    "in Cyrillic letters": (
        lambda draw, a, b: (a[0].lower().translate(CYRILLIC), a[1]),
        {"unlike", "unknown"},
        {"length"},
    ),
    "a strange character": (lambda draw, a, b: (insert(draw, a[0]), a[1]), {"unknown"}, set()),
    "the target language": (lambda draw, a, b: (a[1], a[1]), {"unlike"}, {"unknown", "length"}),
    "four lines as one": (lambda draw, a, b: (" ".join([a[0], b[0]] * 2), a[1]), {"length"}, set()),
    "the first two words": (lambda draw, a, b: (" ".join(a[0].split()[:2]), a[1]), {"length"}, set()),
    "words repeated": (lambda draw, a, b: (a[0], double(draw, a[1])), {"repeated"}, {"long"}),
    "the source": (lambda draw, a, b: (a[0], a[0]), {"copied"}, set()),
    "four fifths of the source": (lambda draw, a, b: (a[0], copy_most(draw, *a)), {"copied"}, set()),
    "nothing": (lambda draw, a, b: (a[0], ""), {"empty"}, set()),
    "a quarter of the translation": (lambda draw, a, b: (a[0], shorten(a[1])), {"short"}, set()),
    "two more translations": (lambda draw, a, b: (a[0], f"{a[1]} {b[1]} {b[1]}"), {"long"}, {"repeated"}),
}


def find(run: OpenedRun, pairs: list[Pair]) -> list[list[Sign]]:
    """Return the signs of pairs, as if the target were the translation."""
    profile = run.training_profile or NO_PROFILE
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    found, signs = [], SourceSigns(sources, profile, run.src_tokenizer.normalize)
    read, written = run.src_tokenizer.encode(sources), run.tgt_tokenizer.encode(targets)
    for i, (src, tgt, ids, out) in enumerate(zip(sources, targets, read, written, strict=True)):
        output = Output(tgt, 0.0, 0.0, [out], True, None, run.tgt_tokenizer)
        line = TranslatedLine(src, [ids], [output], run.src_tokenizer, False, partial(signs.of, i), profile)
        found.append(line.signs)
    return found


def measure(run: OpenedRun, pairs: list[Pair], foreign: dict[str, list[str]]) -> dict[str, Any]:
    """Return how often each fault has its signs, and precision and recall of each sign."""
    draw = random.Random(1)
    right, wrong, missed = Counter[Sign](), Counter[Sign](), Counter[Sign]()
    by_fault: dict[str, Any] = {}

    def count(name: str, faulty: list[Pair], must: set[Sign], may: set[Sign], looked_at: tuple[Sign, ...]) -> None:
        found = [set(signs) & set(looked_at) for signs in find(run, faulty)]
        for signs in found:
            right.update(signs & must)
            missed.update(must - signs)
            wrong.update(signs - must - may)
        by_fault[name] = {
            "lines": len(faulty),
            "with all of its signs": sum(must <= signs for signs in found) if must else None,
            "with any sign": sum(map(bool, found)),
        }

    count("none", pairs, set(), set(), (*SOURCE_SIGNS, *OUTPUT_SIGNS))
    for name, (fault, must, may) in FAULTS.items():
        chosen = draw.sample(pairs, min(N, len(pairs)))
        faulty = [fault(draw, pair, draw.choice(pairs)) for pair in chosen]
        # Of a fault in the source nothing is expected of the reference, and the other way round.
        count(name, faulty, must, may, SOURCE_SIGNS if must & set(SOURCE_SIGNS) else OUTPUT_SIGNS)
    for name, lines in foreign.items():
        count(name, [(line, line) for line in lines[:N]], {"unlike"}, {"unknown", "length"}, SOURCE_SIGNS)
    signs = {
        sign: {
            "precision": round(right[sign] / max(1, right[sign] + wrong[sign]), 4),
            "recall": round(right[sign] / max(1, right[sign] + missed[sign]), 4),
            "faults": right[sign] + missed[sign],
            "false alarms": wrong[sign],
        }
        for sign in (*SOURCE_SIGNS, *OUTPUT_SIGNS)
    }
    return {"signs": signs, "faults": by_fault}


def has_loop(text: str, reference: str) -> bool:
    """Return whether two words come three times or more, anywhere, and not in the reference."""

    def most(line: str) -> int:
        words = line.casefold().split()
        return max(Counter(pairwise(words)).values(), default=0)

    return most(text) >= 3 > most(reference)


def translate(path: Path, pairs: list[Pair], foreign: dict[str, list[str]]) -> dict[str, Any]:
    """Return the signs of a run's own translations."""
    translator = load_translator([path], device="cpu")
    config = translator.configure({"beam_size": 1})
    found: dict[str, Any] = {}
    for name, lines in {"sources": [src for src, _ in pairs[:N]], **foreign}.items():
        translated = list(translator.stream(lines[: N // 2 if name != "sources" else N], config))
        counts = Counter(sign for line in translated for sign in line.signs)
        found[name] = {"lines": len(translated), "flagged": sum(bool(line.signs) for line in translated), **counts}
        if name == "sources":
            outputs = [
                (line, has_loop(line.outputs[0].text, tgt)) for line, (_, tgt) in zip(translated, pairs, strict=False)
            ]
            flagged = ["repeated" in line.signs or "cut" in line.signs for line, _ in outputs]
            loops = [is_loop for _, is_loop in outputs]
            found[name]["with loops"] = sum(loops)
            found[name]["with loops and repeated or cut"] = sum(a and b for a, b in zip(flagged, loops, strict=True))
            found[name]["repeated or cut"] = sum(flagged)
    return found


def read_pairs(folder: Path, names: list[str], endings: tuple[str, str]) -> list[Pair]:
    """Return the pairs of files."""
    texts = [[(folder / f"{name}.{ending}").read_text().splitlines() for ending in endings] for name in names]
    return [pair for src, tgt in texts for pair in zip(src, tgt, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi30k", type=Path, nargs=2, required=True, metavar=("RUN", "FOLDER"))
    parser.add_argument("--toy", type=Path, nargs=2, required=True, metavar=("RUN", "FOLDER"))
    arguments = parser.parse_args()
    corpora = {
        "multi30k": (*arguments.multi30k, read_pairs(arguments.multi30k[1], ["val", "test_2016_flickr"], ("en", "de"))),
        "toy": (*arguments.toy, read_pairs(arguments.toy[1], ["test"], ("en", "fr"))),
    }
    results: dict[str, Any] = {}
    for name, (path, _, pairs) in corpora.items():
        other = corpora["toy" if name == "multi30k" else "multi30k"][2]
        language = "French" if name == "multi30k" else "German"
        foreign = {f"{language} lines": [tgt for _, tgt in other]}
        subject = {"English of another subject": [src for src, _ in other]}
        run = open_run(path)
        results[name] = measure(run, pairs, foreign)
        flagged = [
            bool(set(signs) & {"unlike"}) for signs in find(run, [(src, src) for src in subject.popitem()[1][:N]])
        ]
        results[name]["English of another subject"] = {"lines": len(flagged), "unlike": sum(flagged)}
        marked = [bool({"length"} & set(signs)) for signs in find(run, [(src, src) for src in SHORT])]
        results[name]["short sentences"] = {"lines": len(marked), "length": sum(marked)}
        own = {"target-language lines": [tgt for _, tgt in pairs], **foreign}
        results[name]["translations"] = translate(path, pairs, own)
        for sign, figures in results[name]["signs"].items():
            print(f"{name:10} {sign:10}", *(f"{key} {value}" for key, value in figures.items()))
        for fault, figures in [*results[name]["faults"].items(), *results[name]["translations"].items()]:
            print(f"{name:10} {fault:30}", figures)
        print(name, results[name]["English of another subject"], results[name]["short sentences"])
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
