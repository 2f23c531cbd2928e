"""Fine-tuned runs of random weights, written by hand, for the tests of what is done with such runs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attnkit.checkpoints.logs import Status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import tensors_of, to_bytes
from attnkit.config import dump_yaml, validate
from attnkit.data.labels import Labels
from attnkit.engine.loading import load_model
from attnkit.engine.predict import Predictor, PredictRequest, open_predictor
from attnkit.engine.registry import TASKS
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.models.bert import SequenceClassifier, SpanPredictor, TokenTagger
from attnkit.text.config import VocabularyConfig
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

TEXT = [
    "the quick brown fox jumps over the lazy dog",
    "ada lives in london, paris sleeps",
    "who sleeps? the dog doesn't",
    "größer als der größte hund",
] * 4
WORDS = [*TEXT[0].split(), *TEXT[1].replace(",", "").split(), *TEXT[3].split()]
SIZES = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "max_length": 24}


def vocabulary() -> Tokenizer:
    return train_vocabulary(TEXT, VocabularyConfig(kind="bpe", size=400))


def random_run(
    path: Path,
    task: str,
    labels: Sequence[str] = (),
    data: dict[str, Any] | None = None,
    columns: Sequence[str] | None = None,
) -> Path:
    """Write a run whose random weights are strong enough that what it finds differs from text to text."""
    torch.manual_seed(1)
    words = vocabulary()
    tree = TASKS[task].preset("tiny", "bert")
    tree |= {
        "task": task,
        "data": {"files": ["train.txt"], **(data or {})},
        "model": {**tree["model"], **SIZES},
        "vocabulary": words.config.model_dump(mode="json"),
    }
    config = validate(TASKS[task].config, tree)
    size, sizes = words.vocab_size, [len(labels)] if task != "question-answering" else []
    kinds: dict[str, Any] = {
        "text-classification": SequenceClassifier,
        "token-classification": TokenTagger,
        "question-answering": SpanPredictor,
    }
    model = kinds[task](config.model, size, *sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.15)
        model.output.weight.mul_(4)
        model.encoder.embedding_norm.weight.mul_(6)  # words weigh more than what layers add
    contents = {
        "config.yaml": dump_yaml(config).encode(),
        "tokenizer.json": words.to_json().encode(),
        "model.safetensors": to_bytes(tensors_of(model)),
    }
    if labels:
        contents["labels.json"] = Labels(
            labels=list(labels), columns=None if columns is None else list(columns)
        ).to_bytes()
    folder = RunFolder(path)
    with folder.lock():
        folder.save(3, contents)
        folder.write_status(Status(state="stopped", step=3))
    return path


@functools.cache
def opened(run: Path, task: str) -> tuple[Any, Tokenizer]:
    """Return the model and the vocabulary of a run."""
    found = load_model(run, task, device="cpu")
    return found.model, read_tokenizer(found.checkpoint)


def predicting(run: Path, *paths: Path, told: list[str] | None = None, **asked: Any) -> Predictor:
    """Open a run for predictions on files; what is told goes into a list."""
    said = [] if told is None else told
    return open_predictor(PredictRequest(run, list(paths), device="cpu", threads=1, **asked), said.append)


def predicted(run: Path, *paths: Path, **asked: Any) -> list[str]:
    """Return the output lines for files."""
    return [line for lines in predicting(run, *paths, **asked) for line in lines]


def write(path: Path, *lines: str) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path
