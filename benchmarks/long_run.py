"""Train 100,000 tiny steps in one process: does memory grow, are files left open? Resumable: run it again to go on.

    python benchmarks/long_run.py [--steps 100000] [--again]

A Transformer of some 10,000 parameters reverses digits; a checkpoint is saved every 2,500 steps and an evaluation made
every 5,000. Every 100 steps the process notes its resident memory, open file descriptors and threads, as the kernel
counts them. After a warm-up of a tenth of the steps a line is fitted to the memory by least squares; its slope is given
per hour of this training and per 100,000 steps, with the 95 % interval of a fit to means of 2,500 steps. If the process
is stopped, the next one trains on from the last checkpoint with notes of its own, and the longest process is the one
that is told of. Work lies in benchmarks/.work/long_run, the figures in benchmarks/results/long_run.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from peers import WORK, machine, open_result, save_result

RESULT = Path(__file__).parent / "results" / "long_run.json"
FOLDER = WORK / "long_run"
SAMPLES = FOLDER / "samples.jsonl"
SAMPLE_EVERY = 100  # steps
BLOCK = 2500  # steps, from one save to the next
SETTINGS = {
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.d_ff": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.dropout": 0.0,
    "optimization.batch_tokens": 60,
    "evaluation": {"every_steps": 5000, "n_samples": 1},
    "checkpoints": {"save_every": BLOCK, "keep_last": 3},
    "limits.early_stopping_patience": None,
    "vocabulary.kind": "char",
    "precision": "float32",
    "device": "cpu",
    "threads": 1,
}


def configure(n_steps: int) -> Any:
    """Write the corpus where it is missing, and return the configuration."""
    from attnkit.engine.resolve import resolve
    from attnkit.text.toy.corpus import make_files

    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, lines in make_files("reverse", 2000, 1, n_valid=8, n_test=1).items():
        if not (FOLDER / name).exists():
            (FOLDER / name).write_text("".join(f"{line}\n" for line in lines))
    names = {
        "data.src": "train.src",
        "data.tgt": "train.tgt",
        "data.valid_src": "valid.src",
        "data.valid_tgt": "valid.tgt",
    }
    flags = {key: [str(FOLDER / name)] for key, name in names.items()}
    sets = [f"{key}={json.dumps(value)}" for key, value in {**SETTINGS, "limits.max_steps": n_steps}.items()]
    return resolve(flags, sets=sets, preset_name="tiny").config


def sample(process: int, step: int, began: float) -> dict[str, Any]:
    """Return what the kernel says of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "process": process,
        "step": step,
        "seconds": round(time.perf_counter() - began, 3),
        "cpu_seconds": round(time.process_time(), 3),
        "rss_mb": pages * os.sysconf("SC_PAGESIZE") / 1e6,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }


def read_samples() -> list[dict[str, Any]]:
    """Return what all processes have noted so far."""
    return [json.loads(line) for line in SAMPLES.read_text().splitlines()] if SAMPLES.exists() else []


def train(n_steps: int) -> None:
    """Train to the end, noting memory and descriptors."""
    from attnkit.tasks.translation.task import TrainRequest
    from attnkit.tasks.translation.task import train as training
    from attnkit.training.records import StepRecord

    config = configure(n_steps)
    process = max((found["process"] for found in read_samples()), default=0) + 1
    began = time.perf_counter()
    with SAMPLES.open("a") as stream:
        for event in training(TrainRequest(config, FOLDER / "run")):
            if isinstance(event, StepRecord) and event.step % SAMPLE_EVERY == 0:
                found = sample(process, event.step, began)
                print(json.dumps(found), file=stream, flush=True)
                if event.step % 5000 == 0:
                    print(f"step {event.step:,}: {found['rss_mb']:.2f} MB, {found['seconds']:.0f} s", flush=True)


def slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return the slope of a least-squares line and its standard error."""
    centred = x - x.mean()
    steepness = float(centred @ y / (centred @ centred))
    residuals = y - y.mean() - steepness * centred
    return steepness, math.sqrt(float(residuals @ residuals) / (len(x) - 2) / float(centred @ centred))


def figures(n_steps: int) -> dict[str, Any]:
    """Return what the longest process shows, and what it left behind."""
    samples = read_samples()
    numbers = [found["process"] for found in samples]
    longest = [found for found in samples if found["process"] == max(set(numbers), key=numbers.count)]
    settled = [found for found in longest if found["step"] > longest[0]["step"] + n_steps / 10]
    if len(settled) < 5 * BLOCK // SAMPLE_EVERY:
        sys.exit("no process has trained long enough for a line: run it again with --again")
    hours, rss, steps = (np.array([f[key] for f in settled]) for key in ("seconds", "rss_mb", "step"))
    hours = hours / 3600
    # Memory swings between two saves; whole swings are compared, and their means do not depend on one another.
    n_blocks = len(settled) // (BLOCK // SAMPLE_EVERY)
    blocks = [part.mean() for part in np.array_split(rss, n_blocks)]
    times = [part.mean() for part in np.array_split(hours, n_blocks)]
    per_hour, error = slope(np.array(times), np.array(blocks))
    run = FOLDER / "run"
    return {
        "processes": len(set(numbers)),
        "steps": int(longest[-1]["step"]),
        "settled_steps": int(steps[-1] - steps[0]),
        "minutes": round(longest[-1]["seconds"] / 60, 2),
        "ms_a_step": round(
            1000 * longest[-1]["seconds"] / (longest[-1]["step"] - longest[0]["step"] + SAMPLE_EVERY), 3
        ),
        "mb_per_hour": round(per_hour, 3),
        "mb_per_hour_95": [round(per_hour - 2 * error, 3), round(per_hour + 2 * error, 3)],
        "mb_per_100000_steps": round(slope(steps, rss)[0] * 1e5, 3),
        "rss_mb": [round(float(value), 2) for value in (rss[0], rss.min(), rss.max(), rss[-1])],
        "descriptors": [min(f["descriptors"] for f in settled), max(f["descriptors"] for f in settled)],
        "threads": [min(f["threads"] for f in settled), max(f["threads"] for f in settled)],
        "temporaries_left": sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.name.startswith(".tmp-")),
        "checkpoints_left": sorted(path.name for path in (run / "checkpoints").iterdir()),
        "curve_step_mb": [[f["step"], round(f["rss_mb"], 2)] for f in longest[:: max(1, len(longest) // 100)]],
    }


def main() -> None:
    """Train what is left to train, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="steps in all")
    parser.add_argument("--again", action="store_true", help="train anew what was trained already")
    parser.add_argument("--result", type=Path, default=RESULT, help="the result file")
    arguments = parser.parse_args()
    result = open_result(arguments.result, {"steps": arguments.steps, **SETTINGS}, again=arguments.again)
    if "figures" not in result:
        if arguments.again and FOLDER.exists():
            shutil.rmtree(FOLDER)
        train(arguments.steps)
        result |= {"machine": machine(), "figures": figures(arguments.steps)}
        save_result(arguments.result, result)
    found = result["figures"]
    low, high = found["mb_per_hour_95"]
    print(
        f"{found['steps']:,} steps of {found['ms_a_step']} ms: memory {found['mb_per_hour']:+.2f} MB an hour"
        f" (95 %: {low:+.2f} to {high:+.2f}), {found['mb_per_100000_steps']:+.2f} MB in 100,000 steps;"
        f" descriptors {found['descriptors'][0]}-{found['descriptors'][1]},"
        f" temporaries left {len(found['temporaries_left'])}"
    )
    if high >= 1 or found["descriptors"][0] != found["descriptors"][1] or found["temporaries_left"]:
        sys.exit("less than 1 MB an hour, constant descriptors and no leftovers: that is not shown")


if __name__ == "__main__":
    main()
