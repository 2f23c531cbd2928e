"""A run that was stopped and called again ends bit for bit where an uninterrupted one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnkit.errors import StoppedError
from attnkit.tasks.translation.data import StatusEvent
from attnkit.tasks.translation.task import TrainingStarted, TrainRequest, ValidationFinished, train
from attnkit.training.records import StepRecord

DROPOUT = {"model__dropout": 0.3}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {**DROPOUT, "model__attention_dropout": 0.1}),
    "transformer, moving average, weights drawn anew": (
        "transformer",
        {**DROPOUT, "optimization__ema_decay": 0.9, "data__weights": [0.6]},
    ),
    "transformer, accumulated, bfloat16": (
        "transformer",
        {**DROPOUT, "optimization__gradient_accumulation_steps": 2, "precision": "bfloat16"},
    ),
    "transformer, R-Drop, BPE-dropout": (
        "transformer",
        {
            **DROPOUT,
            "model__word_dropout": 0.2,
            "regularization": {"r_drop": 5.0, "bpe_dropout": 0.2},
            "vocabulary": {"kind": "bpe", "size": 400},
            "optimization__gradient_accumulation_steps": 2,
        },
    ),
    "rnn, unigram sampling": (
        "rnn",
        {"regularization": {"unigram_alpha": 0.2}, "vocabulary": {"kind": "unigram", "size": 400}},
    ),
    "transformer, averaged": ("transformer", {**DROPOUT, "checkpoints__average": 2}),
    "transformer, Muon, moving average": (
        "transformer",
        {
            **DROPOUT,
            "optimization__optimizer": "muon",
            "optimization__ema_decay": 0.9,
            "optimization__gradient_accumulation_steps": 2,
        },
    ),
    "transformer, Muon, bfloat16": (
        "transformer",
        {**DROPOUT, "optimization__optimizer": "muon", "precision": "bfloat16"},
    ),
    "rnn, Muon": ("rnn", {**DROPOUT, "optimization__optimizer": "muon", "model__cell": "lstm"}),
    "rnn, additive, previous": (
        "rnn",
        {**DROPOUT, "model__word_dropout": 0.2, "model__attention_query": "previous", "model__alignment": "additive"},
    ),
    "rnn, lstm, input feeding": (
        "rnn",
        {**DROPOUT, "model__cell": "lstm", "model__attention_query": "current", "model__input_feeding": True},
    ),
}


def outcome(run: Path, step: int) -> dict[str, bytes]:
    """Return the bytes of all that must not depend on interruptions."""
    names = [f"checkpoints/step-{step}/model.safetensors", f"checkpoints/step-{step}/optimizer.safetensors"]
    names += ["metrics.jsonl", "best", "tokenizer.json", "averaged/model.safetensors"]
    names += ["labels.json", "vectors.json"]
    return {name: (run / name).read_bytes() for name in names if (run / name).exists()}


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES)
def test_stopping_changes_nothing(workshop: Any, tmp_path: Path, case: str) -> None:
    kind, changes = CASES[case]
    config = workshop.configure(kind, **changes)
    whole = workshop.train(config, tmp_path / "whole")
    # An epoch has about 17 steps: after the first step, on an evaluation, and between two.
    pieces = workshop.train(config, tmp_path / "pieces", stops=(1, 4, 3, 3))
    assert whole == pieces
    assert whole.step == 12
    expected, found = outcome(tmp_path / "whole", 12), outcome(tmp_path / "pieces", 12)
    assert len(expected) >= 5 and expected.keys() == found.keys()
    assert [name for name in expected if expected[name] != found[name]] == []


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lines, noisy": (
        "lines",
        {"model__dropout": 0.3, "noise": {"word_dropout": 0.2, "mask_prob": 0.1, "shuffle_prob": 0.3}},
    ),
    "lines, lstm, averaged": ("lines", {"model__cell": "lstm", "checkpoints__average": 2, "model__decoder_layers": 2}),
    "vectors, noisy, moving average": ("vectors", {"noise__mask_prob": 0.3, "optimization__ema_decay": 0.9}),
    "documents, accumulated": ("documents", {"model__dropout": 0.3, "optimization__gradient_accumulation_steps": 2}),
    "documents, bfloat16": ("documents", {"precision": "bfloat16"}),
}
DROPPED = {"model__dropout": 0.3, "model__attention_dropout": 0.3}
OTHERS |= {
    "masked tokens": ("masked tokens", DROPPED),
    "masked tokens, falling rate": (
        "masked tokens",
        {"masking__final_mask_prob": 0.1, "optimization__gradient_accumulation_steps": 2, **DROPPED},
    ),
    "replaced tokens, accumulated": (
        "replaced tokens",
        {"masking__final_mask_prob": 0.4, "optimization__gradient_accumulation_steps": 2, **DROPPED},
    ),
    "replaced tokens, bfloat16": ("replaced tokens", {"precision": "bfloat16", **DROPPED}),
    "pairs, bfloat16": ("pairs", {"precision": "bfloat16", **DROPPED}),
    "next words, accumulated": ("next words", {"optimization__gradient_accumulation_steps": 2, **DROPPED}),
    "texts, bfloat16": ("texts", {"precision": "bfloat16", **DROPPED}),
}
MUON = ("lines", "documents", "masked tokens", "replaced tokens", "pairs", "next words", "texts")
OTHERS |= {f"{name}, Muon": (name, {"optimization__optimizer": "muon", "model__dropout": 0.3}) for name in MUON}
LONG = ("lines, lstm, averaged", "documents, bfloat16")


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.slow) if c in LONG else c for c in OTHERS])
def test_stopping_another_task_changes_nothing(workshop: Any, tmp_path: Path, case: str) -> None:
    name, changes = OTHERS[case]
    config = workshop.configure_task(name, **changes)
    whole = workshop.train(config, tmp_path / "whole")
    pieces = workshop.train(config, tmp_path / "pieces", stops=(1, 4, 2, 3))
    assert whole == pieces and whole.step == 12
    expected, found = outcome(tmp_path / "whole", 12), outcome(tmp_path / "pieces", 12)
    assert len(expected) >= 5 and expected.keys() == found.keys()
    assert [name for name in expected if expected[name] != found[name]] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("stop", [1, 3, 4, 6])
def test_every_step_of_a_noisy_epoch_can_be_the_last(workshop: Any, tmp_path: Path, stop: int) -> None:
    """Six steps with an evaluation after three, across the end of an epoch: a stop at any question."""
    changes = {
        "noise__mask_prob": 0.5,
        "limits__max_steps": 6,
        "evaluation": {"every_steps": 3},
        "optimization__batch_tokens": 80,
    }
    config = workshop.configure_task("vectors", **changes)
    whole = workshop.train(config, tmp_path / "whole")
    assert whole == workshop.train(config, tmp_path / "pieces", stops=(stop,))
    assert outcome(tmp_path / "whole", 6) == outcome(tmp_path / "pieces", 6)


def test_stopping_across_an_epoch(workshop: Any, tmp_path: Path) -> None:
    config = workshop.configure("transformer", limits__max_steps=25, evaluation={"every_epochs": 0.5}, **DROPOUT)
    whole = workshop.train(config, tmp_path / "whole")
    assert whole == workshop.train(config, tmp_path / "pieces", stops=(16, 1, 1, 3))
    assert outcome(tmp_path / "whole", 25) == outcome(tmp_path / "pieces", 25)


def test_a_kill_before_the_best_was_named_changes_nothing(workshop: Any, tmp_path: Path) -> None:
    config = workshop.configure(limits__metric="loss", limits__early_stopping_patience=50)
    whole = workshop.train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        for event in train(TrainRequest(config, tmp_path / "pieces")):
            if isinstance(event, ValidationFinished):
                raise KeyboardInterrupt
    (tmp_path / "pieces/best").unlink()
    steps = iter(range(100))
    with pytest.raises(StoppedError):
        list(train(TrainRequest(config, tmp_path / "pieces", stop=lambda: next(steps) == 0)))
    assert (tmp_path / "pieces/best").read_text() == "step-5\n"
    assert workshop.train(config, tmp_path / "pieces") == whole
    assert outcome(tmp_path / "whole", 12) == outcome(tmp_path / "pieces", 12)


def test_a_kill_between_saves_leaves_no_second_log(workshop: Any, tmp_path: Path) -> None:
    """Step 10 is logged, the newest checkpoint is of step 7: the line must not are there twice."""
    config = workshop.configure(evaluation={"every_steps": 20}, checkpoints__save_every=7, **DROPOUT)
    workshop.train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        for event in train(TrainRequest(config, tmp_path / "pieces")):
            if isinstance(event, StepRecord) and event.step == 11:
                raise KeyboardInterrupt
    assert b'"step":10' in (tmp_path / "pieces/metrics.jsonl").read_bytes().replace(b" ", b"")
    workshop.train(config, tmp_path / "pieces")
    assert outcome(tmp_path / "whole", 12) == outcome(tmp_path / "pieces", 12)


def test_the_seed_matters(workshop: Any, tmp_path: Path) -> None:
    """Otherwise the tests above would compare constants."""
    outcomes = []
    for seed in (1, 2):
        workshop.train(workshop.configure("transformer", limits__max_steps=2, seed=seed), tmp_path / str(seed))
        outcomes.append(outcome(tmp_path / str(seed), 2))
    assert outcomes[0]["checkpoints/step-2/model.safetensors"] != outcomes[1]["checkpoints/step-2/model.safetensors"]


def status(run: Path) -> Any:
    return json.loads((run / "status.json").read_text())


def test_a_kill_in_the_last_evaluation_leaves_it_to_the_next_call(workshop: Any, tmp_path: Path) -> None:
    """The last step is saved, as ``save_every`` asks, before it is evaluated."""
    config = workshop.configure(limits__max_steps=6, checkpoints__save_every=3, **DROPOUT)
    whole = workshop.train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        for event in train(TrainRequest(config, tmp_path / "pieces")):
            if isinstance(event, StepRecord) and event.step == 6:
                raise KeyboardInterrupt
    assert (tmp_path / "pieces/checkpoints/step-6").is_dir()
    assert workshop.train(config, tmp_path / "pieces") == whole, "not finished already"
    assert outcome(tmp_path / "whole", 6) == outcome(tmp_path / "pieces", 6)
    assert (tmp_path / "pieces/README.md").exists() and status(tmp_path / "pieces")["state"] == "finished"
    assert workshop.train(config, tmp_path / "pieces").already


def test_a_kill_after_the_last_save_leaves_the_end_to_the_next_call(workshop: Any, tmp_path: Path) -> None:
    config, run = workshop.configure(limits__max_steps=5), tmp_path / "pieces"
    whole = workshop.train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        for event in train(TrainRequest(config, run)):
            if isinstance(event, ValidationFinished):
                raise KeyboardInterrupt
    (run / "best").unlink()
    assert not (run / "README.md").exists() and status(run)["state"] == "running"
    done = workshop.train(config, run)
    assert done.already and (done.best, done.metrics) == (whole.best, whole.metrics) and done.metrics
    assert (run / "best").read_text() == "step-5\n"
    assert "5 steps" in (run / "README.md").read_text()
    assert (status(run)["state"], status(run)["step"], status(run)["exit_code"]) == ("finished", 5, 0)


def test_a_stop_is_one_only_where_something_is_saved(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    events = train(TrainRequest(workshop.configure(limits__max_steps=5), run))
    assert isinstance(next(events), StatusEvent)
    with pytest.raises(KeyboardInterrupt):
        events.throw(KeyboardInterrupt)
    assert not run.exists(), "nothing was worth keeping"
    workshop.train(workshop.configure(limits__max_steps=5), run)
    events = train(TrainRequest(workshop.configure(limits__max_steps=9), run))
    assert isinstance(next(events), TrainingStarted)
    with pytest.raises(KeyboardInterrupt):
        events.throw(KeyboardInterrupt)
    assert (status(run)["state"], status(run)["step"], status(run)["exit_code"]) == ("stopped", 5, 130)
