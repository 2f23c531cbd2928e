"""Precision and recall of each finding of `check` on single lines, with faults drawn.

    PYTHONPATH=src python benchmarks/data_findings.py [--multi30k FOLDER] [--pairs 20000]

Every fault is put into 1 % of the pairs of a corpus, each pair having one fault at most; the rest is left as it is.
Corpora are the toy English-French and, if FOLDER has train.en and train.de, Multi30k English-German; the target of
each has the third language of the other (the fault means nothing with one corpus). For each finding:
how many lines have the fault, how many are flagged, and how many of these rightly. Where a corpus has faults of its
own (Multi30k repeats pairs and has HTML), they count as wrongly flagged. Takes a minute; the table goes to
benchmarks/results/data_findings.json.
"""

from __future__ import annotations

import argparse
import json
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path

from attnkit.quality.check import MIN_BOILERPLATE, MIN_OCCURRENCES, is_copy
from attnkit.quality.damage import find_damage
from attnkit.quality.judgement import MIN_ODDS, Span, judge_span
from attnkit.quality.overlap import find_seen
from attnkit.quality.pair_filters import DuplicateFinder, find_fault, usual_ratio
from attnkit.quality.repetition import fold, has_repeats
from attnkit.text.toy.corpus import make_files

RESULT = Path(__file__).parent / "results" / "data_findings.json"
LOOK_ALIKES = str.maketrans("aeopcyxAEOPCTXHKMB", "аеорсухАЕОРСТХНКМВ")
Sides = tuple[list[str], list[str]]
Change = Callable[[str, str, random.Random], tuple[str, str]]


def look_alike(line: str, draw: random.Random) -> str:
    """Replace one letter inside a word by a Cyrillic one of the same form."""
    places = [i for i, c in enumerate(line[:-1]) if c.translate(LOOK_ALIKES) != c and line[i + 1].isalpha()]
    place = draw.choice(places) if places else 0
    return line[:place] + line[place].translate(LOOK_ALIKES) + line[place + 1 :]


def near(line: str) -> str:
    """Change case, spaces and the last mark."""
    return f" {line.upper().rstrip('.')} !"


CHANGES: dict[str, Change] = {
    "copied": lambda src, tgt, draw: (src, src),
    "mojibake": lambda src, tgt, draw: (src, tgt.encode().decode("cp1252", "replace").replace("\ufffd", "")),
    "markup": lambda src, tgt, draw: (src, draw.choice([f"<b>{tgt}</b>", f'<a href="x">{tgt}'])),
    "reference": lambda src, tgt, draw: (src, f"{tgt} &amp; {tgt}"),
    "mixed_script": lambda src, tgt, draw: (src, look_alike(tgt, draw)),
    "decomposed": lambda src, tgt, draw: (src, unicodedata.normalize("NFD", tgt)),
    "repeated": lambda src, tgt, draw: (src, " ".join([*tgt.split(), *tgt.split()[-draw.randint(1, 3) :] * 5])),
    "odd_ratio": lambda src, tgt, draw: (src, " ".join([tgt] * draw.randint(25, 40))),
    "control": lambda src, tgt, draw: (src, f"{tgt[:5]}\x00{tgt[5:]}"),
    "other_script": lambda src, tgt, draw: (src, draw.choice(["большой дом стоит там", "σπίτι είναι μεγάλο"])),
}
"""Faults of a pair by itself; those of several pairs are made in ``damaged``."""
OTHERS = ("other_side", "other_language", "swapped_pairs", "duplicate", "near_duplicate", "boilerplate", "near_overlap")


def damaged(
    src: list[str], tgt: list[str], third: list[str], draw: random.Random
) -> tuple[Sides, dict[str, set[int]], list[str]]:
    """Return damaged sides, the lines of each fault, and lines of a test set that overlap.

    ``third`` are lines in a third language.
    """
    src, tgt = list(src), list(tgt)
    size = len(src) // 100
    lines = draw.sample(range(len(src)), size * (len(CHANGES) + len(OTHERS)))
    groups = [lines[i * size : (i + 1) * size] for i in range(len(CHANGES) + len(OTHERS))]
    places = dict(zip((*CHANGES, *OTHERS), map(set, groups), strict=True))
    whole = set(lines)
    spared = [line for line in range(len(src)) if line not in whole]
    for name, change in CHANGES.items():
        for line in places[name]:
            before = tgt[line]
            src[line], tgt[line] = change(src[line], tgt[line], draw)
            if tgt[line] == before:  # nothing to damage, as in a line of ASCII
                whole.discard(line)
    for line in places["other_side"]:
        tgt[line] = src[draw.choice(spared)]
    for line, text in zip(places["other_language"], draw.sample(third, len(places["other_language"])), strict=True):
        tgt[line] = text
    for line in places["swapped_pairs"]:
        src[line], tgt[line] = tgt[line], src[line]
    for name, first in (("duplicate", str), ("near_duplicate", near)):
        for line in sorted(places[name]):
            earlier = draw.choice(spared)
            # The later of the two is the one that repeats.
            places[name].discard(line)
            places[name].add(max(line, earlier))
            src[line], tgt[line] = first(src[earlier]), tgt[earlier]
    for line in places["boilerplate"]:
        src[line] = "All rights of this page are reserved."
    test = []
    for line in places["near_overlap"]:
        words = src[line].split()
        words[draw.randrange(len(words))] = "something"
        test.append(" ".join(words))
    return (
        (src, tgt),
        {name: {line for line in found if line in whole or name not in CHANGES} for name, found in places.items()},
        test,
    )


def flagged(src: list[str], tgt: list[str]) -> dict[str, set[int]]:
    """Return the lines that each finding flags."""
    found: dict[str, set[int]] = {name: set() for name in (*CHANGES, *OTHERS)}
    ratio = usual_ratio(zip(src[:10_000], tgt[:10_000], strict=True))
    finders = DuplicateFinder(), DuplicateFinder(), DuplicateFinder()
    for number, pair in enumerate(zip(src, tgt, strict=True)):
        for line in pair:
            for name, _ in find_damage(line):
                found.setdefault(name, set()).add(number)
            if has_repeats(line, line.split()):
                found["repeated"].add(number)
        if is_copy(*pair):
            found["copied"].add(number)
        if find_fault(*pair, ratio, 9.0) == "odd_ratio":
            found["odd_ratio"].add(number)
        for finder, item in zip(finders, (pair, tuple(map(fold, pair)), pair[0]), strict=True):
            finder.add(item if finder is not finders[2] or len(pair[0]) >= MIN_BOILERPLATE else number)
    found["duplicate"] = set(finders[0].repeats().tolist())
    found["near_duplicate"] = set(finders[1].repeats().tolist()) - found["duplicate"]
    found["boilerplate"] = set(finders[2].frequent(MIN_OCCURRENCES).tolist())
    languages = judge_span(Span(0, src, tgt)).languages
    left, right = languages.against
    found["swapped_pairs"] = set(((left > 0) & (right > 0) & (left + right > MIN_ODDS)).nonzero()[0].tolist())
    found["other_language"] = set(languages.foreign[1][0].nonzero()[0].tolist())
    known = found["swapped_pairs"] | found["copied"] | found["other_language"]
    found["other_side"] = set((right > MIN_ODDS).nonzero()[0].tolist()) - known
    found["other_script"] = set(languages.wrong_scripts[1].nonzero()[0].tolist())
    return found


def main() -> None:
    """Damage the corpora, and print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi30k", type=Path)
    parser.add_argument("--pairs", type=int, default=20_000)
    given = parser.parse_args()
    files = make_files("english-french", given.pairs, 7, n_valid=2, n_test=2)
    corpora = {"english-french": (list(files["train.en"]), list(files["train.fr"]))}
    if given.multi30k is not None:
        src, tgt = ((given.multi30k / f"train.{side}").read_text().split("\n")[:-1] for side in ("en", "de"))
        corpora["multi30k"] = src[: given.pairs], tgt[: given.pairs]
    figures: dict[str, dict[str, dict[str, object]]] = {}
    for corpus, (src, tgt) in corpora.items():
        third = next((other[1] for name, other in corpora.items() if name != corpus), tgt)
        sides, places, test = damaged(src, tgt, third, random.Random(1))
        found = flagged(*sides)
        for name, wanted in places.items():
            if name == "near_overlap":  # of test lines, all of which are copies of training lines but for a word
                n_found = n_right = len(find_seen(test, sides[0]))
            else:
                n_found, n_right = len(found[name]), len(found[name] & wanted)
            precision, recall = (round(n_right / n, 4) if n else None for n in (n_found, len(wanted)))
            row = {"faults": len(wanted), "flagged": n_found, "precision": precision, "recall": recall}
            figures.setdefault(corpus, {})[name] = row
            print(f"{corpus:<16} {name:<16} {row}", flush=True)
    RESULT.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
