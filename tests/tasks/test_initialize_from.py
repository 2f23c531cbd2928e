"""Runs initialized from others (weights, vocabulary), and resumed: other runs, moved runs, lost and torn data."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from attnkit.errors import RunError, StoppedError, UsageError
from attnkit.tasks.translation.data import WarningEvent
from attnkit.tasks.translation.task import TrainingStarted, TrainRequest, train


@pytest.fixture(scope="module")
def other(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose vocabulary is not the one that the text alone would give."""
    run = tmp_path_factory.mktemp("other") / "run"
    workshop.train(workshop.configure(limits__max_steps=1, vocabulary__byte_fallback=False), run)
    return run


def stop_after(steps: int, config: Any, run: Path, **options: Any) -> None:
    calls = itertools.count(1)
    with pytest.raises(StoppedError):
        list(train(TrainRequest(config, run, stop=lambda: next(calls) == steps, **options)))


def weights(run: Path, step: int) -> bytes:
    return (run / f"checkpoints/step-{step}/model.safetensors").read_bytes()


@pytest.mark.parametrize(("first", "then"), [(None, "other"), ("trained", "other"), ("other", None)])
def test_a_run_that_never_saved_is_encoded_anew_for_other_weights(
    workshop: Any, trained: Path, other: Path, tmp_path: Path, first: str | None, then: str | None
) -> None:
    """The first call dies when all is encoded and nothing saved. Its ids mean nothing to the second one's weights."""
    runs, run, config = {"trained": trained, "other": other}, tmp_path / "run", workshop.configure(limits__max_steps=1)
    with pytest.raises(KeyboardInterrupt):
        for event in train(TrainRequest(config, run, init_from=runs[first] if first else None)):
            if isinstance(event, TrainingStarted):
                raise KeyboardInterrupt
    assert (run / "data/prepared.json").exists() and not (run / "checkpoints").exists()
    workshop.train(config, run, init_from=runs[then] if then else None)
    workshop.train(config, tmp_path / "straight", init_from=runs[then] if then else None)
    expected = other if then else trained  # whose vocabulary is that of the text
    assert (run / "tokenizer.json").read_bytes() == (expected / "tokenizer.json").read_bytes()
    assert weights(run, 1) == weights(tmp_path / "straight", 1)


def test_other_weights_are_another_run(workshop: Any, trained: Path, other: Path, tmp_path: Path) -> None:
    run, source = tmp_path / "run", tmp_path / "source"
    shutil.copytree(trained, source)
    workshop.train(workshop.configure(limits__max_steps=2), run, init_from=source)
    for steps in (2, 3):  # whether there is something left to do or not
        with pytest.raises(UsageError, match=r"--init-from: weights [0-9a-f]{12} -> weights [0-9a-f]{12} \(") as caught:
            list(train(TrainRequest(workshop.configure(limits__max_steps=steps), run, init_from=other)))
        assert caught.value.exit_code == 2
    shutil.move(source, tmp_path / "moved")
    assert workshop.train(workshop.configure(limits__max_steps=3), run, init_from=tmp_path / "moved").step == 3
    assert workshop.train(workshop.configure(limits__max_steps=4), run).step == 4, "a resumed run needs no source"
    with pytest.raises(UsageError, match="--init-from: weights"):
        list(train(TrainRequest(workshop.configure(limits__max_steps=5), run, init_from=other)))
    events = list(train(TrainRequest(workshop.configure(limits__max_steps=5), run, init_from=source)))
    assert [event.text for event in events if isinstance(event, WarningEvent)] == [
        f"no such run: {source}; resuming without it"
    ]


def test_a_run_begun_without_another_never_takes_weights(workshop: Any, trained: Path, tmp_path: Path) -> None:
    workshop.train(workshop.configure(limits__max_steps=2), tmp_path / "run")
    with pytest.raises(UsageError, match="--init-from: none -> weights"):
        list(train(TrainRequest(workshop.configure(limits__max_steps=3), tmp_path / "run", init_from=trained)))


def test_two_vocabularies_are_refused(workshop: Any, trained: Path, other: Path, tmp_path: Path) -> None:
    config = workshop.configure(vocabulary_files=[str(trained / "tokenizer.json")])
    with pytest.raises(UsageError, match="need that run's vocabulary") as caught:
        list(train(TrainRequest(config, tmp_path / "run", init_from=other)))
    assert caught.value.where is not None and "--vocab" in caught.value.where
    assert not (tmp_path / "run").exists()


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", ["--init-from", "--vocab"])
def test_lost_data_is_made_anew_with_the_vocabulary_of_the_checkpoint(
    workshop: Any, other: Path, tmp_path: Path, way: str
) -> None:
    """Neither the other run nor the vocabulary file is needed any more."""
    source, vocabulary = tmp_path / "source", tmp_path / "vocabulary.json"
    shutil.copytree(other, source)
    shutil.copy(other / "tokenizer.json", vocabulary)
    config = workshop.configure(vocabulary_files=[str(vocabulary)] if way == "--vocab" else None)
    begun = {"init_from": source} if way == "--init-from" else {}
    workshop.train(config, tmp_path / "whole", **begun)
    stop_after(6, config, tmp_path / "run", **begun)
    shutil.rmtree(tmp_path / "run/data")
    shutil.rmtree(source)
    vocabulary.unlink()
    workshop.train(config, tmp_path / "run")
    assert weights(tmp_path / "run", 12) == weights(tmp_path / "whole", 12)


@pytest.fixture(scope="module")
def stopped(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped at step 2 of 4."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    stop_after(2, workshop.configure(limits__max_steps=4), run)
    return run


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("prepared.json", ""),
        ("valid.src.txt", ""),
        ("tokenizer.json", ""),
        ("train/pairs.json", "train/pairs.json"),
        ("train/src/ids.bin", "train/src/ids.bin"),
        ("valid/tgt/index.json", "valid/tgt/index.json"),
    ],
)
def test_damaged_data_says_what_to_remove(workshop: Any, stopped: Path, tmp_path: Path, name: str, where: str) -> None:
    """And following the advice helps."""
    config, run = workshop.configure(limits__max_steps=4), tmp_path / "run"
    shutil.copytree(stopped, run)
    data = run / "data"
    (data / name).write_bytes((data / name).read_bytes()[:-20])
    with pytest.raises(RunError, match="damaged") as caught:
        list(train(TrainRequest(config, run)))
    assert caught.value.where == str(data / where)
    assert caught.value.help == f"rm -r {data}, then run the same command again to rebuild it"
    shutil.rmtree(data)
    assert workshop.train(config, run).step == 4
