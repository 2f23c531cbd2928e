"""A tagger or reader that was stopped and called again ends bit for bit where an uninterrupted one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from labeled import asked, configure, tagged, write_asked, write_tagged
from test_resume_run import outcome

STEPS = (
    *("limits.max_steps=12", "optimization.batch_tokens=200", "optimization.learning_rate=1e-2"),
    *("evaluation.every_steps=5", "evaluation.n_samples=1", "model.dropout=0.3", "model.attention_dropout=0.2"),
)
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tag, weighed, accumulated": (
        "token-classification",
        ("finetuning.class_weights=balanced", "optimization.gradient_accumulation_steps=2"),
    ),
    "tag, parts of sentences, bfloat16": ("token-classification", ("precision=bfloat16", "data.max_length=9")),
    "answer, smoothed": ("question-answering", ("optimization.label_smoothing=0.1", "data.windows.max_length=16")),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
def test_stopping_changes_nothing(workshop: Any, tmp_path: Path, case: str) -> None:
    task, sets = CASES[case]
    if task == "token-classification":
        path = write_tagged(tmp_path / "a", tagged(60, seed=1))
    else:
        path = write_asked(tmp_path / "a", asked(20, seed=1, impossible=0.5))
    config = configure(task, path, None, *STEPS, *sets)
    whole = workshop.train(config, tmp_path / "whole")
    pieces = workshop.train(config, tmp_path / "pieces", stops=(1, 4, 2, 3))
    assert whole == pieces and whole.step == 12
    expected, found = outcome(tmp_path / "whole", 12), outcome(tmp_path / "pieces", 12)
    assert len(expected) >= 6 and expected.keys() == found.keys(), "labels.json too"
    assert [name for name in expected if expected[name] != found[name]] == []
