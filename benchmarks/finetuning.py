"""Speed of fine-tuning a classifier, beside a plain loop over transformers' BERT with the same weights and text.

    PYTHONPATH=src python benchmarks/finetuning.py --data DIR [--seconds 15] [--rounds 5] [--batch-tokens 1024]

DIR holds sentence-polarity (train.tsv with the columns label and text). A BERT of 4 layers of 256 with learned
positions (vocabulary of 8,000; pretrained for 20 steps, since speed does not depend on the weights) is fine-tuned by
`attnkit finetune` as shipped, but for the batch tokens, and, exported, by a loop over transformers: AdamW (fused),
clipping, bfloat16 autocast, batches of equal length and as many tokens, dropout .1, the faster of eager and sdpa
attention. Each lives in a process of its own and trains in its turn, once all are ready. Figures are real tokens a
second, padding not counted, start-up neither; they go to benchmarks/results/finetuning.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peers import WORK, Conversation, Worker, machine, save_result

RESULT = Path(__file__).parent / "results" / "finetuning.json"
HOME = WORK / "finetuning"
SYSTEMS = ("attnkit", "eager", "sdpa")
WARM_UP = 5  # steps


class Turns:
    """Clock of a worker, which trains for so many seconds and then waits for its next turn."""

    def __init__(self) -> None:
        self._talk = Conversation()

    def wait(self) -> None:
        """Wait for the next turn."""
        message = self._talk.listen()
        if message is None:
            os._exit(0)
        self._seconds, self._n_tokens, self._n_steps = message["seconds"], 0, 0
        self._began = time.perf_counter()

    def step(self, n_tokens: int) -> None:
        """Count the tokens of a step that is done."""
        self._n_tokens, self._n_steps = self._n_tokens + n_tokens, self._n_steps + 1
        spent = time.perf_counter() - self._began
        if spent >= self._seconds:
            self._talk.reply({"tokens": self._n_tokens, "steps": self._n_steps, "seconds": spent})
            self.wait()


def call(*arguments: str | Path) -> None:
    """Run a command of the toolkit."""
    subprocess.run([sys.executable, "-m", "attnkit", *map(str, arguments)], check=True)


def prepare(data: Path) -> None:
    """Make the pretrained run and its export once."""
    if (HOME / "exported" / "config.json").exists():
        return
    HOME.mkdir(parents=True, exist_ok=True)
    with (data / "sentence-polarity" / "train.tsv").open(newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file, delimiter="\t")]
    (HOME / "text.txt").write_text("".join(f"{text}\n" for text in texts))
    call(
        "pretrain-mlm", HOME / "text.txt", "-o", HOME / "bert", "--preset", "mini", "--max-steps", "20", "--overwrite",
        "--set", "vocabulary.size=8000", "--set", "model.positions=learned",
    )  # fmt: skip
    call("export", HOME / "bert", HOME / "exported", "--to", "huggingface")


def attnkit_worker(data: Path, batch_tokens: int, turns: Turns) -> None:
    """Train by `attnkit finetune`'s own loop."""
    from attnkit.engine.events import TrainRequest
    from attnkit.engine.resolve import inherited, resolve
    from attnkit.engine.trainer import train
    from attnkit.training.records import StepRecord

    flags = {
        "task": "text-classification", "data.files": [str(data / "sentence-polarity" / "train.tsv")],
        "optimization.batch_tokens": batch_tokens,
    }  # fmt: skip
    sets = ["limits.max_steps=1000000", "evaluation.every_steps=1000000", "checkpoints.save_every=1000000"]
    output = HOME / f"run-{batch_tokens}-{os.getpid()}"
    resolved = resolve(flags, sets=sets, preset_name="auto", fixed=inherited(HOME / "bert", output))
    n_steps = 0
    for event in train(TrainRequest(resolved.config, output, init_from=HOME / "bert")):
        if isinstance(event, StepRecord):
            n_steps += 1
            if n_steps == WARM_UP:
                turns.wait()
            elif n_steps > WARM_UP:
                turns.step(event.n_tokens)


def transformers_worker(data: Path, batch_tokens: int, attention: str, turns: Turns) -> None:
    """Train by a plain loop."""
    import torch
    from tokenizers import Tokenizer
    from transformers import BertForSequenceClassification

    model: Any = BertForSequenceClassification.from_pretrained(
        HOME / "exported", num_labels=2, attn_implementation=attention, hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    model.train()
    tokenizer = Tokenizer.from_file(str(HOME / "exported" / "tokenizer.json"))
    with (data / "sentence-polarity" / "train.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    labels = sorted({row["label"] for row in rows})
    encoded = tokenizer.encode_batch([row["text"] for row in rows])
    examples = sorted((one.ids[:512], labels.index(row["label"])) for one, row in zip(encoded, rows, strict=True))
    examples.sort(key=lambda example: len(example[0]))
    batches: list[list[tuple[list[int], int]]] = [[]]
    for example in examples:
        if (len(batches[-1]) + 1) * len(example[0]) > batch_tokens and batches[-1]:
            batches.append([])
        batches[-1].append(example)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    order = torch.Generator().manual_seed(1)
    n_steps = 0
    while True:
        for k in torch.randperm(len(batches), generator=order).tolist():
            batch = batches[k]
            longest = max(len(ids) for ids, _ in batch)
            inputs = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in batch])
            mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in batch])
            gold = torch.tensor([label for _, label in batch])
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(input_ids=inputs, attention_mask=mask, labels=gold).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            n_steps += 1
            if n_steps == WARM_UP:
                turns.wait()
            elif n_steps > WARM_UP:
                turns.step(int(mask.sum()))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Let the systems take turns; return tokens a second of each."""
    workers = {
        name: Worker(
            sys.executable, Path(__file__),
            ["--data", str(options.data), "--worker", name, "--batch-tokens", str(options.batch_tokens)],
            HOME / f"{name}.log",
        )
        for name in SYSTEMS
    }  # fmt: skip
    for worker in workers.values():
        worker.ask({"seconds": 0})  # until it has trained a step; while others start, none is measured
    speeds: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    for number in range(options.rounds):
        for name, worker in workers.items():
            done = worker.ask({"seconds": options.seconds})
            speeds[name].append(round(done["tokens"] / done["seconds"]))
            print(f"round {number + 1}, {name}: {speeds[name][-1]:,} tokens/s, {done['steps']} steps", flush=True)
    for worker in workers.values():
        worker.close()
    return {name: {"median": statistics.median(found), "all": found} for name, found in speeds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=15, help="of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        turns = Turns()
        if options.worker == "attnkit":
            attnkit_worker(options.data, options.batch_tokens, turns)
        else:
            transformers_worker(options.data, options.batch_tokens, options.worker, turns)
        return
    prepare(options.data)
    found = measure(options)
    peer = max(found[name]["median"] for name in SYSTEMS[1:])
    ratio = round(found["attnkit"]["median"] / peer, 2)
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    result[str(options.batch_tokens)] = {"machine": machine(), "tokens/s": found, "beside transformers": ratio}
    save_result(RESULT, result)
    print(f"batches of {options.batch_tokens:,} tokens: {ratio} times transformers")


if __name__ == "__main__":
    main()
