"""Multi30k English-German with and without attention, and with heads of different functions. Resumable.

    PYTHONPATH=src python benchmarks/multi30k_attention.py --data DIR
    PYTHONPATH=src python benchmarks/multi30k_attention.py --data DIR --only none "Luong dot"
    PYTHONPATH=src python benchmarks/multi30k_attention.py --data DIR --tune

DIR holds train/val/test_2016_flickr in .en.gz and .de.gz. The recurrent models have the sizes of
examples/multi30k-rnn.yaml, the Transformers those of examples/multi30k.yaml; both train as many epochs as EPOCHS says,
on one thread. The recipe is the example's for all of its kind, fixed beforehand: no model is tuned, so the budget of
tuning is none for each. That of the recurrent example was made for additive attention with input feeding, though, and
may suit others less: --tune trains each of the recurrent models with every dropout and learning rate of GRID
instead (four runs each, as long) and takes the one of the best development BLEU. Every trial stays in the result.

Scores are cased sacreBLEU (13a) of beam 5 on the test set. Beside them stands how spread a recurrent model's attention
is: the entropy of a target word's weights over the source in bits, on average over the first LOOKED_AT translations
(0 is one word, 3.9 all of fifteen words alike). That tells why one function does worse: dot, which nothing scales,
against scaled_dot, which is there for this comparison. The mixed heads are compared with the Transformer by a
paired bootstrap. Two such commands may run at once: each takes the runs that no other one works at. --again, with one
command at a time, trains anew what is in the result file (with --only, only that). Figures go to
benchmarks/results/multi30k-attention.json after each run, those of --tune to multi30k-attention-tuned.json.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sacrebleu
import torch
import yaml
from multi30k import count_parameters
from peers import WORK, Message, claim, digest, forget_rows, read_rows, update_rows

from attnkit.metrics.bleu import paired_bootstrap

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
HOME = WORK / "multi30k-attention"
RESULT = HERE / "results" / "multi30k-attention.json"
EPOCHS, THREADS = {"rnn": 7, "transformer": 7}, 1
CONFIGS = {"rnn": "multi30k-rnn.yaml", "transformer": "multi30k.yaml"}
LUONG = ("model.attention_query=current", "model.input_feeding=true")
BAHDANAU = ("model.attention_query=previous", "model.input_feeding=false")
RECURRENT: dict[str, tuple[str, ...]] = {
    "none": ("model.alignment=none", *BAHDANAU),
    "Luong dot": ("model.alignment=dot", *LUONG),
    "Luong general": ("model.alignment=general", *LUONG),
    "Luong concat": ("model.alignment=concat", *LUONG),
    "Bahdanau additive": ("model.alignment=additive", *BAHDANAU),
    "Luong scaled dot": ("model.alignment=scaled_dot", *LUONG),
}
"""Name -> what is changed in the recurrent example."""
PLAIN, MIXED = "Transformer", "Transformer, mixed heads"
TRANSFORMERS: dict[str, tuple[str, ...]] = {
    PLAIN: (),
    MIXED: (
        "model.alignment=[scaled_dot, general, additive, similarity]",
        "model.attention_options.strength=16",  # a cosine lies in [-1, 1]: alone it hardly tells keys apart
    ),
}
GRID = {"model.dropout": ("0.2", "0.4"), "optimization.learning_rate": ("1e-3", "2e-3")}
BEAM = 5
LOOKED_AT = 100


def runs(tune: bool) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return name -> kind of model and what is changed in its example; of a grid, one for each of its points."""
    if not tune:
        kinds = (("rnn", RECURRENT), ("transformer", TRANSFORMERS))
        return {name: (kind, changes) for kind, models in kinds for name, changes in models.items()}
    found = {}
    for name, changes in RECURRENT.items():
        for values in itertools.product(*GRID.values()):
            point = [f"{key}={value}" for key, value in zip(GRID, values, strict=True)]
            found[f"{name}: {' '.join(point)}"] = ("rnn", (*changes, *point))
    return found


def make_settings(tune: bool, data: Path) -> Message:
    """Return all that figures depend on."""
    return {
        "runs": runs(tune),
        "recipes": {kind: yaml.safe_load((EXAMPLES / name).read_text()) for kind, name in CONFIGS.items()},
        "bytes of data": {path.name: path.stat().st_size for path in sorted(data.glob("*.gz"))},
        "epochs": EPOCHS,
        "threads": THREADS,
        "beam": BEAM,
        "tuning": f"each of {GRID}, chosen by development BLEU" if tune else "none for any model",
        "torch": torch.__version__,
    }


def attnkit(*arguments: object, text: str | None = None) -> str:
    """Run a command of the toolkit; return what it prints, if it has been given a text on standard input."""
    command = [sys.executable, "-m", "attnkit", *map(str, arguments)]
    done = subprocess.run(command, check=True, input=text, text=True, stdout=None if text is None else subprocess.PIPE)
    return done.stdout or ""


class Experiment:
    """The runs of one call, with or without tuning, and where they lie: never where those of other settings did."""

    def __init__(self, data: Path, tune: bool) -> None:
        self.data, self.runs, self.settings = data, runs(tune), make_settings(tune, data)
        self.home: Path = HOME / digest(self.settings)

    def folder(self, name: str) -> Path:
        """Return the folder of a run."""
        return self.home / "".join(c if c.isalnum() else "-" for c in name.lower())

    def translated(self, name: str) -> Path:
        """Return the file of a run's translations."""
        return self.folder(name).with_suffix(".test.de")

    def output(self, name: str) -> list[str]:
        """Return a run's translations of the test set."""
        return self.translated(name).read_text(encoding="utf-8").split("\n")[:1000]

    def references(self) -> list[str]:
        """Return the target side of the test set."""
        return gzip.decompress((self.data / "test_2016_flickr.de.gz").read_bytes()).decode().split("\n")[:1000]

    def train(self, name: str) -> None:
        """Train a model, or go on with it."""
        kind, changes = self.runs[name]
        text = {f"{part}.{side}": self.data / f"{part}.{side}.gz" for part in ("train", "val") for side in ("en", "de")}
        attnkit(
            "train", "--config", EXAMPLES / CONFIGS[kind], "-o", self.folder(name), "--threads", THREADS,
            "--src", text["train.en"], "--tgt", text["train.de"],
            "--valid-src", text["val.en"], "--valid-tgt", text["val.de"],
            "--max-epochs", EPOCHS[kind],
            *(part for value in changes for part in ("--set", value)),
        )  # fmt: skip

    def measure(self, name: str) -> dict[str, Any]:
        """Train one model, translate the test set, score it."""
        self.train(name)
        run = self.folder(name)
        test = self.data / "test_2016_flickr.en.gz"
        more = ["--beam-size", BEAM, "--threads", THREADS]
        attnkit("translate", run, "-i", test, "-o", self.translated(name), *more)
        bleu = sacrebleu.metrics.BLEU()
        score = bleu.corpus_score(self.output(name), [self.references()]).score
        timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        looked: dict[str, Any] = {}
        if name in RECURRENT and name != "none":
            looked["entropy"] = self.entropy(name)
        return {
            "bleu": score,
            "signature": str(bleu.get_signature()),
            "development bleu": max(record["bleu"] for record in records if "bleu" in record),
            "parameters": count_parameters(run),
            "steps": timings[-1]["step"],
            "minutes": round(timings[-1]["minutes"], 2),
            **looked,
        }

    def entropy(self, name: str) -> float:
        """Return the entropy in bits of a recurrent model's attention, each translation counting the same."""
        lines = gzip.decompress((self.data / "test_2016_flickr.en.gz").read_bytes()).decode().split("\n")[:LOOKED_AT]
        found = attnkit("attend", self.folder(name), "-", "--json", text="\n".join(lines))
        bits = [json.loads(line)["attention"][0]["entropy_bits"][0][0] for line in found.splitlines()]
        assert len(bits) == LOOKED_AT
        return statistics.fmean(bits)

    def compare(self, rows: dict[str, dict[str, Any]]) -> None:
        """Put the paired bootstrap of the two Transformers next to the mixed one, once both have been scored."""
        there = all(name in rows and self.translated(name).exists() for name in (PLAIN, MIXED))
        if there and "against the Transformer" not in rows[MIXED]:
            found = paired_bootstrap(
                sacrebleu.metrics.BLEU(), self.output(PLAIN), self.output(MIXED), [self.references()]
            )
            rows[MIXED]["against the Transformer"] = asdict(found)


def table(rows: dict[str, dict[str, Any]], order: list[str]) -> str:
    """Return the figures as a table of Markdown, and what the bootstrap says."""
    columns = ["model", "BLEU", "development BLEU", "entropy, bits", "parameters", "steps", "minutes"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name in (name for name in order if name in rows):
        row = rows[name]
        entropy = f"{row['entropy']:.2f}" if "entropy" in row else ""
        figures = f"{row['bleu']:.1f} | {row['development bleu']:.1f} | {entropy} | {row['parameters']:,}"
        lines.append(f"| {name} | {figures} | {row['steps']:,} | {row['minutes']:.0f} |")
    found = rows.get(MIXED, {}).get("against the Transformer")
    if found:
        shown = [f"{found[side]:.2f} ± {found[f'{side}_interval']:.2f}" for side in ("system", "baseline")]
        lines.append(f"\nmixed heads {shown[0]}, all scaled_dot {shown[1]} (95 %), p = {found['p_value']:.3f}")
    return "\n".join(lines)


def chosen(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return the trial of the best development BLEU of each model, as far as they have been made."""
    found = []
    for model in RECURRENT:
        trials = [name for name in rows if name.startswith(f"{model}: ")]
        found += [max(trials, key=lambda name: float(rows[name]["development bleu"]))] if trials else []
    return found


def main() -> None:
    """Train what nobody trains or has trained, write figures after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tune", action="store_true", help="train each recurrent model on a grid of its own")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(runs(False))}")
    parser.add_argument("--again", action="store_true", help="measure anew what the result file holds already")
    parser.add_argument("--result", type=Path, help="the result file, if not the one under benchmarks/results")
    given = parser.parse_args()
    path = given.result or (RESULT.with_stem(f"{RESULT.stem}-tuned") if given.tune else RESULT)
    experiment = Experiment(given.data, given.tune)
    wanted = given.only or list(experiment.runs)
    if unknown := set(wanted) - {part for name in experiment.runs for part in (name, name.partition(":")[0])}:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    names = [name for name in experiment.runs if name in wanted or name.partition(":")[0] in wanted]
    if given.again:
        forget_rows(path, experiment.settings, names)
        for name in names:
            shutil.rmtree(experiment.folder(name), ignore_errors=True)
    for name in names:
        with claim(str(experiment.folder(name))) as mine:
            if mine and name not in read_rows(path, experiment.settings):
                row = experiment.measure(name)
                with update_rows(path, experiment.settings) as rows:
                    rows[name] = row
                print(name, json.dumps(row), flush=True)
    with update_rows(path, experiment.settings) as rows:
        experiment.compare(rows)
    print(table(rows, list(experiment.runs)))
    if given.tune:
        print(f"\nchosen by development BLEU:\n{table(rows, chosen(rows))}")


if __name__ == "__main__":
    main()
