"""Runs of random weights of each task that is served beside translation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

for _folder in ("formats", "tasks"):
    sys.path.append(str(Path(__file__).parents[1] / _folder))

import finetuned  # noqa: E402
from hub_runs import configure, save_run, shaken, vocabulary  # noqa: E402

import attnkit  # noqa: E402
from attnkit.models.bert import Bert  # noqa: E402
from attnkit.models.gpt import Gpt  # noqa: E402


def task_runs(
    folder: Path, moods: Sequence[str] = ("bad", "good"), tags: Sequence[str] = ("B-PER", "I-PER", "O")
) -> dict[str, Path]:
    """Write a BERT, a GPT, a classifier, a tagger, a reader and word vectors; return them by name."""
    found = {}
    for name, task in (("bert", "mlm"), ("gpt", "clm")):
        torch.manual_seed(6)
        words = vocabulary("bpe")
        config = configure(task, words)
        model = (Bert if task == "mlm" else Gpt)(config.model, words.vocab_size)
        found[name] = save_run(folder / name, config, shaken(model), words)
    found["mood"] = finetuned.random_run(folder / "mood", "text-classification", list(moods))
    found["names"] = finetuned.random_run(folder / "names", "token-classification", list(tags))
    found["answers"] = finetuned.random_run(folder / "answers", "question-answering")
    text = folder / "words.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 50)
    settings = {"dim": 8, "epochs": 1, "data.min_count": 1}
    attnkit.word2vec(text, folder / "words", seed=1, threads=1, quiet=True, settings=settings)
    found["words"] = folder / "words"
    return found
