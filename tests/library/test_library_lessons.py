"""Calls of lessons, the demo, licences and the service: the numbers of their commands, and what they refuse."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import attnkit
import attnkit.demo
from attnkit.cli.main import app
from attnkit.errors import UsageError

LESSONS: list[tuple[list[str], Any]] = [
    (["mask", "--words", "a dog runs"], lambda: attnkit.explain_mask("a dog runs")),
    (["mask", "--pattern", "global", "--size", "2"], lambda: attnkit.explain_mask(pattern="global", size=2)),
    (["positions", "--shift", "5", "--seed", "2"], lambda: attnkit.explain_positions(shift=5, seed=2)),
    (["pooling", "--seed", "3"], lambda: attnkit.explain_pooling(seed=3)),
]


@pytest.mark.parametrize(("words", "call"), LESSONS, ids=[words[0] for words, _ in LESSONS])
def test_a_lesson_is_that_of_the_command(words: list[str], call: Any, tmp_path: Path) -> None:
    lesson = call()
    picture = tmp_path / "picture.svg"
    printed = CliRunner().invoke(app, ["explain", *words, "--svg", str(picture)]).stdout
    assert printed.rstrip("\n") == str(lesson).rstrip("\n") and len(printed) > 500
    assert picture.read_bytes() == lesson.picture()
    numbers = CliRunner().invoke(app, ["explain", *words, "--json"]).stdout
    assert json.loads(numbers) == json.loads(json.dumps(lesson.to_dict()))
    assert "<script" not in lesson._repr_html_() and lesson._repr_html_().startswith("<pre")


def test_a_sentence_of_one_word_is_refused() -> None:
    with pytest.raises(UsageError, match="takes 2 to 20 words, not 1"):
        attnkit.explain_mask("dog")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: attnkit.explain_pooling(seed=1 << 70), "seed is at most"),
        (lambda: attnkit.explain_positions(shift=10**9), "shift is at most 1,000"),
        (lambda: attnkit.explain_mask(pattern="strided", size=1 << 70), "size is at most 1,024"),
        (lambda: attnkit.explain_mask(size=5), "require a pattern"),
        (lambda: attnkit.explain_mask(pattern="window", n_global=7), "requires pattern='global'"),
        (lambda: attnkit.explain_mask().picture("gif"), "unknown format 'gif'"),  # type: ignore[arg-type]
        (lambda: attnkit.serve([]), "runs must be a run or more"),
        (lambda: attnkit.serve(["a"], port=70_000), "port must be at most 65,535"),
        (lambda: attnkit.serve(["a"], api_key=" "), "api_key must be a key"),
        (lambda: attnkit.serve(["a"], host=""), "host must be an address"),
        (lambda: attnkit.serve(["a"], max_wait=float("nan")), "max_wait must be at least 0.1 seconds"),
        (lambda: attnkit.serve(["a"], request_seconds=0.0), "request_seconds must be at least 0.1 seconds"),
    ],
)
def test_values_that_the_command_refuses_are_refused(call: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        call()
    assert error.value.help


def test_licences_are_those_of_the_command() -> None:
    found = [one.to_dict() for one in attnkit.licenses()]
    assert found == json.loads(CliRunner().invoke(app, ["licenses", "--json"]).stdout) and len(found) > 8


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_small_demo_has_scores_and_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "encoder_layers": 1, "decoder_layers": 1}
    config: Any = attnkit.demo.CONFIG
    small = {**config, "model": {**config["model"], **sizes}, "limits": {"max_steps": 3}}
    monkeypatch.setattr(attnkit.demo, "CONFIG", {**small, "vocabulary": {"kind": "bpe", "size": 400}, "threads": 1})
    monkeypatch.setattr(attnkit.demo, "SIZES", (400, 20, 20))
    steps: list[int] = []
    found = attnkit.run_demo(
        tmp_path / "demo", quiet=True, on_event=lambda event: steps.append(getattr(event, "step", 0))
    )
    assert max(steps) == 3 and found.n_test == 20 and found.run == tmp_path / "demo" / "run"
    assert 0 <= found.bleu.score < found.word_by_word.score and len(found.examples) == 4
    attention = found.notes[0].attention
    assert attention is not None and abs(sum(attention[0][0]) - 1) < 1e-4
    assert json.dumps(found.to_dict(), allow_nan=False)
    with pytest.raises(UsageError, match="a demo with seed 1"):
        attnkit.run_demo(tmp_path / "demo", seed=2, quiet=True)


def test_serving_needs_the_main_thread_and_a_key_for_others(trained: Path) -> None:
    errors: list[UsageError] = []

    def serve() -> None:
        try:
            attnkit.serve([str(trained)], port=0)
        except UsageError as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    assert [error.what for error in errors] == ["serve handles signals, which only the main thread can"]
    with pytest.raises(UsageError, match="no API key is set"):
        attnkit.serve([str(trained)], host="0.0.0.0", port=0)
