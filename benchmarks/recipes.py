"""Recipes of training for a corpus of a given size: BLEU of the development set at equal minutes of processor time.

    PYTHONPATH=src python benchmarks/recipes.py --data MULTI30K --pairs 2500 [--minutes 10] [--jobs 2] [--seeds 1]

MULTI30K has train.en, train.de, val.en and val.de; a recipe trains on the first lines of it. Each run has one thread. A
recipe is trained for as many epochs as fit in the minutes, by its own speed in a short run beforehand; the seconds of
processor time that it took are written down beside its scores. The score is the best BLEU of greedy search on the
development set, as `attnkit train` reports it. The test set is not read. Resumable: runs that are in
benchmarks/results/recipes.json are not trained again. Name recipes to train only those.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from peers import WORK as WORK_FOLDER
from peers import machine, run_timed

HERE = Path(__file__).parent
WORK = WORK_FOLDER / "recipes"
RESULT = HERE / "results" / "recipes.json"
CALIBRATION_EPOCHS = 8

DROPOUT = {"model.dropout": 0.3, "model.attention_dropout": 0.1, "model.activation_dropout": 0.1}
STRONG = {"model.dropout": 0.4, "model.attention_dropout": 0.1, "model.activation_dropout": 0.1}
R_DROP = {"regularization.r_drop": 5.0}
BPE_DROPOUT = {"regularization.bpe_dropout": 0.1}
WIDE = {"model.d_model": 256, "model.d_ff": 1024, "model.encoder_layers": 3, "model.decoder_layers": 3}
FLOOR = {"optimization.learning_rate": 1e-3}
SMALL = {"optimization.batch_tokens": 1000, "optimization.learning_rate": 1e-3}
Settings = dict[str, Any]
RECIPES: dict[str, Settings] = {
    "preset": {},
    "preset low-resource": {"preset": "low-resource"},
    "more dropout": DROPOUT,
    "most dropout": STRONG,
    "more dropout, small batches": DROPOUT | SMALL,
    "more dropout, small batches, R-Drop": DROPOUT | SMALL | R_DROP,
    "more dropout, small batches, BPE-dropout": DROPOUT | SMALL | BPE_DROPOUT,
    "small batches": SMALL,
    "most dropout, small batches, R-Drop": STRONG | SMALL | R_DROP,
    "more dropout, small batches, R-Drop 2": DROPOUT | SMALL | {"regularization.r_drop": 2.0},
    "more dropout, small batches, R-Drop, 2,000 entries": DROPOUT | SMALL | R_DROP | {"vocabulary.size": 2000},
    "more dropout, smaller batches, R-Drop": DROPOUT | SMALL | R_DROP | {"optimization.batch_tokens": 500},
    "more dropout, small batches, R-Drop, rate 2e-3": DROPOUT | SMALL | R_DROP | {"optimization.learning_rate": 2e-3},
    "wide, most dropout, small batches, R-Drop": STRONG | SMALL | WIDE | R_DROP,
    "recurrent, more dropout": {"model.kind": "rnn", "model.dropout": 0.3},
    "recurrent, most dropout, small batches": {"model.kind": "rnn", "model.dropout": 0.4} | SMALL,
    "more dropout, small batches, word dropout": DROPOUT | SMALL | {"model.word_dropout": 0.1},
    "more dropout, small batches, R-Drop, word dropout": DROPOUT | SMALL | R_DROP | {"model.word_dropout": 0.1},
    "R-Drop": R_DROP,
    "BPE-dropout": BPE_DROPOUT,
    "more dropout, R-Drop": DROPOUT | R_DROP,
    "more dropout, BPE-dropout": DROPOUT | BPE_DROPOUT,
    "more dropout, R-Drop, BPE-dropout": DROPOUT | R_DROP | BPE_DROPOUT,
    "more dropout, R-Drop, BPE-dropout, 2,000 entries": DROPOUT | R_DROP | BPE_DROPOUT | {"vocabulary.size": 2000},
    "2,000 entries": {"vocabulary.size": 2000},
    "wide, more dropout": DROPOUT | WIDE | FLOOR,
    "wide, more dropout, R-Drop, BPE-dropout": DROPOUT | WIDE | FLOOR | R_DROP | BPE_DROPOUT,
}


def train(data: Path, pairs: int, settings: Settings, epochs: float, run: Path) -> tuple[dict[str, Any], float]:
    """Train a run; return the summary of ``train --json`` and the seconds of processor time."""
    folder = WORK / f"{pairs}"
    sets = [f"{key}={value}" for key, value in settings.items() if key != "preset"]
    command = [
        *(sys.executable, "-m", "attnkit", "train", "--threads", "1", "--json", "--quiet", "-o", run),
        *("--preset", settings.get("preset", "tiny")),
        *("--src", folder / "train.en", "--tgt", folder / "train.de"),
        *("--valid-src", data / "val.en", "--valid-tgt", data / "val.de", "--max-epochs", epochs),
        *(word for setting in sets for word in ("--set", setting)),
    ]
    return run_timed(command, run.parent / f"{run.name}.log")


def measure(data: Path, pairs: int, name: str, seed: int, minutes: float) -> dict[str, Any]:
    """Train one recipe with one seed for so many minutes of processor time."""
    run = WORK / f"{pairs}" / f"{name.replace(' ', '-').replace(',', '')}-{minutes:g}-{seed}"
    settings = RECIPES[name] | {"seed": seed, "checkpoints.keep_last": 1, "evaluation.n_samples": 0}
    short = run.with_name(run.name + "-short")
    unevaluated = {"evaluation.every_epochs": 1000.0, "confidence": "false"}
    spent: list[float] = []
    for epochs in (1, 1, 1 + CALIBRATION_EPOCHS):  # the first run compiles what the machine has not yet cached
        shutil.rmtree(short, ignore_errors=True)
        spent.append(train(data, pairs, settings | unevaluated, epochs, short)[1])
    shutil.rmtree(short)
    per_epoch = (spent[2] - spent[1]) / CALIBRATION_EPOCHS
    epochs = max(1, round((60 * minutes - spent[1]) / per_epoch))
    every = {"evaluation.every_epochs": max(1.0, round(epochs / 20)), "confidence": "false"}
    done, seconds = train(data, pairs, settings | every, epochs, run)
    return {
        "dev BLEU": round(done["metrics"]["bleu"], 2),
        "epochs": epochs,
        "processor minutes": round(seconds / 60, 2),
    }


def main() -> None:
    """Train what is missing, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", help="names of recipes; all by default")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=int, required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    folder = WORK / f"{options.pairs}"
    folder.mkdir(parents=True, exist_ok=True)
    for side in ("en", "de"):
        lines = (options.data / f"train.{side}").read_text().split("\n")[: options.pairs]
        (folder / f"train.{side}").write_text("".join(f"{line}\n" for line in lines))
    results: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    table = results.setdefault(f"{options.pairs} pairs, {options.minutes:g} minutes", {})
    lock = Lock()

    def add(name: str, seed: int) -> None:
        found = measure(options.data, options.pairs, name, seed, options.minutes)
        with lock:
            table.setdefault(name, {})[str(seed)] = found
            results["machine"] = machine()
            RESULT.write_text(json.dumps(results, indent=1) + "\n")
            print(name, seed, json.dumps(found), flush=True)

    missing = [
        (name, seed)
        for seed in options.seeds
        for name in options.recipes or RECIPES
        if str(seed) not in table.get(name, {})
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        for future in [pool.submit(add, *one) for one in missing]:
            future.result()


if __name__ == "__main__":
    main()
