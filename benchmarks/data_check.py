"""Damaged corpora, drawn: does `attnkit check` find the damage, its kind and its place, and is it silent on clean ones?

    PYTHONPATH=src python benchmarks/data_check.py --multi30k FOLDER [--damaged 500] [--clean 200] [--seed 0]
    PYTHONPATH=src python benchmarks/data_check.py --multi30k FOLDER --million

FOLDER has train.en and train.de. The other corpora are made: English-French, reversal, code and headlines. A case is a
corpus of 1,000 to 100,000 pairs (Multi30k has 29,000) with one fault:

    shift       1 to 50 lines are added to or missing from one side at any place, and both sides cut to one length
    blocks      two blocks of one side are exchanged
    drop        a line of one side is dropped and another doubled, so that the totals agree
    sides       source and target are exchanged in a block of at least 2 %, or, with training files, everywhere
    language    a block of at least 2 % of one side is in another language
    copies      at least 5 % of the targets are copies of their sources
    mojibake    at least 2 % of the lines of one side are UTF-8 read as Windows-1252

It counts as found if a stretch or finding of the kind, on the right side, begins within 50 lines of the place, with the
right shift. False alarms are clean corpora whose verdict is not good. It takes a quarter of an hour on two cores.
Figures go to benchmarks/results/data_check.json; cases done with the same sources are not done again.

--million times `attnkit check` of 1,000,000 pairs (Multi30k over and over, and the toy English-French) instead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from peers import machine

RESULT = Path(__file__).parent / "results" / "data_check.json"
CORPORA = ("multi30k", "english-french", "reverse", "code", "summary")
MARGIN = 50  # lines
SWAPPED = ("swapped", "swapped_pairs", "target_in_source_language", "source_in_target_language")
Pair = tuple[list[str], list[str]]


@dataclass
class Case:
    """A damaged corpus, and what should be found."""

    src: list[str]
    tgt: list[str]
    names: tuple[str, ...]  # kinds that count as found
    first: int | None = None  # line, from 1
    shift: int | None = None
    training: Pair | None = None


@cache
def corpus(name: str, folder: str) -> Pair:
    """Return all pairs of a corpus."""
    if name == "multi30k":
        paths = [Path(folder) / f"train.{language}" for language in ("en", "de")]
        src, tgt = (path.read_text().split("\n")[:-1] for path in paths)
        return src, tgt
    made = Path(tempfile.gettempdir()) / f"attnkit-data-check-{name}"
    if not made.exists():
        command = ["-m", "attnkit", "toy-corpus", name, "-o", str(made), "--pairs", "100000"]
        subprocess.run([sys.executable, *command], check=True)
    first, second = ("train.en", "train.fr") if name == "english-french" else ("train.src", "train.tgt")
    src, tgt = ((made / side).read_text().split("\n")[:-1] for side in (first, second))
    return src, tgt


def draw(name: str, folder: str, random: random.Random) -> Pair:
    """Return consecutive pairs of a corpus, at any place, of any size."""
    src, tgt = corpus(name, folder)
    n = min(len(src), int(10 ** random.uniform(3, 5)))
    begin = random.randrange(len(src) - n + 1)
    return src[begin : begin + n], tgt[begin : begin + n]


def shift(src: list[str], tgt: list[str], random: random.Random, folder: str) -> Case:
    n, by = len(src), random.randint(1, 50)
    at = random.choice([0, random.randrange(n - 200)])
    sides = [src, tgt]
    side = random.randrange(2)
    if random.random() < 0.5:
        sides[side] = sides[side][:at] + sides[side][at + by :]
        moved, first = -by, at + by  # of the target, if lines are missing there
        if side == 0:
            moved, first = by, at
    else:
        sides[side] = sides[side][:at] + random.sample(sides[side], by) + sides[side][at:]
        moved, first = by, at
        if side == 0:
            moved, first = -by, at + by
    length = min(map(len, sides))
    return Case(sides[0][:length], sides[1][:length], ("shifted",), first + 1, moved)


def blocks(src: list[str], tgt: list[str], random: random.Random, folder: str) -> Case:
    n = len(src)
    size = random.randint(30, n // 5)
    a = random.randrange(n // 2 - size + 1)
    b = random.randrange(n // 2, n - size + 1)
    side = random.choice([src, tgt])
    side[a : a + size], side[b : b + size] = side[b : b + size], side[a : a + size]
    return Case(src, tgt, ("shifted",), a + 1, b - a)


def drop(src: list[str], tgt: list[str], random: random.Random, folder: str) -> Case:
    n = len(src)
    length = int(10 ** random.uniform(1.5, 0.95 * len(str(n)) - 1.0))
    length = min(max(30, length), n - 2)
    at = random.randrange(n - length - 1)
    side, moved = random.choice([(src, 1), (tgt, -1)])
    if random.random() < 0.5:  # dropped first, doubled later; otherwise the other way round
        del side[at]
        side.insert(at + length, side[at + length - 1])
    else:
        side.insert(at, side[at])
        del side[at + length]
        moved = -moved
    return Case(src, tgt, ("shifted",), at + 1, moved)


def sides(src: list[str], tgt: list[str], random: random.Random, folder: str) -> Case:
    n = len(src)
    if random.random() < 0.3:
        half = n // 2
        return Case(tgt[half:], src[half:], ("swapped_sides",), None, None, (src[:half], tgt[:half]))
    size = random.randint(n // 50, n // 3)
    at = random.randrange(n - size)
    src[at : at + size], tgt[at : at + size] = tgt[at : at + size], src[at : at + size]
    return Case(src, tgt, SWAPPED, at + 1)


def language(src: list[str], tgt: list[str], random: random.Random, folder: str) -> Case:
    n = len(src)
    size = random.randint(n // 50, n // 3)
    at = random.randrange(n - size)
    is_german = any("ein " in line.lower() for line in tgt[:100])
    other = corpus("english-french", folder)[1] if is_german else corpus("multi30k", folder)[1]
    begin = random.randrange(len(other) - size) if size < len(other) else 0
    block = (other * (1 + size // len(other)))[begin : begin + size]
    number = random.randrange(2)
    (src, tgt)[number][at : at + size] = block
    return Case(src, tgt, (f"{('source', 'target')[number]}_in_other_language",), at + 1)


def copies(src: list[str], tgt: list[str], random: random.Random, folder: str) -> Case:
    n = len(src)
    chosen = sorted(random.sample(range(n), random.randint(n // 20, n)))
    for line in chosen:
        tgt[line] = src[line]
    return Case(src, tgt, ("copied",), None)


def mojibake(src: list[str], tgt: list[str], random: random.Random, folder: str) -> Case:
    with_marks = [i for i, line in enumerate(tgt) if not line.isascii()]
    least = min(len(with_marks), max(1, len(tgt) // 50))
    chosen = sorted(random.sample(with_marks, random.randint(least, len(with_marks))))
    for line in chosen:
        tgt[line] = tgt[line].encode().decode("cp1252", errors="replace").replace("\ufffd", "")
    return Case(src, tgt, ("mojibake",), chosen[0] + 1)


FAULTS: dict[str, Callable[[list[str], list[str], random.Random, str], Case]] = {
    "shift": shift, "blocks": blocks, "drop": drop, "sides": sides, "language": language, "copies": copies,
    "mojibake": mojibake,
}  # fmt: skip
LANGUAGES_ONLY = ("sides", "copies", "mojibake")  # faults that mean something between languages only


def try_case(number: int, folder: str, clean: bool) -> dict[str, object]:
    """Make case ``number``, check it and compare."""
    from attnkit.quality.doctor import examine_pair

    rng = random.Random(f"{number} {clean}")
    fault = "none" if clean else list(FAULTS)[number % len(FAULTS)]
    names = CORPORA if fault not in LANGUAGES_ONLY else CORPORA[:2]
    name = rng.choice(names)
    src, tgt = draw(name, folder, rng)
    case = Case(src, tgt, ()) if clean else FAULTS[fault](src, tgt, rng, folder)
    with tempfile.TemporaryDirectory() as made:
        files = {"a.src": case.src, "a.tgt": case.tgt}
        if case.training:
            files |= {"b.src": case.training[0], "b.tgt": case.training[1]}
        for file, lines in files.items():
            (Path(made) / file).write_text("".join(line + "\n" for line in lines))
        paths = [Path(made) / file for file in files]
        start = time.perf_counter()
        report = examine_pair(paths[0], paths[1], others=(paths[2], paths[3]) if case.training else None)
        seconds = time.perf_counter() - start
    places = [(s.kind, s.first, s.shift) for s in report.stretches]
    places += [(f.name, f.first_line, None) for f in report.findings if (f.name, f.first_line) not in places]
    hit = any(
        kind in case.names
        and (case.first is None or (first is not None and abs(first - case.first) <= MARGIN))
        and (case.shift is None or found == case.shift)
        for kind, first, found in places
    )
    alarm = report.severity != "good" and not (report.severity == "warning" and "few" in report.verdict)
    return {
        "number": number, "fault": fault, "corpus": name, "pairs": len(case.src), "hit": hit and alarm, "alarm": alarm,
        "wanted": [case.names[:1], case.first, case.shift], "found": places[:4], "verdict": report.verdict,
        "seconds": seconds,
    }  # fmt: skip


def time_million(folder: str) -> None:
    """Time the check of a million pairs in a process of its own; write the seconds."""
    seconds = {}
    for name in ("multi30k", "english-french"):
        src, tgt = corpus(name, folder)
        with tempfile.TemporaryDirectory() as made:
            paths = [Path(made) / side for side in ("a.src", "a.tgt")]
            for path, lines in zip(paths, (src, tgt), strict=True):
                repeated = (lines * (1 + 1_000_000 // len(lines)))[:1_000_000]
                path.write_text("".join(line + "\n" for line in repeated))
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "attnkit", "check", *map(str, paths)], check=True)
            seconds[name] = round(time.perf_counter() - start, 1)
    print(seconds)
    figures = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    RESULT.write_text(json.dumps({**figures, "million": {"machine": machine(), "seconds": seconds}}, indent=1) + "\n")


def done_before(sources: str) -> tuple[Path, dict[tuple[bool, int], dict[str, object]]]:
    """Return the file of cases done with these sources, and the cases in it."""
    path = Path(tempfile.gettempdir()) / f"attnkit-data-check-cases-{sources}.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    cases = [json.loads(line) for line in lines if line.endswith("}")]
    return path, {(case["fault"] == "none", case["number"]): case for case in cases}


def main() -> None:
    """Run all cases and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi30k", required=True)
    parser.add_argument("--damaged", type=int, default=500)
    parser.add_argument("--clean", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--million", action="store_true", help="time the check of a million pairs")
    args = parser.parse_args()
    for name in CORPORA:
        corpus(name, args.multi30k)
    if args.million:
        time_million(args.multi30k)
        return
    from attnkit import quality

    files = [Path(__file__), *sorted(Path(quality.__path__[0]).glob("*.py"))]
    path, before = done_before(hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12])
    found: dict[str, Counter[str]] = defaultdict(Counter)
    missed = []
    with ProcessPoolExecutor(2) as pool, path.open("a") as record:
        for clean, n in ((False, args.damaged), (True, args.clean)):
            numbers = range(args.seed, args.seed + n)
            new = [number for number in numbers if (clean, number) not in before]
            cases = pool.map(try_case, new, [args.multi30k] * len(new), [clean] * len(new))
            for number in numbers:
                case = before.get((clean, number)) or next(cases)
                if (clean, number) not in before:
                    record.write(json.dumps(case, ensure_ascii=False) + "\n")
                    record.flush()
                right = not case["alarm"] if clean else case["hit"]
                found[str(case["fault"])]["right" if right else "wrong"] += 1
                found[str(case["corpus"]) + (", clean" if clean else "")]["right" if right else "wrong"] += 1
                if not right:
                    missed.append(case)
                    print(json.dumps(case, ensure_ascii=False), flush=True)
    n_hit = args.damaged - sum(1 for case in missed if case["fault"] != "none")
    n_false = sum(1 for case in missed if case["fault"] == "none")
    print(f"found {n_hit} of {args.damaged}; false alarms {n_false} of {args.clean}")
    for name, counts in found.items():
        print(f"  {name:<24} {counts['right']} of {counts.total()}")
    figures = {
        "machine": machine(), "damaged": args.damaged, "found": n_hit, "clean": args.clean, "false_alarms": n_false,
        "by": {name: [counts["right"], counts.total()] for name, counts in found.items()},
        "missed": [{k: v for k, v in case.items() if k != "seconds"} for case in missed],
    }  # fmt: skip
    earlier = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    figures |= {"million": earlier["million"]} if "million" in earlier else {}
    RESULT.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
