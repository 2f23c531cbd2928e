"""Reverse digit strings with each of the twelve alignment functions. Resumable: run it again to go on.

    python benchmarks/alignments.py

A recurrent model and a Transformer of one layer a side, on strings of 1 to 25 digits; also the recurrent model without
attention. For each: exact answers on strings never seen, by length, and the first checkpoint that answers 95 % of 500
validation strings exactly. A run ends after 3 minutes (--minutes). Figures go to benchmarks/results/alignments.json,
the plain model's fall with length beside attention's line to benchmarks/results/alignments-length.svg; the table is
printed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from attnkit.models.attention.config import ALIGNMENT_NAMES
from attnkit.tasks.translate import load_translator
from attnkit.views.curves import Curve, svg_plot

HERE = Path(__file__).parent
WORK = HERE / ".work" / "alignments"
RESULTS = HERE / "results" / "alignments.json"
PAIRS, TEST, VALID, GOAL = 30_000, 2_000, 500, 0.95
COMMON = ("model.attention_options.d_hidden=32", "checkpoints.keep_last=100", "evaluation.samples=0")
MODELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "rnn": ("reversal.yaml", ()),
    "transformer": ("reversal-transformer.yaml", ("model.encoder_layers=1", "model.decoder_layers=1")),
}
"""Kind -> its example and what is changed in it."""
EVERY = {"rnn": 100, "transformer": 200}
"""Steps between two checkpoints."""


def names_of(kind: str) -> list[str]:
    """Return the functions that a kind of model is trained with."""
    return [*ALIGNMENT_NAMES, *(["none"] if kind == "rnn" else [])]


def attnkit(*arguments: str | Path) -> None:
    """Run a command of the toolkit."""
    subprocess.run([sys.executable, "-m", "attnkit", *map(str, arguments)], check=True)


def read(name: str) -> list[str]:
    """Return the lines of a part of the corpus."""
    return (WORK / "data" / name).read_text().splitlines()


def exact(run: Path, part: str, checkpoint: str | None, most: int) -> dict[int, list[bool]]:
    """Return length -> whether each string of it is answered without a fault."""
    sources, targets = read(f"{part}.src")[:most], read(f"{part}.tgt")[:most]
    found: dict[int, list[bool]] = defaultdict(list)
    answers = load_translator([run], checkpoint=checkpoint).translate(sources)
    for source, wanted, given in zip(sources, targets, answers, strict=True):
        found[len(source.split())].append(given == wanted)
    return found


def share(found: dict[int, list[bool]]) -> float:
    """Return the share of exact answers."""
    every = [right for row in found.values() for right in row]
    return sum(every) / len(every)


def steps_to_goal(run: Path) -> int | None:
    """Return the step of the first checkpoint that reaches the goal on validation strings."""
    steps = sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))
    return next((step for step in steps if share(exact(run, "valid", f"step-{step}", VALID)) >= GOAL), None)


def measure(kind: str, name: str, minutes: float) -> dict[str, Any]:
    """Train one model and return its figures."""
    run, (example, changes) = WORK / f"{kind}-{name}", MODELS[kind]
    sets = [*COMMON, *changes, f"model.alignment={name}", f"evaluation.every_steps={EVERY[kind]}"]
    data = WORK / "data"
    attnkit(
        "train", "--config", HERE.parent / "examples" / example, "-o", run, "--max-minutes", str(minutes),
        "--src", data / "train.src", "--tgt", data / "train.tgt",
        "--valid-src", data / "valid.src", "--valid-tgt", data / "valid.tgt",
        *(part for value in sets for part in ("--set", value)),
    )  # fmt: skip
    seen, longer = exact(run, "test", None, TEST), exact(run, "test-long", None, TEST)
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    status = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return {
        "exact, lengths 1-25": share(seen),
        "exact, lengths 26-30, never trained on": share(longer),
        f"steps to {GOAL:.0%} of {VALID} validation strings": steps_to_goal(run),
        "steps": status["step"],
        "minutes": timings[-1]["minutes"],
        "by length": {str(n): sum(row) / len(row) for n, row in sorted({**seen, **longer}.items())},
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the figures as a table of Markdown."""
    rows = ["| model | alignment | exact, 1-25 | exact, 26-30 | steps to 95 % | steps | minutes |", "|" + "---|" * 7]
    for key, row in results.items():
        kind, name = key.split(" ")
        goal = next(value for label, value in row.items() if re.match("steps to", label))
        shares = (row["exact, lengths 1-25"], row["exact, lengths 26-30, never trained on"])
        shown = [f"{part:.1%}" for part in shares]
        cells = [kind, name, *shown, "-" if goal is None else str(goal), str(row["steps"]), f"{row['minutes']:.1f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def plot(results: dict[str, dict[str, Any]]) -> str | None:
    """Return the share of exact answers by length, with attention and without, as SVG; None before both are there."""
    chosen = [("rnn none", "no attention", "n"), ("rnn additive", "additive attention", "a"), ("rnn dot", "dot", "d")]
    curves = []
    for key, label, mark in chosen:
        if key in results:
            points = results[key]["by length"]
            curves.append(Curve(label, mark, [float(n) for n in points], list(points.values())))
    title = "Exactly reversed strings by length (trained on 1 to 25 digits)"
    return svg_plot(curves, title) if len(curves) == len(chosen) else None


def main() -> None:
    """Make the strings, train what is not yet trained, write figures after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0, help="of training, for each model")
    parser.add_argument("--only", nargs="*", default=[], help="such as 'rnn dot'; all without it")
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if not (WORK / "data").exists():
        attnkit("toy-corpus", "reverse", "-o", WORK / "data", "--pairs", str(PAIRS), "--test", str(TEST), "--seed", "7")
    results: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for kind in MODELS:
        for name in names_of(kind):
            key = f"{kind} {name}"
            if key in results or (given.only and key not in given.only):
                continue
            results[key] = measure(kind, name, given.minutes)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(key, json.dumps(results[key]), flush=True)
    drawn = plot(results)
    if drawn is not None:
        RESULTS.with_name("alignments-length.svg").write_text(drawn)
    print(table(results))


if __name__ == "__main__":
    main()
