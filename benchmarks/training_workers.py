"""The systems of speed_training.py, each in a process that trains when it is told to and reports real tokens.

Run by that script: attnkit under its own interpreter, Hugging Face's under the peers'; imports stay inside functions.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import Conversation

WARMUP = 40  # steps: the slowest system must pass it, so that losses are compared where learning rates are equal


class Turn:
    """The clock of one worker: trains when told to, for so many seconds, and reports."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.n_steps = 0
        self.spent = 0.0
        self.losses: list[list[float]] = []
        """Step, seconds of training, negative log-likelihood in nats a token."""
        self._talk = Conversation()

    def begin(self, precision: str, set_threads: Callable[[int], None], validation: Callable[[], float]) -> None:
        """Wait for the first turn."""
        self.precision, self.set_threads, self.validation = precision, set_threads, validation
        self._wait()

    def step(self, n_tokens: int) -> None:
        """Count a step that is done; look at the validation set, end the turn and wait for the next when it is time."""
        now = time.perf_counter()
        self.n_steps += 1
        self.tokens += n_tokens
        self.steps += 1
        self.clock += now - self._since
        if self.n_steps % self.every == 0:
            self.losses.append([self.n_steps, self.spent + self.clock, self.validation()])
        if self.clock >= self._seconds:
            self.spent += self.clock
            self._talk.reply({"tokens": self.tokens, "seconds": self.clock, "steps": self.steps, "losses": self.losses,
                         "precision": self.precision})  # fmt: skip
            self._wait()
        self._since = time.perf_counter()

    def _wait(self) -> None:
        message = self._talk.listen()
        if message is None:
            raise SystemExit
        self.set_threads(message["threads"])
        self._seconds = message["seconds"]
        self.tokens = self.steps = 0
        self.clock = 0.0
        self._since = time.perf_counter()


def attnkit_worker(work: Path, options: argparse.Namespace, turn: Turn) -> None:
    """Train with attnkit's own loop."""
    import torch
    from safetensors.torch import load_file

    from attnkit.data.loader import DataPosition
    from attnkit.distributed.process_group import ProcessGroup
    from attnkit.engine.gradient_session import build_job
    from attnkit.models.translation import build_model
    from attnkit.runtime.devices import choose_precision
    from attnkit.tasks.translation.config import TranslationConfig
    from attnkit.tasks.translation.data import open_prepared
    from attnkit.tasks.translation.evaluate import TranslationEvaluation, development_loss
    from attnkit.tasks.translation.task import TASK
    from attnkit.training.flat_optimizer import FlatParameterStore
    from attnkit.training.loop import fit
    from attnkit.training.records import StepRecord
    from attnkit.training.state import TrainState

    config = TranslationConfig.model_validate_json((work / "config.json").read_text())
    config = config.model_copy(update={"model": config.model.model_copy(update={"dropout": options.dropout})})
    prepared = open_prepared(work / "data")
    size = prepared.vocabularies.src.vocab_size
    model: Any = build_model(config.model, size, size)
    model.load_state_dict(load_file(work / "model.safetensors"))
    device = torch.device("cpu")
    precision = str(choose_precision("auto", device)).removeprefix("torch.")
    state = TrainState(FlatParameterStore(model, config.optimization, precision), DataPosition())  # type: ignore[arg-type]
    job = build_job(
        TASK, config, model, prepared, TranslationEvaluation(prepared, config.decoding, device, 0), ProcessGroup()
    )

    def validation() -> float:
        model.eval()
        with torch.no_grad(), state.weights.inference() as weights:
            return development_loss(weights, prepared.valid, device)  # type: ignore[arg-type]

    turn.begin(precision, torch.set_num_threads, validation)
    for record in fit(job, state):
        assert isinstance(record, StepRecord)
        turn.step(record.n_tokens)


def hf_worker(work: Path, options: argparse.Namespace, turn: Turn) -> None:
    """Train with Hugging Face's Trainer."""
    import torch
    from datasets import Dataset
    from marian import PAD, load_marian, pad
    from transformers import Trainer, TrainerCallback, TrainingArguments

    best = options.system == "hf-best"
    model = load_marian(work / "marian", options.dropout)
    src, tgt = json.loads((work / "train.json").read_text())
    examples = [{"input_ids": s, "labels": t, "length": len(s)} for s, t in zip(src, tgt, strict=True)]
    valid = list(zip(*json.loads((work / "valid.json").read_text()), strict=True))
    n_tokens: list[int] = []  # of each batch, in the order in which they are made, one ahead of the steps

    def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        n_tokens.append(sum(len(each["input_ids"]) + len(each["labels"]) for each in batch))
        inputs = pad([each["input_ids"] for each in batch])
        labels = pad([each["labels"] for each in batch], -100)
        return {"input_ids": inputs, "attention_mask": (inputs != PAD).long(), "labels": labels}

    def validation() -> float:
        return hf_validation(model, valid)

    class Turns(TrainerCallback):
        """Counts steps and waits between turns."""

        def on_train_begin(self, *arguments: Any, **keywords: Any) -> None:
            turn.begin("bfloat16" if best else "float32", torch.set_num_threads, validation)

        def on_step_end(self, args: Any, state: Any, *arguments: Any, **keywords: Any) -> None:
            turn.step(n_tokens[state.global_step - 1])

    arguments = TrainingArguments(
        output_dir=str(work / options.system), per_device_train_batch_size=options.pairs, num_train_epochs=100000,
        learning_rate=options.learning_rate, lr_scheduler_type="constant_with_warmup", warmup_steps=WARMUP,
        adam_beta2=0.98, weight_decay=0.01, max_grad_norm=1.0, bf16=best, use_cpu=True, seed=1, report_to=[],
        save_strategy="no", logging_steps=10**9, disable_tqdm=True, remove_unused_columns=False,
        **({"train_sampling_strategy": "group_by_length"} if best else {}),
    )  # fmt: skip
    data = Dataset.from_list(examples)
    Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate, callbacks=[Turns()]).train()


def hf_validation(model: Any, pairs: list[tuple[list[int], list[int]]]) -> float:
    """Return the mean negative log-likelihood of the targets in nats, in float32."""
    import torch
    from marian import PAD, pad

    model.eval()
    total = count = 0.0
    with torch.inference_mode():
        for start in range(0, len(pairs), 64):
            src, tgt = zip(*pairs[start : start + 64], strict=True)
            inputs, labels = pad(list(src)), pad(list(tgt), -100)
            logits = model(input_ids=inputs, attention_mask=(inputs != PAD).long(), labels=labels).logits.float()
            total += torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
            ).item()
            count += int((labels != -100).sum())
    model.train()
    return total / count


def main() -> None:
    """Train one system, turn by turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=("attnkit", "hf-default", "hf-best"))
    parser.add_argument("work", type=Path)
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--pairs", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    options = parser.parse_args()
    turn = Turn(options.every)
    (attnkit_worker if options.system == "attnkit" else hf_worker)(options.work, options, turn)


if __name__ == "__main__":
    main()
