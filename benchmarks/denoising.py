"""What denoising pretraining gains with 2,500 pairs of Multi30k, at equal minutes of processor time. Resumable.

    PYTHONPATH=src python benchmarks/denoising.py --data MULTI30K [--minutes 4] [--pretraining 4] [--seed 1]

MULTI30K has train.en, train.de, val.en and val.de. The first 2,500 pairs are the true ones; the other English and
German lines are text without translations (line n of both describes the same picture, which nothing makes use of). One
model is pretrained to restore them and goes on with the pairs; the other one, of the same size and preset, is trained
on the pairs alone for as many minutes as both stages of the first took together. Steps are set by the speed of short
runs, and the processor time of the whole runs is written down. One thread each. The score is the best BLEU of greedy
search on the development set, as `attnkit train` reports it. The test set is not read.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from peers import WORK as WORK_FOLDER
from peers import machine, run_timed

HERE = Path(__file__).parent
WORK = WORK_FOLDER / "denoising"
RESULT = HERE / "results" / "denoising.json"
N_TRUE = 2500  #: pairs
SHORT, LONG = 20, 80  #: steps of the two runs whose difference is the speed
N_EVALUATIONS = 10

Settings = dict[str, Any]
# Of many lines and few epochs, less is to be forgotten than of few pairs.
PRETRAINING: Settings = {
    "regularization.r_drop": 0,
    "model.dropout": 0.1,
    "model.activation_dropout": 0,
    "optimization.batch_tokens": 3000,
}
PAIRS: Settings = {"model.dropout": 0.3, "model.activation_dropout": 0.1}  # the preset's, which --init-from replaces


def write_text(data: Path) -> None:
    """Write the true pairs and the text without translations."""
    for side in ("en", "de"):
        lines = (data / f"train.{side}").read_text().split("\n")[:-1]
        (WORK / f"few.{side}").write_text("".join(f"{line}\n" for line in lines[:N_TRUE]))
        (WORK / f"mono.{side}").write_text("".join(f"{line}\n" for line in lines[N_TRUE:]))


def train(run: Path, files: list[object], settings: Settings, steps: int, every: int) -> tuple[dict[str, Any], float]:
    """Train a run; return the summary of ``train --json`` and the seconds of processor time."""
    settings = {"confidence": "false", "evaluation.n_samples": 0, "checkpoints.keep_last": 1, **settings}
    command = [
        *(sys.executable, "-m", "attnkit", "train", "--threads", "1", "--json", "--quiet", "-o", run),
        *("--preset", "low-resource", *files, "--max-steps", steps, "--set", f"evaluation.every_steps={every}"),
        *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
    ]
    return run_timed(command, WORK / f"{run.name}.log")


def measure(run: Path, files: list[object], settings: Settings, minutes: float) -> dict[str, Any]:
    """Train for so many minutes of processor time; return scores, or those of an earlier call."""
    done = run.with_suffix(".json")
    if done.exists():
        return dict(json.loads(done.read_text()))
    short, spent = run.with_name(f"{run.name}-short"), []
    for steps in (SHORT, SHORT, LONG):  # the first run compiles what the machine has not yet cached
        shutil.rmtree(short, ignore_errors=True)
        spent.append(train(short, files, settings, steps, steps)[1])
    shutil.rmtree(short)
    per_step = (spent[2] - spent[1]) / (LONG - SHORT)
    steps = max(LONG, round((60 * minutes - spent[1]) / per_step))
    shutil.rmtree(run, ignore_errors=True)
    summary, seconds = train(run, files, settings, steps, max(1, steps // N_EVALUATIONS))
    found = {
        "BLEU": round(summary["metrics"]["bleu"], 2),
        "loss": round(summary["metrics"]["loss"], 3),
        "steps": steps,
        "best": summary["best"],
        "processor minutes": round(seconds / 60, 2),
    }
    done.write_text(json.dumps(found))
    return found


def main() -> None:
    """Train what is missing, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=4.0, help="of the pretrained model on pairs")
    parser.add_argument("--pretraining", type=float, default=4.0, help="minutes on text without translations")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    write_text(given.data)
    name = f"{given.pretraining:g}-{given.minutes:g}-{given.seed}"
    seed = {"seed": given.seed}
    mono = [word for side in ("en", "de") for word in ("--denoise", WORK / f"mono.{side}")]
    mono += [word for side in ("en", "de") for word in ("--valid-data", given.data / f"val.{side}")]
    few = ["en:de", WORK / "few.en", WORK / "few.de"]
    valid = ["en:de", given.data / "val.en", given.data / "val.de"]
    pairs = ["--pair", *few, "--valid-pair", *valid]
    restored = WORK / f"restored-{name}"
    table = {"pretraining": measure(restored, mono, PRETRAINING | seed, given.pretraining)}
    print(json.dumps(table), flush=True)
    begun = [*pairs, "--init-from", restored]
    table["pairs after pretraining"] = measure(WORK / f"pairs-{name}", begun, PAIRS | seed, given.minutes)
    print(json.dumps(table), flush=True)
    minutes = sum(row["processor minutes"] for row in table.values())
    table["pairs alone"] = measure(WORK / f"alone-{name}", pairs, PAIRS | seed, minutes)
    results: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    results |= {"machine": machine(), "metric": "best BLEU of the development set, greedy, cased, 13a"}
    results[f"{given.pretraining:g} and {given.minutes:g} minutes, seed {given.seed}"] = table
    RESULT.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
