"""Runs of GloVe, and of what torch alone can train: stopped ones end as whole ones do, and words find their like."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data import cooccurrence
from attnkit.engine.resolve import resolve
from attnkit.engine.trainer import TrainingFinished, TrainingStarted, TrainRequest, train
from attnkit.errors import StoppedError
from attnkit.tasks.word2vec import config as config_module
from attnkit.tasks.word2vec import loop as legs
from attnkit.tasks.word2vec import matrices as mats
from attnkit.tasks.word2vec import workload
from attnkit.tasks.word2vec.initial import init_matrices
from attnkit.tasks.word2vec.vectors import Vectors
from attnkit.text.word_vocabulary import WordVocabulary

GROUPS = ["king queen castle crown throne prince", "apple pear plum cherry peach fig", "car bus train tram bike ship"]
GLOVE = {"method": "glove", "dim": 12, "epochs": 3, "window": 4, "threads": 1, "data.min_count": 1, "save_every": 0.0}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [" ".join(draw.choice([*group.split(), "the", "of"], 10)) for group in GROUPS * 60]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "SECONDS", 0.0)
    monkeypatch.setattr(workload, "GLOVE_PIECE", 50)
    monkeypatch.setattr(workload, "MIN_PIECE", 200)


def run(text: Path, path: Path, stop_at: int | None = None, **changes: Any) -> list[Any]:
    given = {**GLOVE, **{key.replace("__", "."): value for key, value in changes.items()}}
    calls = itertools.count(1)
    stop = None if stop_at is None else lambda: next(calls) >= stop_at
    return list(
        train(TrainRequest(resolve({"task": "word2vec", "data.files": [str(text)], **given}).config, path, stop=stop))
    )


def outcome(path: Path) -> dict[str, bytes]:
    """Return the weights and the log."""
    checkpoint, _ = RunFolder(path).checkpoint()
    return {"model": checkpoint.read("model.safetensors"), "log": (path / "metrics.jsonl").read_bytes()}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="glove"),
        pytest.param({"deterministic": True, "threads": 2}, id="copies"),
        pytest.param({"method": "skip-gram", "loss": "full", "epochs": 1}, id="full"),
        pytest.param({"method": "cbow", "context": "concat", "epochs": 1}, id="concat"),
    ],
)
def test_stopped_runs_end_as_whole_ones(changes: dict[str, Any], text: Path, tmp_path: Path) -> None:
    assert isinstance(run(text, tmp_path / "whole", **changes)[-1], TrainingFinished)
    for stop_at in (1, 4):
        with pytest.raises(StoppedError):
            run(text, tmp_path / "parts", stop_at=stop_at, **changes)
    last = run(text, tmp_path / "parts", **changes)
    assert next(event.step for event in last if isinstance(event, TrainingStarted)) > 1
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    assert not verify_run(tmp_path / "parts").n_bad


def test_a_stop_waits_for_few_words_where_each_is_held_against_all(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "MIN_PIECE", 10)
    for loss, n_lines in (("full", 1), ("negative", 2)):  # of 10 words; else 1,800 / 64 would be the most
        events = run(text, tmp_path / loss, method="cbow", context="concat", loss=loss, epochs=1, save_every=10.0)
        assert events[-1].step == 180 / n_lines


def test_torch_takes_the_threads_that_are_asked_for(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    events = run(text, tmp_path / "run", method="skip-gram", loss="full", epochs=1, threads=2)
    assert found == [2]
    assert next(event.device for event in events if isinstance(event, TrainingStarted)) == "torch, cpu, 2 threads"


def test_the_vectors_are_both_words_together(text: Path, tmp_path: Path) -> None:
    run(text, tmp_path / "run", epochs=15, save_every=10.0)
    saved = load_file(next((tmp_path / "run" / "checkpoints").glob("step-*")) / "model.safetensors")
    vectors = Vectors.load(tmp_path / "run")
    np.testing.assert_array_equal(vectors.vectors, saved["inputs"] + saved["outputs"])
    for group in GROUPS:
        for word in group.split():
            near = {other for other, _ in vectors.most_similar(word, topn=3)}
            assert len(near & {*group.split()}) >= 2, word


def test_the_cutoff_of_counts_is_that_of_the_size_of_the_text(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vectors(name: str, **changes: Any) -> bytes:
        run(text, tmp_path / name, deterministic=True, **changes)
        return outcome(tmp_path / name)["model"]

    small, large = vectors("10", glove__x_max=10.0), vectors("100", glove__x_max=100.0)
    assert small != large
    assert vectors("small") == small
    monkeypatch.setattr(config_module, "_LARGE_TEXT", 1800)  # as many words as the text has
    assert vectors("large") == large


def test_counts_are_kept_for_resuming(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoppedError):
        run(text, tmp_path / "run", stop_at=2)
    monkeypatch.setattr(cooccurrence, "Counter", None)
    assert isinstance(run(text, tmp_path / "run")[-1], TrainingFinished)


def test_it_begins_with_other_vectors_as_the_sum_of_both_matrices(tmp_path: Path) -> None:
    rows = np.random.default_rng(4).normal(size=(2, 12)).astype(np.float32)
    Vectors(["b", "far"], rows).save(tmp_path / "other.bin")
    config = resolve(
        {"task": "word2vec", "data.files": ["-"], **GLOVE, "init_from": str(tmp_path / "other.bin")}
    ).config
    words = WordVocabulary(["a", "b", "c"], np.array([5, 4, 3]))
    found = mats.shapes(config, 3)
    drawn = mats.empty(found)
    for number, name in enumerate((mats.INPUTS, mats.OUTPUTS)):
        mats.draw(drawn[name], 12, [number], 12)
    begun = mats.copied(drawn)
    assert "1 of 3 words" in next(init_matrices(config, words, begun))
    inputs, outputs = begun[mats.INPUTS], begun[mats.OUTPUTS]
    np.testing.assert_allclose(mats.wanted(config, inputs, outputs)[1, :12], rows[0], atol=1e-6)
    apart = drawn[mats.INPUTS][1] - drawn[mats.OUTPUTS][1]
    np.testing.assert_allclose(inputs[1] - outputs[1], apart, atol=1e-6)  # or both would learn the same
    for name in (mats.INPUTS, mats.OUTPUTS):
        assert (begun[name][[0, 2]] == drawn[name][[0, 2]]).all() and not begun[name][:, 12:].any()
