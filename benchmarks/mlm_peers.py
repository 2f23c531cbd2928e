"""The peer of mlm.py: one training by Hugging Face's Trainer in a process of its own.

    PEERS-PYTHON mlm_peers.py '{"model": …}'

Prints one JSON line; what the libraries print goes to stderr. The weights are saved as save_pretrained does it.

Rows are made as its users make them. Across documents: all documents behind each other, cut into rows of one length, as
in the library's own example. Isolated: a piece of one document a row, padded to the longest of its batch, taken at
random (its default) or grouped by length; or the rows that attnkit packed, with a four-dimensional mask and the
positions of each piece. Letters: B rows, T tokens of a row.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from peers import WARM_UP, without_warm_up
from safetensors.numpy import load_file
from torch.utils.data import Dataset
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

Message = dict[str, Any]
PAD, BEGIN, END = 0, 1, 2
SPECIAL = 3
"""Ids below this one are no text."""


class Rows(Dataset):  # type: ignore[type-arg]
    """Rows of ids; in packed ones the number of each token's piece stands beside it."""

    def __init__(self, rows: list[list[int]], pieces: list[list[int]] | None = None) -> None:
        self.rows, self.pieces = rows, pieces

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Message:
        ids = self.rows[number]
        found: Message = {"input_ids": ids, "special_tokens_mask": [int(id < SPECIAL) for id in ids]}
        return found if self.pieces is None else {**found, "pieces": self.pieces[number]}


class Collator:
    """The library's collator for masked language models; counts text, and builds the masks of packed rows."""

    def __init__(self, tokenizer: Any, length: int) -> None:
        self.inner, self.length = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15), length

    def __call__(self, examples: list[Message]) -> Message:
        packed = "pieces" in examples[0]
        pieces = [example.pop("pieces") for example in examples] if packed else []
        n_text = sum(len(example["special_tokens_mask"]) - sum(example["special_tokens_mask"]) for example in examples)
        n_real = sum(len(example["input_ids"]) for example in examples)
        batch = self.inner(examples)
        n_places = batch["input_ids"].numel()
        if packed:
            batch = {"input_ids": batch["input_ids"], "labels": batch["labels"], **self._apart(pieces)}
        return {**batch, "counts": torch.tensor([n_text, n_real, n_places])}

    def _apart(self, pieces: list[list[int]]) -> Message:
        """Return which tokens see each other (B, 1, T, T), and where each stands in its piece (B, T)."""
        longest = max(map(len, pieces))
        # Padding is a piece of its own, so that no row of the mask is empty.
        numbers = torch.tensor([each + [-1] * (longest - len(each)) for each in pieces])
        at = torch.arange(longest)
        begins = F.pad(numbers[:, 1:] != numbers[:, :-1], (1, 0), value=True)
        places = at - torch.where(begins, at, 0).cummax(dim=1).values
        return {"attention_mask": (numbers[:, :, None] == numbers[:, None, :])[:, None], "position_ids": places}


class Counting(Trainer):
    """The Trainer, adding up what the batches held."""

    counts = torch.zeros(3, dtype=torch.int64)

    def training_step(self, model: Any, inputs: Message, *rest: Any, **keywords: Any) -> torch.Tensor:
        """Take one step."""
        counts = inputs.pop("counts")  # on the device by now; nobody waits for it
        self.counts = self.counts.to(counts.device) + counts
        return super().training_step(model, inputs, *rest, **keywords)


class Clock(TrainerCallback):
    """When training began, and when each step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *arguments: Any, **keywords: Any) -> None:
        """Start."""
        self.note()

    def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
        """Note the time."""
        self.note()

    def on_train_end(self, *arguments: Any, **keywords: Any) -> None:
        """Wait for what a GPU was given to do: the last step ends then."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            self.times[-1] = time.perf_counter()

    def note(self) -> None:
        """Note the time."""
        if len(self.times) <= WARM_UP and torch.cuda.is_available():
            torch.cuda.synchronize()  # where the clock begins to count
        self.times.append(time.perf_counter())


def documents(spec: Message) -> Iterator[list[int]]:
    """Yield the ids of each document, as attnkit encoded it."""
    found = load_file(spec["ids"])
    ids, ends = found["ids"], np.cumsum(found["lengths"])
    for begin, end in zip(ends - found["lengths"], ends, strict=True):
        yield ids[begin:end].tolist()


def across(spec: Message) -> Rows:
    """Return rows cut from all documents behind each other."""
    joined: list[int] = []
    for ids in documents(spec):
        joined += [BEGIN, *ids, END]
    length = spec["length"]
    return Rows([joined[at : at + length] for at in range(0, len(joined) - length + 1, length)])


def alone(spec: Message) -> Rows:
    """Return rows of one piece of a document each."""
    most = spec["length"] - 2
    return Rows([[BEGIN, *ids[at : at + most], END] for ids in documents(spec) for at in range(0, len(ids), most)])


def packed(spec: Message) -> Rows:
    """Return rows of several pieces: the ones that attnkit trains on."""
    found = load_file(spec["ids"])
    texts = list(documents(spec))
    rows, pieces = [], []
    for begin, end in zip(found["row_starts"][:-1], found["row_starts"][1:], strict=True):
        row: list[int] = []
        numbers: list[int] = []
        for n, piece in enumerate(range(begin, end)):
            at, size = int(found["offsets"][piece]), int(found["sizes"][piece])
            row += [BEGIN, *texts[found["documents"][piece]][at : at + size], END]
            numbers += [n] * (size + 2)
        rows.append(row)
        pieces.append(numbers)
    return Rows(rows, pieces)


ROWS = {"across": across, "alone": alone, "packed": packed}


def arguments(spec: Message) -> TrainingArguments:
    """Return what the Trainer is told."""
    chosen = {"train_sampling_strategy": "group_by_length"} if spec["grouped"] else {}
    compiled = {"torch_compile": True} if spec["compiled"] else {}
    return TrainingArguments(
        output_dir=spec["out"], per_device_train_batch_size=spec["rows"], max_steps=spec["steps"], seed=spec["seed"],
        learning_rate=spec["learning_rate"], lr_scheduler_type="linear", warmup_steps=spec["warmup"],
        adam_beta1=spec["betas"][0], adam_beta2=spec["betas"][1], weight_decay=spec["weight_decay"],
        max_grad_norm=spec["clip"], bf16=spec["precision"] == "bfloat16", use_cpu=spec["device"] == "cpu", report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True, remove_unused_columns=False,
        dataloader_num_workers=spec["workers"], dataloader_persistent_workers=spec["workers"] > 0,
        **chosen, **compiled,
    )  # fmt: skip


def held_out(model: Any, spec: Message) -> float:
    """Return the mean negative log-likelihood of the hidden tokens of the development set, by transformers alone."""
    found = {name: torch.from_numpy(part) for name, part in load_file(spec["held out"]).items()}
    model.eval()
    total = 0.0
    with torch.inference_mode():
        for begin in range(0, len(found["ids"]), 32):
            part = slice(begin, begin + 32)
            ids, passages, labels = (found[name][part] for name in ("ids", "passages", "labels"))
            apart = (passages[:, :, None] != passages[:, None, :])[:, None]
            mask = apart * torch.finfo(torch.float32).min  # added to scores, which every kind of attention takes
            logits = model(input_ids=ids, attention_mask=mask, position_ids=found["places"][part]).logits
            chosen = labels >= 0
            total += F.cross_entropy(logits[chosen].float(), labels[chosen], reduction="sum").item()
    return total / int((found["labels"] >= 0).sum())


def train(spec: Message) -> Message:
    """Train once."""
    torch.set_num_threads(spec["threads"])
    model = AutoModelForMaskedLM.from_pretrained(
        spec["model"], hidden_dropout_prob=spec["dropout"], attention_probs_dropout_prob=spec["dropout"],
        attn_implementation=spec["attention"],
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(spec["model"])
    rows = ROWS[spec["layout"]](spec)
    clock = Clock()
    trainer = Counting(
        model=model, args=arguments(spec), train_dataset=rows, callbacks=[clock],
        data_collator=Collator(tokenizer, spec["length"]),
    )  # fmt: skip
    trainer.train()
    n_text, n_real, n_places = trainer.counts.tolist()
    done = {
        "seconds": without_warm_up(clock.times), "all seconds": clock.times[-1] - clock.times[0],
        "text tokens": n_text, "steps": trainer.state.global_step, "real tokens": n_real,
        "padding": 1 - n_real / n_places,
    }  # fmt: skip
    if spec["held out"]:
        folder = Path(spec["out"]) / "model"
        save(model, Path(spec["model"]), folder)
        # Loaded anew: what the Trainer trained computes in bfloat16 from now on.
        done["own loss"] = held_out(AutoModelForMaskedLM.from_pretrained(folder), spec)
    return done


def save(model: Any, source: Path, folder: Path) -> None:
    """Write the weights, beside the configuration and the tokenizer that training began with."""
    model.save_pretrained(folder)
    for path in source.iterdir():
        if path.name != "model.safetensors":
            shutil.copyfile(path, folder / path.name)


def main() -> None:
    """Do what is asked for and answer on what was stdout."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    replies.write(json.dumps(train(json.loads(sys.argv[1]))) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
