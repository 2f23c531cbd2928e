"""Runs of word vectors: resumed they end where they would have, and one that cannot begin leaves nothing."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.logs import append_record, read_status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.engine.checkpoint_metadata import read_run_config, read_state
from attnkit.engine.resolve import resolve
from attnkit.engine.trainer import TrainingFinished, TrainingStarted, TrainRequest, train
from attnkit.errors import AttnkitError, DataError, DivergedError, RunError, StoppedError, UsageError
from attnkit.tasks.word2vec import loop as legs
from attnkit.tasks.word2vec.matrices import read, read_words, shapes

CLOCKED = ("lock", "timings.jsonl", "status.json")
TINY = {"dim": 20, "window": 2, "negative": 2, "epochs": 2, "threads": 1, "data.min_count": 1, "save_every": 0.0}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 9 pieces an epoch, of words as unevenly frequent as in real text."""
    drawn = np.random.default_rng(5)
    words = np.array([f"w{number}" for number in range(80)])
    lines = (" ".join(words[np.minimum(drawn.zipf(1.3, 12) - 1, 79)]) for _ in range(800))
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(autouse=True)
def _short_legs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "SECONDS", 0.0)


def request_of(text: Path, run: Path, **changes: Any) -> TrainRequest:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return TrainRequest(resolve({"task": "word2vec", "data.files": [str(text)], **TINY, **given}).config, run)


def work_off(request: TrainRequest, stop_at: int | None = None) -> list[Any]:
    """Return all events; ``stop_at`` is the question that gets a yes."""
    calls = itertools.count(1)
    asked = replace(request, stop=None if stop_at is None else lambda: next(calls) >= stop_at)
    return [event for event in train(asked) if not isinstance(event, StatusEvent)]


def outcome(run: Path) -> dict[str, bytes]:
    """Return every file of a run that tells of no clock, by its name; of ``state.json`` all but the minutes."""
    found = {}
    for path in sorted(run.rglob("*")):
        if path.is_file() and path.name not in (*CLOCKED, "manifest.json"):
            name, raw = path.relative_to(run).as_posix(), path.read_bytes()
            if path.name == "state.json":
                state = json.loads(raw)
                raw = json.dumps({**state, "counters": {**state["counters"], "minutes": 0}}).encode()
            found[name] = re.sub(rb"[\d.]+ minutes", b"", raw) if path.name == "README.md" else raw
    return found


def counters_of(run: Path) -> dict[str, Any]:
    counters: dict[str, Any] = read_state(RunFolder(run).checkpoint()[0])["counters"]
    return counters


@pytest.mark.parametrize(
    ("changes", "questions"),
    [({}, (1, 3, 9)), ({"deterministic": True, "threads": 2}, (1, 2, 3))],
    ids=["one thread", "copies"],
)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    changes: dict[str, Any], questions: tuple[int, ...], text: Path, tmp_path: Path
) -> None:
    whole = request_of(text, tmp_path / "whole" / "run", **changes)
    first, *_, last = work_off(whole)
    assert isinstance(first, TrainingStarted) and isinstance(last, TrainingFinished)
    assert last.step > 15 and last.metrics["loss"] < 0.6931
    expected = outcome(whole.path)
    request = request_of(text, tmp_path / "stopped" / "run", **changes)
    steps = []
    for stop_at in questions:
        with pytest.raises(StoppedError, match="everything is saved"):
            work_off(request, stop_at)
        newest = RunFolder(request.path).newest()[0]
        assert newest is not None
        steps.append(newest.step)
        assert verify_run(request.path).n_bad == 0
    assert steps == sorted(set(steps)) and steps[-1] < last.step
    append_record(
        RunFolder(request.path).metrics_path, {"kind": "words", "step": 99}
    )  # as a kill before the next save leaves it
    work_off(request)
    found = outcome(request.path)
    del expected["data/prepared.json"], found["data/prepared.json"]
    assert [name for name in found if found[name] != expected.get(name)] == []
    assert found.keys() - expected.keys() == set()


def test_several_threads_count_nothing_twice(text: Path, tmp_path: Path) -> None:
    request = request_of(text, tmp_path / "run", threads=3)
    for stop_at in (2, 5):
        with pytest.raises(StoppedError):
            work_off(request, stop_at)
    last = work_off(replace(request, config=request.config.model_copy(update={"threads": 2})))[-1]
    state = counters_of(request.path)
    alone = request_of(text, tmp_path / "alone")
    assert last.step == work_off(alone)[-1].step == state["step"]
    # Which words stay is drawn by their places: the same, whoever trains on them.
    assert state["trained"] == counters_of(alone.path)["trained"]
    lines = [json.loads(line) for line in (request.path / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["words"] for line in lines) == state["trained"]
    assert [line["step"] for line in lines] == list(range(1, state["step"] + 1))


def test_the_same_seed_and_threads_give_the_same_bytes(text: Path, tmp_path: Path) -> None:
    settings = {"deterministic": True, "threads": 3, "epochs": 1}
    runs = [request_of(text, tmp_path / name, **settings) for name in ("a", "b")]
    other = request_of(text, tmp_path / "c", seed=2, **settings)
    for request in (*runs, other):
        work_off(request)
    a, b, c = (
        next(path.read_bytes() for path in request.path.rglob("model.safetensors")) for request in (*runs, other)
    )
    assert a == b != c


def test_a_finished_run_says_so_and_another_is_refused(text: Path, tmp_path: Path) -> None:
    request = request_of(text, tmp_path / "run", epochs=1)
    done = work_off(request)[-1]
    before = outcome(request.path)
    again = work_off(request_of(text, request.path, epochs=1, save_every=3.0, threads=2))
    assert again == [replace(done, already=True)]
    with pytest.raises(UsageError, match=r"dim: 20 -> 17; window: 2 -> 3") as refused:
        work_off(request_of(text, request.path, epochs=1, dim=17, window=3))
    assert refused.value.exit_code == 2
    assert read_status(request.path).state == "finished"  # type: ignore[union-attr]
    found = outcome(request.path)
    assert {k: v for k, v in found.items() if k != "config.yaml"} == {
        k: v for k, v in before.items() if k != "config.yaml"
    }
    work_off(replace(request_of(text, request.path, epochs=1, dim=17), overwrite=True))
    assert read_run_config(RunFolder(request.path).checkpoint()[0]).dim == 17
    assert outcome(tmp_path / "run.old-1").keys() == before.keys()


def test_a_finished_run_is_mended_where_a_kill_left_it_unsaid(text: Path, tmp_path: Path) -> None:
    request = request_of(text, tmp_path / "run", epochs=1)
    work_off(request)
    expected = outcome(request.path)
    for name in ("README.md", "status.json", "words.tsv"):
        (request.path / name).unlink()
    assert work_off(request)[-1].already
    assert outcome(request.path) == expected
    assert verify_run(request.path).n_bad == 0


def test_text_that_changed_and_text_that_is_gone(text: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_bytes(text.read_bytes())
    request = request_of(own, tmp_path / "run")
    with pytest.raises(StoppedError):
        work_off(request, 2)
    own.write_bytes(text.read_bytes().upper())
    with pytest.raises(UsageError, match="changed since"):
        work_off(request)
    own.unlink()  # all that is needed is in the run
    work_off(request)
    own.write_bytes(text.read_bytes() + b"w1 w2\n")
    shorter = request_of(own, tmp_path / "other")
    with pytest.raises(StoppedError):
        work_off(shorter, 2)
    import shutil

    shutil.rmtree(shorter.path / "data")
    own.write_bytes(text.read_bytes())
    with pytest.raises(RunError, match="differs from the text that this run was trained on"):
        work_off(shorter)


REFUSED: dict[str, tuple[bytes, dict[str, Any], type[AttnkitError], str]] = {
    "an empty file": (b"", {}, DataError, "no text"),
    "only rare words": (b"a b c d e f\n" * 4, {"data__min_count": 5}, DataError, "no word occurs at least 5 times"),
    "one word a line": (b"a\nb\nc\nd\n", {}, DataError, "no line contains two in-vocabulary words"),
    "few words": (b"a b c\n" * 9, {"negative": 3}, UsageError, "negative=3 exceeds"),
    "another width": (b"a b c d e f\n", {"init_from": "wide.txt"}, UsageError, "have dimension 2, not 20"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_on_leaves_nothing(case: str, tmp_path: Path, text: Path, monkeypatch: Any) -> None:
    raw, changes, error, words = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_bytes(raw)
    (tmp_path / "wide.txt").write_text("1 2\na 0.5 0.25\n")
    request = request_of(tmp_path / "text.txt", tmp_path / "deep" / "er" / "run", **changes)
    with pytest.raises(error, match=words):
        work_off(request)
    assert not (tmp_path / "deep").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(error, match=words):
        work_off(replace(request, path=empty))
    assert list(empty.iterdir()) == []


def test_a_run_that_cannot_be_overwritten_comes_back(text: Path, tmp_path: Path) -> None:
    request = request_of(text, tmp_path / "run", epochs=1)
    work_off(request)
    before = outcome(request.path)
    with pytest.raises(DataError):
        work_off(replace(request_of(text, request.path, data__min_count=10**6), overwrite=True))
    assert outcome(request.path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_loss_that_is_no_number_ends_the_run(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attnkit.tasks.word2vec.workload import TextWorkload

    begin: Callable[..., None] = TextWorkload.begin

    def broken(work: TextWorkload, matrices: Any) -> None:
        begin(work, matrices)
        matrices["inputs"][:] = np.nan

    monkeypatch.setattr(TextWorkload, "begin", broken)
    with pytest.raises(DivergedError):
        work_off(request_of(text, tmp_path / "run"))


def test_words_begin_with_the_vectors_of_another_run(text: Path, tmp_path: Path) -> None:
    first = request_of(text, tmp_path / "first", epochs=1)
    work_off(first)
    more = tmp_path / "more.txt"
    more.write_text("w0 w1 w2 new words\n" * 300)
    # With next to no learning the vectors stay what they started with.
    slow = {"alpha": 1e-9, "min_alpha": 0.0, "epochs": 1}
    request = request_of(more, tmp_path / "second", init_from=str(first.path), **slow)
    said = [event.text for event in train(request) if isinstance(event, StatusEvent)]
    assert f"3 of 5 words (60.0%) initialized from {first.path}" in said
    old, new = (opened(path) for path in (first.path, request.path))
    for word in ("w0", "w1", "w2"):
        for name in ("inputs", "outputs"):
            assert new[name][word] == pytest.approx(old[name][word], abs=1e-6)
    assert np.abs(new["inputs"]["new"]).max() <= 0.5 / 20 + 1e-6
    with pytest.raises(UsageError, match="cannot be initialized from itself"):
        work_off(request_of(more, request.path, init_from=str(request.path)))


def opened(run: Path) -> dict[str, dict[str, Any]]:
    checkpoint = RunFolder(run).checkpoint()[0]
    words = read_words(checkpoint)
    matrices = read(checkpoint, shapes(read_run_config(checkpoint), len(words)))
    return {name: dict(zip(words.words, matrix, strict=True)) for name, matrix in matrices.items()}


def damaged(run: Path) -> Iterator[str]:
    yield from (thing.name for thing in verify_run(run).things if not thing.good)


def test_verifying_finds_what_is_damaged(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    work_off(request_of(text, run, epochs=1))
    assert list(damaged(run)) == []
    for path in (run / "words.tsv", run / "data" / "words" / "ids.bin", next(run.rglob("model.safetensors"))):
        raw = path.read_bytes()
        path.write_bytes(raw[:-9] + b"?" + raw[-8:])
        assert len(list(damaged(run))) >= 1
        path.write_bytes(raw)
    folder = RunFolder(run)
    checkpoint = folder.checkpoint()[0]
    contents = {name: checkpoint.read(name) for name in checkpoint.manifest.files}
    contents["words.tsv"] = contents["words.tsv"].split(b"\n", 1)[1]  # whole again by its manifest, and one word short
    folder.save(checkpoint.step, contents)
    assert any("do not fit" in thing.text for thing in verify_run(run).things)


def test_warnings_of_a_damaged_checkpoint(text: Path, tmp_path: Path) -> None:
    request = request_of(text, tmp_path / "run")
    with pytest.raises(StoppedError):
        work_off(request, 5)
    newest, older = sorted((request.path / "checkpoints").iterdir(), key=lambda p: -int(p.name.split("-")[1]))
    model = newest / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    events = work_off(request)
    assert any(isinstance(event, WarningEvent) and "cannot be used" in event.text for event in events)
    begun = next(event for event in events if isinstance(event, TrainingStarted))
    assert begun.step == int(older.name.split("-")[1])
