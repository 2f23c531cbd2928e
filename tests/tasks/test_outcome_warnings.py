"""Runs that have learned nothing say so at their end; short and good ones do not."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeled import asked, tagged, write_asked, write_tagged
from labeled import configure as configure_labels
from language import configure, write

from attnkit.data.prepared_dir import WarningEvent
from attnkit.engine.task import TrainingOutcome
from attnkit.engine.trainer import TrainRequest, train
from attnkit.tasks.finetuning import question_answering, token_classification
from attnkit.tasks.language_modeling.data import load_text
from attnkit.tasks.language_modeling.evaluate import unigram_loss
from attnkit.tasks.language_modeling.task import TASK

LEARNT = "optimization.learning_rate=1e-2"
WASTED = ("optimization.learning_rate=1.0", "optimization.schedule=constant")


def sentences(n: int) -> list[str]:
    """Return sentences whose next word depends on the one before."""
    drawn = random.Random(1)
    parts = [["the", "a"], ["old", "red", "tall"], ["man", "dog", "owl"], ["sleeps", "eats", "runs"], ["here", "there"]]
    return [" ".join(drawn.choice(words) for words in parts) + f" {n}" for n in range(n)]


def warnings_of(config: Any, run: Path) -> list[str]:
    return [event.text for event in train(TrainRequest(config, run)) if isinstance(event, WarningEvent)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("task", ["mlm", "clm"])
def test_a_learning_rate_that_is_far_too_high_is_told(task: str, tmp_path: Path) -> None:
    text, valid = write(tmp_path / "text", *sentences(300)), write(tmp_path / "valid", *sentences(60))
    files = {"data.valid_files": [str(valid)]}
    sets = ["limits.max_steps=120", "evaluation.every_steps=40", "optimization.warmup_steps=10"]
    (warning,) = warnings_of(configure(task, [text], *sets, *WASTED, **files), tmp_path / "wasted")
    assert warning.startswith("little is learned: loss ") and "lower optimization.learning_rate" in warning
    assert max(map(len, f"warning: {warning}".splitlines())) <= 80
    assert warnings_of(configure(task, [text], *sets, LEARNT, **files), tmp_path / "learnt") == []
    assert warnings_of(configure(task, [text], "limits.max_steps=2", *WASTED), tmp_path / "short") == []


@pytest.mark.parametrize("task", ["mlm", "clm"])
def test_the_loss_of_frequencies_is_that_of_a_count(task: str, tmp_path: Path) -> None:
    text, valid = write(tmp_path / "text", *sentences(60)), write(tmp_path / "valid", "the red zebra sleeps", "a dog")
    config = configure(task, [text], "limits.max_steps=1", **{"data.valid_files": [str(valid)]})
    warnings_of(config, tmp_path / "run")
    prepared = load_text(config, tmp_path / "run/data")
    end = [2] if task == "clm" else []
    read = [
        [id for line in path.read_text().splitlines() for id in prepared.tokenizer.encode([line])[0] + end]
        for path in (tmp_path / "held", tmp_path / "valid")
        if path.exists() or path.write_text("".join(f"{line}\n" for line in sentences(60)))
    ]
    counts, size = Counter(read[0]), prepared.tokenizer.vocab_size
    expected = -sum(math.log((counts[id] + 1) / (len(read[0]) + size)) for id in read[1]) / len(read[1])
    assert unigram_loss(prepared) == pytest.approx(expected, rel=1e-12)


def test_what_is_said_of_language_models(tmp_path: Path) -> None:
    config = configure("clm", [write(tmp_path / "text", *sentences(60))], "limits.max_steps=1")
    warnings_of(config, tmp_path / "run")
    data = load_text(config, tmp_path / "run/data")
    unigram = unigram_loss(data)

    def said(losses: list[float], n_steps: int = 500, initialized: bool = False) -> list[str]:
        outcome = TrainingOutcome({"loss": min(losses)}, losses, n_steps, initialized)
        return list(TASK.outcome_warnings(config, data, outcome))

    assert f"of token frequencies alone, {unigram:.2f}" in said([9.0, unigram])[0]
    assert said([9.0, unigram + 2, unigram + 1]) and said([9.0, 0.96 * unigram])
    assert said([9.0, unigram], initialized=True)  # adapting has destroyed what was there
    assert said([9.0, 0.94 * unigram]) == said([9.0, unigram], n_steps=99) == []
    (rose,) = said([unigram - 1, unigram - 0.5, 9.0])
    assert rose.startswith(f"the loss did not fall after the first evaluation, {unigram - 1:.2f}")
    assert said([unigram - 1, 9.0]) == said([unigram - 1, 9.0, unigram - 1.1]) == []
    assert said([unigram - 1, 9.0, 9.0], initialized=True) == []  # an adapted model is often best at once
    assert list(TASK.outcome_warnings(config, data, TrainingOutcome({}, [], 500, False))) == []


def test_a_tagger_that_finds_nothing_is_told(tmp_path: Path) -> None:
    files = [
        write_tagged(tmp_path / f"{name}.conll", tagged(n, seed)) for name, n, seed in (("a", 200, 1), ("b", 40, 2))
    ]
    sets = ["optimization.batch_tokens=300", "evaluation.every_epochs=4", "limits.max_epochs=4"]
    config = configure_labels("token-classification", *files, *sets, LEARNT)
    assert warnings_of(config, tmp_path / "learnt") == []
    data = token_classification.TASK.load_data(config, tmp_path / "learnt/data")
    tags = Counter(tag for words in tagged(40, 2) for _, tag in words)
    share = 100 * tags["O"] / tags.total()

    def said(accuracy: float, f1: float) -> list[str]:
        outcome = TrainingOutcome({"accuracy": accuracy, "f1": f1, "loss": 1.0}, [1.0], 10, True)
        return list(token_classification.TASK.outcome_warnings(config, data, outcome))

    (warning,) = said(share - 0.01, 0.0)
    assert f"always predicting 'O' has {share:.1f} %" in warning and "--from-scratch" in warning
    assert said(share + 0.01, 0.0) == said(share - 0.01, 30.0) == []  # entities cost accuracy
    plain = [[(word, tag.replace("-", "")) for word, tag in words] for words in tagged(200, 1)]
    config = configure_labels(
        "token-classification", write_tagged(tmp_path / "plain", plain), None, "limits.max_steps=1"
    )
    warnings_of(config, tmp_path / "plain-run")
    data = token_classification.TASK.load_data(config, tmp_path / "plain-run/data")
    assert said(10.0, 10.0) and not said(90.0, 90.0)  # without entities, F1 is the accuracy


def test_a_reader_that_points_anywhere_is_told(tmp_path: Path) -> None:
    path = write_asked(tmp_path / "squad.json", asked(120, seed=1))
    sets = ["optimization.batch_tokens=2000", "evaluation.every_epochs=1"]
    wasted = configure_labels("question-answering", path, path, *sets, "limits.max_steps=60", *WASTED)
    (warning,) = warnings_of(wasted, tmp_path / "wasted")
    data = question_answering.TASK.load_data(wasted, tmp_path / "wasted/data")
    rows = data.valid.batch(np.arange(len(data.valid)))
    uniform = float((rows.context.sum(1) + 1).double().log().mean())
    assert f"if all positions are equally likely, it is {uniform:.2f}\n" in warning
    assert max(map(len, f"warning: {warning}".splitlines())) <= 80
    learnt = configure_labels("question-answering", path, path, *sets, "limits.max_epochs=4", LEARNT)
    assert warnings_of(learnt, tmp_path / "learnt") == []
