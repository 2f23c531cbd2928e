"""Reverse digit strings with each of the twelve alignment functions. Resumable: run it again to go on.

    PYTHONPATH=src python benchmarks/alignments.py
    PYTHONPATH=src python benchmarks/alignments.py --only "rnn dot" "transformer kernel"

A recurrent model and a Transformer of one layer a side, on strings of 1 to 25 digits; also the recurrent model without
attention. For each: exact answers on strings never seen, by length, and the first checkpoint that answers 95 % of 500
validation strings exactly. Every model of a kind makes the same number of steps, on one thread, so that neither the
learning rate nor the steps to 95 % depend on the machine's load. --minutes is a guard for a model that would take much
longer: its row says whether it was that which ended it. Functions have the options that let them attend sharply, or
the distribution that they are made for (OPTIONS, printed in the table).

Two such commands may run at once: each takes the models that no other one works at. --again, with one command at a
time, trains anew what is in the result file (with --only, only that). Figures go to benchmarks/results/alignments.json
after each model, the plain model's fall with length beside attention's line to alignments-length.svg next to it; the
table is printed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from peers import WORK, Message, claim, digest, forget_rows, read_rows, update_rows

from attnkit.models.attention.config import ALIGNMENT_NAMES
from attnkit.plotting.curves import Curve
from attnkit.plotting.figures import curves_picture
from attnkit.runtime.devices import set_threads
from attnkit.tasks.translation.translator import load_translator

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
HOME = WORK / "alignments"
RESULT = HERE / "results" / "alignments.json"
DATA = {"pairs": 30_000, "test": 2_000, "seed": 7}
VALID, GOAL, THREADS = 500, 0.95, 1
COMMON = ("precision=float32", "checkpoints.keep_last=100", "evaluation.n_samples=0")
OPTIONS: dict[str, tuple[str, ...]] = {
    "similarity": ("model.attention_options.strength=16",),
    "activated_general": ("model.attention_options.activation=softplus",),
    "kernel": ("model.distribution=normalize",),
}
"""Function -> what it needs. A cosine and tanh lie in [-1, 1]: over 26 keys softmax gives no key more than .23 then.
FAVOR+ is an exponential already: the notes divide it by its sum, and softmax would be one of the other."""


@dataclass(frozen=True)
class Kind:
    """A model, what is changed in its example, and how long it trains."""

    example: str
    changes: tuple[str, ...]
    steps: int
    every: int
    """Steps between two checkpoints."""


KINDS = {
    "rnn": Kind("reversal.yaml", ("model.attention_options.d_hidden=32",), 1600, 100),
    "transformer": Kind(
        "reversal-transformer.yaml",
        (
            "model.attention_options.d_hidden=16",
            "model.encoder_layers=1",
            "model.decoder_layers=1",
            "optimization.batch_tokens=1000",
        ),
        2400,
        200,
    ),
}


def names_of(kind: str) -> list[str]:
    """Return the functions that a kind of model is trained with."""
    return [*ALIGNMENT_NAMES, *(["none"] if kind == "rnn" else [])]


KEYS = [f"{kind} {name}" for kind in KINDS for name in names_of(kind)]


def settings() -> Message:
    """Return all that figures depend on."""
    return {
        "data": DATA,
        "validation strings": VALID,
        "goal": GOAL,
        "threads": THREADS,
        "common": COMMON,
        "recipes": {name: yaml.safe_load((EXAMPLES / kind.example).read_text()) for name, kind in KINDS.items()},
        "kinds": {name: asdict(kind) for name, kind in KINDS.items()},
        "options": OPTIONS,
        "torch": torch.__version__,
    }


def attnkit(*arguments: object) -> None:
    """Run a command of the toolkit."""
    subprocess.run([sys.executable, "-m", "attnkit", *map(str, arguments)], check=True)


def corpus() -> Path:
    """Return the folder of the strings, which are made the first time."""
    folder: Path = HOME / f"data-{digest(DATA)}"
    with claim("alignments data", wait=True):
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            sizes = ["--pairs", DATA["pairs"], "--test", DATA["test"], "--seed", DATA["seed"]]
            attnkit("toy-corpus", "reverse", "-o", folder, *sizes)
            (folder / "made").touch()
    return folder


def run_folder(key: str) -> Path:
    """Return where a model is trained: never where one of other settings was."""
    return Path(HOME / digest(settings()) / key.replace(" ", "-"))


def exact(run: Path, part: Path, checkpoint: str | None, most: int) -> dict[int, list[bool]]:
    """Return length -> whether each string of a part of the corpus is answered without a fault."""
    sources, targets = (
        part.with_name(f"{part.name}.{side}").read_text().splitlines()[:most] for side in ("src", "tgt")
    )
    found: dict[int, list[bool]] = defaultdict(list)
    answers = load_translator([run], device="cpu", checkpoint=checkpoint).translate(sources)
    for source, wanted, given in zip(sources, targets, answers, strict=True):
        found[len(source.split())].append(given == wanted)
    return found


def share(found: dict[int, list[bool]]) -> float:
    """Return the share of exact answers."""
    every = [right for row in found.values() for right in row]
    return sum(every) / len(every)


def steps_to_goal(run: Path, part: Path) -> int | None:
    """Return the step of the first checkpoint that reaches the goal on validation strings."""
    steps = sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))
    return next((step for step in steps if share(exact(run, part, f"step-{step}", VALID)) >= GOAL), None)


def train(key: str, data: Path, minutes: float) -> None:
    """Train one model, or go on with it."""
    name, alignment = key.split(" ")
    kind = KINDS[name]
    sets = (*COMMON, *kind.changes, f"evaluation.every_steps={kind.every}", "limits.max_epochs=null")
    sets = (*sets, f"model.alignment={alignment}", *OPTIONS.get(alignment, ()))
    attnkit(
        "train", "--config", EXAMPLES / kind.example, "-o", run_folder(key), "--threads", THREADS,
        "--max-steps", kind.steps, "--max-minutes", minutes,
        "--src", data / "train.src", "--tgt", data / "train.tgt",
        "--valid-src", data / "valid.src", "--valid-tgt", data / "valid.tgt",
        *(part for value in sets for part in ("--set", value)),
    )  # fmt: skip


def measure(key: str, data: Path, minutes: float) -> dict[str, Any]:
    """Train one model and return its figures."""
    train(key, data, minutes)
    run = run_folder(key)
    seen, longer = (exact(run, data / part, None, DATA["test"]) for part in ("test", "test-long"))
    last = json.loads((run / "timings.jsonl").read_text().splitlines()[-1])
    return {
        "options": [option.rpartition(".")[2] for option in OPTIONS.get(key.split(" ")[1], ())],
        "exact, lengths 1-25": share(seen),
        "exact, lengths 26-30, never trained on": share(longer),
        "steps to the goal": steps_to_goal(run, data / "valid"),
        "steps": last["step"],
        "minutes": round(last["minutes"], 2),
        "ended by the guard of minutes": last["step"] < KINDS[key.split(" ")[0]].steps,
        "by length": {str(n): sum(row) / len(row) for n, row in sorted({**seen, **longer}.items())},
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the figures as a table of Markdown."""
    lines = ["| model | alignment | exact, 1-25 | exact, 26-30 | steps to 95 % | steps | minutes |", "|" + "---|" * 7]
    for key in (key for key in KEYS if key in rows):
        row, (kind, name) = rows[key], key.split(" ")
        shown = [f"{row[part]:.1%}" for part in ("exact, lengths 1-25", "exact, lengths 26-30, never trained on")]
        steps = f"{row['steps']}{', out of time' if row['ended by the guard of minutes'] else ''}"
        function = f"{name} ({', '.join(row['options'])})" if row["options"] else name
        cells = [kind, function, *shown, str(row["steps to the goal"] or "-"), steps, f"{row['minutes']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(rows: dict[str, dict[str, Any]]) -> bytes | None:
    """Return the share of exact answers by length, with attention and without, as SVG; None before both are there."""
    chosen = [("rnn none", "no attention", "n"), ("rnn additive", "additive attention", "a"), ("rnn dot", "dot", "d")]
    curves = []
    for key, label, mark in chosen:
        if key in rows:
            points = rows[key]["by length"]
            curves.append(Curve(label, mark, [float(n) for n in points], list(points.values())))
    title = "Exactly reversed strings by length (trained on 1 to 25 digits)"
    return curves_picture(curves, title, "svg") if len(curves) == len(chosen) else None


def main() -> None:
    """Make the strings, train what nobody trains or has trained, write figures after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6.0, help="that a model may train at most")
    parser.add_argument("--only", nargs="+", default=KEYS, choices=KEYS, metavar="NAME", help=f"of {', '.join(KEYS)}")
    parser.add_argument("--again", action="store_true", help="measure anew what the result file holds already")
    parser.add_argument("--result", type=Path, default=RESULT, help="the result file")
    given = parser.parse_args()
    set_threads(THREADS)
    if given.again:
        forget_rows(given.result, settings(), given.only)
        for key in given.only:
            shutil.rmtree(run_folder(key), ignore_errors=True)
    data = corpus()
    for key in given.only:
        with claim(str(run_folder(key))) as mine:
            if mine and key not in read_rows(given.result, settings()):
                row = measure(key, data, given.minutes)
                with update_rows(given.result, settings()) as rows:
                    rows[key] = row
                print(key, json.dumps(row), flush=True)
    rows = read_rows(given.result, settings())
    drawn = plot(rows)
    if drawn is not None:
        given.result.with_name(f"{given.result.stem}-length.svg").write_bytes(drawn)
    print(table(rows))


if __name__ == "__main__":
    main()
