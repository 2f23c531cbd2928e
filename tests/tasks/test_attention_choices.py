"""Alignment and distribution functions from the command line: what trains, and what is told where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnkit.engine.resolve import resolve
from attnkit.errors import UsageError
from attnkit.models.attention.config import ALIGNMENT_NAMES

FLAGS = {"data.src": ["a.en"], "data.tgt": ["a.de"]}


def refuse(kind: str, *sets: str) -> list[str]:
    """Return the lines of the error."""
    with pytest.raises(UsageError) as caught:
        resolve({**FLAGS, "model.kind": kind}, sets=sets, preset_name="tiny")
    return caught.value.lines()


def test_a_wrong_name_is_told_with_the_nearest_right_one() -> None:
    lines = refuse("rnn", "model.alignment=aditive")
    assert lines[0] == 'error: model.alignment cannot be "aditive"'
    assert "(--set model.alignment)" in lines[1] and lines[2].endswith("did you mean 'additive'?")
    lines = refuse("transformer", "model.alignment=scaled-dot")
    assert lines[0] == 'error: model.alignment cannot be "scaled-dot"'
    assert lines[2].endswith("did you mean 'scaled_dot'?")
    lines = refuse("transformer", "model.alignment=[dot, dot, depe, dot]")
    assert lines[0] == 'error: model.alignment.2 cannot be "depe"'
    assert lines[2].endswith("did you mean 'deep'?")
    lines = refuse("transformer", "model.distribution=sparse_max")
    assert lines[0] == 'error: model.distribution cannot be "sparse_max"' and "'sparsemax'?" in lines[2]
    assert refuse("transformer", "model.alignment=7")[0] == "error: model.alignment cannot be 7"
    assert refuse("transformer", "model.alignment=null")[0] == "error: model.alignment cannot be null"


def test_a_list_of_another_length_is_told() -> None:
    lines = refuse("transformer", "model.alignment=[scaled_dot, additive]")
    assert lines[0] == (
        "error: model: alignment names 2 functions, but n_heads is 4: give one name for all heads or one per head"
    )
    assert "model.alignment (--set model.alignment)" in lines[1]


def test_a_pair_without_meaning_is_told_with_the_reason() -> None:
    lines = refuse("transformer", "model.distribution=normalize")
    assert "alignment scaled_dot cannot be combined with distribution normalize: its scores may be negative" in lines[0]
    lines = refuse("rnn", "model.alignment=similarity", "model.distribution=normalize")
    assert "set attention_options.similarity to gaussian" in lines[0]


def test_a_list_is_not_for_recurrent_models() -> None:
    assert refuse("rnn", "model.alignment=[dot]")[0].startswith("error: model.alignment")


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_sentences_that_location_cannot_score_are_told_before_training(kind: str) -> None:
    lines = refuse(kind, "model.alignment=location", "model.attention_options.max_source=256")
    assert lines[0].startswith(
        "error: location attention needs model.attention_options.max_source of 524 for translations of lines"
    )
    assert "(--set model.attention_options.max_source)" in lines[1]
    resolve({**FLAGS, "model.kind": kind}, sets=["model.alignment=location"], preset_name="tiny")


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
@pytest.mark.parametrize("name", ALIGNMENT_NAMES)
def test_every_alignment_resolves_from_the_command_line(kind: str, name: str) -> None:
    found = resolve({**FLAGS, "model.kind": kind}, sets=[f"model.alignment={name}"], preset_name="tiny")
    assert found.config.model.alignment == name and found.origin("model.alignment") == "--set model.alignment"


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixed": (
        "transformer",
        {
            "model__alignment": ["additive", "location"],
            "model__distribution": ["sparsemax", "softmax"],
            "model__attention_options.max_source": 300,
        },
    ),
    "kernel": ("transformer", {"model__alignment": "kernel", "model__distribution": "normalize"}),
    "deep, local": ("rnn", {"model__alignment": "deep", "model__distribution": "local"}),
    "blind": ("rnn", {"model__alignment": "none", "model__feed_context": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_choice_trains_and_translates(workshop: Any, tmp_path: Path, case: str) -> None:
    """And its weights are read back as they were: scores are those of the run that was trained."""
    from attnkit.tasks.translation.translator import load_translator

    kind, changes = CASES[case]
    config = workshop.configure(kind, **changes, limits__max_steps=3)
    run = tmp_path / "run"
    workshop.train(config, run)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if "loss" in record]
    assert 0 < losses[-1] < 10
    translator = load_translator([run], device="cpu")
    lines = ["1 2 3", "", "4 5 6 7"]
    together = translator.translate(lines)
    assert together == [translator.translate([line])[0] for line in lines]


@pytest.mark.parametrize("distribution", ["softmax", "normalize"])
def test_who_listens_to_a_function_answers_as_it_does(distribution: Any) -> None:
    """And keeps what it was asked, also where the scores are taken relative to their row's largest."""
    import torch

    from attnkit.analysis.compare_alignments import StateRecorder
    from attnkit.models.attention.alignment import make_alignment
    from attnkit.models.attention.attend import attend
    from attnkit.models.attention.distribution import make_distribution

    torch.manual_seed(0)
    query, keys, values = (6 * torch.randn(1, 1, n, 64) for n in (2, 5, 5))
    align, distribute = make_alignment("kernel", 64, 64), make_distribution(distribution, 64)
    listener = StateRecorder(align, [0])
    found, expected = (attend(query, keys, values, each, distribute) for each in (listener, align))
    assert torch.equal(found[1], expected[1]) and bool((found[1].sum(-1) > 0.99).all())
    assert len(listener.queries) == len(listener.recorded_keys) == 1
    assert torch.equal(listener.queries[0], query) and torch.equal(listener.recorded_keys[0], keys)
