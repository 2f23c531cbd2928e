"""Training speed of attnkit and of Hugging Face's Trainer with a MarianMTModel of the same size, on Multi30k.

    python benchmarks/speed_training.py --data DIR [--seconds 60] [--rounds 3]

Three systems start from the same weights, read the same ids (a joint BPE vocabulary of 8,000 made by attnkit), with the
same learning rate, warm-up, AdamW, clipping and dropout, without label smoothing, and as many real tokens a step:

- attnkit as shipped: bfloat16 where the machine has it, two-dimensional length buckets;
- hf-default: float32, batches of 128 pairs drawn at random;
- hf-best: bfloat16 autocast, batches grouped by length.

Each lives in a process of its own and trains only in its turn (A B C A B C ...), at the number of threads that was
fastest in a probe. Figures are real tokens a second, end symbols counted, padding, start-up and validation not. Every
--every steps the negative log-likelihood of the validation set is taken with the clock stopped: speed counts at equal
quality. What differs: attnkit trains an output bias, which Marian keeps at zero.

Resumable by dropout; figures go to benchmarks/results/speed_training.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from marian import write_marian
from peers import WORK, Message, Worker, add_options, median_and_range, open_result, peers_python, save_result
from training_workers import WARMUP

RESULT = Path(__file__).parent / "results" / "speed_training.json"
SYSTEMS = ("attnkit", "hf-default", "hf-best")
REAL_SHARE = 0.94
"""Of the tokens in attnkit's batches, measured: max_tokens counts padding, and steps should hold as many real ones."""
MODEL = {"kind": "transformer", "d_model": 256, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3, "d_ff": 1024}


def settings_of(options: argparse.Namespace) -> Message:
    """Return what makes figures comparable."""
    names = ("seconds", "rounds", "threads", "pairs", "learning_rate", "every")
    return {"data": options.data.name, **{name: getattr(options, name) for name in names}}


def folder_of(options: argparse.Namespace) -> Path:
    """Return the folder of what is made from the data, another one for other data."""
    return WORK / "speed_training" / hashlib.sha256(str(options.data.resolve()).encode()).hexdigest()[:8]


def prepare_text(options: argparse.Namespace, work: Path) -> None:
    """Make vocabulary, encoded pairs and initial weights once, and write them where both sides read them."""
    import numpy as np
    import torch
    from safetensors.torch import save_file

    from attnkit.engine.resolve import resolve
    from attnkit.models.translation import build_model
    from attnkit.tasks.translation.data import open_prepared, prepare

    flags = {f"data.{kind}{side}": [str(options.data / f"{split}.{suffix}.gz")]
             for split, kind in (("train", ""), ("val", "valid_"))
             for side, suffix in (("src", "en"), ("tgt", "de"))}  # fmt: skip
    sets = [f"model.{name}={value}" for name, value in MODEL.items()]
    sets += ["vocabulary.size=8000", "optimization.schedule=constant", f"optimization.warmup_steps={WARMUP}",
             "optimization.label_smoothing=0.0", f"optimization.learning_rate={options.learning_rate}",
             "optimization.ema_decay=null", "limits.max_epochs=1000000", "evaluation.every_epochs=1000000"]  # fmt: skip
    config = resolve(flags, sets=sets, preset_name="small").config
    for stage in prepare(config, work / "data"):
        print(getattr(stage, "text", ""), file=sys.stderr)
    prepared = open_prepared(work / "data")
    src, tgt = prepared.pairs.lengths
    max_tokens = round(options.pairs * float(np.mean(src) + np.mean(tgt)) / REAL_SHARE)
    optimization = config.optimization.model_copy(update={"max_tokens": max_tokens})
    config = config.model_copy(update={"optimization": optimization})
    (work / "config.json").write_text(config.model_dump_json())
    for name, pairs in (("train", prepared.pairs), ("valid", prepared.valid)):
        rows = [[[*side[i].tolist(), 2] for i in range(len(pairs))] for side in (pairs.src, pairs.tgt)]
        (work / f"{name}.json").write_text(json.dumps(rows))
    torch.manual_seed(1)
    size = prepared.vocabularies.src.vocab_size
    model: Any = build_model(config.model, size, size)
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, work / "model.safetensors")
    write_marian(work / "marian", config.model, model)


def measure(options: argparse.Namespace, python: Path, dropout: float) -> Message:
    """Let the systems take turns at one dropout and return their figures."""
    shared = ["--every", options.every, "--pairs", options.pairs, "--learning-rate", options.learning_rate]
    arguments = [str(part) for part in (folder_of(options), "--dropout", dropout, *shared)]
    script = Path(__file__).with_name("training_workers.py")
    workers = {
        system: Worker(
            sys.executable if system == "attnkit" else python, script, [system, *arguments],
            folder_of(options) / f"{system}.log",
        )
        for system in SYSTEMS
    }  # fmt: skip
    threads = {}
    for system, worker in workers.items():
        worker.ask({"seconds": options.probe / 3, "threads": options.threads[-1]})  # the first steps are slow
        speeds = {n: speed(worker.ask({"seconds": options.probe, "threads": n})) for n in options.threads}
        threads[system] = max(speeds, key=lambda n: speeds[n])
        print(f"dropout {dropout}, {system}: tokens/s by threads {speeds}", file=sys.stderr)
    turns: dict[str, list[Message]] = {system: [] for system in SYSTEMS}
    for number in range(options.rounds):
        for system, worker in workers.items():
            done = worker.ask({"seconds": options.seconds, "threads": threads[system]})
            turns[system].append(done)
            print(f"round {number + 1}, {system}: {speed(done):,.0f} tokens/s", file=sys.stderr)
    for worker in workers.values():
        worker.close()
    return {system: figures(done, threads[system]) for system, done in turns.items()}


def speed(done: Message) -> float:
    """Return real tokens a second of one turn."""
    return float(done["tokens"] / done["seconds"])


def figures(turns: list[Message], threads: int) -> Message:
    """Return what a system did in its turns."""
    return {
        "precision": turns[-1]["precision"],
        "threads": threads,
        "tokens/s": [round(speed(done), 1) for done in turns],
        "tokens a step": round(sum(done["tokens"] for done in turns) / sum(done["steps"] for done in turns)),
        "seconds a step": round(sum(done["seconds"] for done in turns) / sum(done["steps"] for done in turns), 4),
        "validation (step, seconds, nll)": [
            [step, round(seconds, 1), round(nll, 4)] for step, seconds, nll in turns[-1]["losses"]
        ],
    }


def report(result: Message) -> str:
    """Return the markdown table of all figures, with the losses at the last step that all systems reached."""
    lines = [
        "| dropout | system | precision, threads | real tokens/s, median (range) | attnkit is | nll at equal steps |",
        "|---|---|---|---|---|---|",
    ]
    for dropout, systems in result["dropout"].items():
        reached = [{row[0] for row in found["validation (step, seconds, nll)"]} for found in systems.values()]
        step = max(set.intersection(*reached), default=None)
        own = statistics.median(systems["attnkit"]["tokens/s"])
        for system, found in systems.items():
            losses = {row[0]: row[2] for row in found["validation (step, seconds, nll)"]}
            nll = f"{losses[step]:.3f} (step {step})" if step else "-"
            ratio = own / statistics.median(found["tokens/s"])
            median = median_and_range(found["tokens/s"], 0)
            setting = f"{found['precision']}, {found['threads']}"
            lines.append(f"| {dropout} | {system} | {setting} | {median} | {ratio:.2f} x | {nll} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train and val in .en.gz and .de.gz")
    parser.add_argument("--seconds", type=float, default=60, help="of one turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--probe", type=float, default=15, help="seconds for each number of threads")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dropouts", type=float, nargs="+", default=[0.1, 0.0])
    parser.add_argument("--pairs", type=int, default=128, help="a batch of Hugging Face's")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--every", type=int, default=25, help="steps between looks at the validation set")
    add_options(parser)
    options = parser.parse_args()
    path = options.result or RESULT
    result = open_result(path, settings_of(options), again=options.again)
    python = peers_python(options.peers_python)
    work = folder_of(options)
    work.mkdir(parents=True, exist_ok=True)
    prepare_text(options, work)
    for dropout in options.dropouts:
        if str(dropout) not in result.setdefault("dropout", {}):
            result["dropout"][str(dropout)] = measure(options, python, dropout)
            save_result(path, result)
    print(report(result))


if __name__ == "__main__":
    main()
