"""What training does when the run folder already holds something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnkit.engine.resolve import init_layer, preset_of, resolve
from attnkit.errors import AttnkitError, RunError, UsageError
from attnkit.tasks.translation.task import TrainingFinished, TrainRequest, train


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_a_finished_run_says_so_and_changes_nothing(workshop: Any, tmp_path: Path) -> None:
    config, run = workshop.configure(limits__max_steps=3), tmp_path / "run"
    first = workshop.train(config, run)
    before = snapshot(run)
    events = list(train(TrainRequest(config, run)))
    assert snapshot(run) == before
    assert [type(event) for event in events] == [TrainingFinished]
    assert events[0].already and not first.already
    assert (events[0].step, events[0].best, events[0].metrics) == (first.step, first.best, first.metrics)


def test_a_changed_key_is_refused_with_old_and_new(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    workshop.train(workshop.configure(limits__max_steps=2), run)
    before = snapshot(run)
    other = workshop.configure(limits__max_steps=2, model__d_ff=64, seed=5)
    with pytest.raises(UsageError) as caught:
        list(train(TrainRequest(other, run)))
    assert "model.d_ff: 32 -> 64" in caught.value.what and "seed: 1 -> 5" in caught.value.what
    assert "d_model" not in caught.value.what
    changed = {name for name, content in snapshot(run).items() if before.get(name) != content}
    assert changed <= {"status.json"}


def test_a_changed_kind_of_model_is_refused(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    workshop.train(workshop.configure(limits__max_steps=2), run)
    with pytest.raises(UsageError, match=r"model\.kind: transformer -> rnn"):
        list(train(TrainRequest(workshop.configure("rnn", limits__max_steps=2), run)))


def test_a_changed_metric_is_refused(workshop: Any, tmp_path: Path) -> None:
    """What was best by one would be compared with the other's numbers. Other limits may change."""
    run = tmp_path / "run"
    workshop.train(workshop.configure(limits__max_steps=2), run)
    for steps in (2, 3):
        other = workshop.configure(limits__max_steps=steps, limits__metric="loss")
        with pytest.raises(UsageError, match=r"limits\.metric: bleu -> loss") as caught:
            list(train(TrainRequest(other, run)))
        assert "limits.max_steps" not in caught.value.what
    more = {"limits__max_steps": 3, "limits__max_epochs": 9.0, "limits__max_tokens": 10**6, "limits__max_minutes": 9.0}
    assert workshop.train(workshop.configure(**more, limits__early_stopping_patience=9), run).step == 3


def test_a_larger_limit_goes_on(workshop: Any, tmp_path: Path) -> None:
    """With a schedule that does not look at the end, the longer run equals one that was long from the start."""
    constant = {"optimization__schedule": "constant", "optimization__warmup_fraction": 1.0, "model__dropout": 0.2}
    short, long = (workshop.configure(limits__max_steps=n, **constant) for n in (5, 10))
    workshop.train(short, tmp_path / "grown")
    grown = workshop.train(long, tmp_path / "grown")
    workshop.train(long, tmp_path / "long")
    assert grown.step == 10
    name = "checkpoints/step-10/model.safetensors"
    assert (tmp_path / "grown" / name).read_bytes() == (tmp_path / "long" / name).read_bytes()


def test_an_average_asked_for_later_is_made_without_training(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    workshop.train(workshop.configure(limits__max_steps=10), run)
    last = (run / "checkpoints/step-10/model.safetensors").read_bytes()
    done = workshop.train(workshop.configure(limits__max_steps=10, checkpoints__average=2), run)
    assert done.step == 10 and not done.already
    assert (run / "averaged/model.safetensors").exists()
    assert (run / "checkpoints/step-10/model.safetensors").read_bytes() == last


def test_an_average_older_than_the_run_is_made_anew(workshop: Any, tmp_path: Path) -> None:
    """As after a kill between the last save and the averaging."""
    run = tmp_path / "run"
    changes = {"evaluation": {"every_steps": 2}, "checkpoints__keep_last": 2}
    workshop.train(workshop.configure(limits__max_steps=4, checkpoints__average=2, **changes), run)
    old = (run / "averaged/model.safetensors").read_bytes()
    workshop.train(workshop.configure(limits__max_steps=8, **changes), run)
    assert (run / "averaged/model.safetensors").read_bytes() == old
    workshop.train(workshop.configure(limits__max_steps=8, checkpoints__average=2, **changes), run)
    assert (run / "averaged/model.safetensors").read_bytes() != old


def test_overwrite_moves_the_old_run_aside(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    workshop.train(workshop.configure(limits__max_steps=2), run)
    old = snapshot(run)
    done = workshop.train(workshop.configure(limits__max_steps=3, seed=2), run, overwrite=True)
    assert done.step == 3
    assert snapshot(tmp_path / "run.old-1") == old
    assert not (run / "checkpoints/step-2").exists()


def name_of(run: Path) -> str | None:
    found = preset_of(run)
    return None if found is None else found.name


def test_a_run_names_its_preset(workshop: Any, trained: Path, tmp_path: Path) -> None:
    """In its checkpoints, and before there is one in the copy at its root; a file beside no run says nothing."""
    import shutil

    assert name_of(trained) == "tiny"
    assert preset_of(tmp_path / "none") is None
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(trained, run)
    (run / "config.yaml").write_text("preset: base\n")
    assert name_of(run) == "tiny"
    newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name.removeprefix("step-")))
    (newest / "config.yaml").write_text("preset: big\n")
    assert name_of(run) == "tiny"
    shutil.rmtree(run / "checkpoints")
    assert name_of(run) == "base"
    (run / "config.yaml").write_text("preset: [\n")
    assert preset_of(run) is None
    other.mkdir()
    (other / "config.yaml").write_text("preset: base\n")
    assert preset_of(other) is None


def test_the_name_of_a_preset_alone_is_no_change(workshop: Any, tmp_path: Path) -> None:
    config, run = workshop.configure(limits__max_steps=2), tmp_path / "run"
    workshop.train(config, run)
    assert workshop.train(config.model_copy(update={"preset": None}), run).already


def first_loss(run: Path) -> float:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return next(float(record["loss"]) for record in records if record["kind"] == "evaluation")


def test_init_from_takes_weights_and_vocabulary(workshop: Any, trained: Path, tmp_path: Path) -> None:
    flags = {"data.src": [str(workshop.file("valid.src"))], "data.tgt": [str(workshop.file("valid.tgt"))]}
    flags |= {"data.valid_src": [str(workshop.file("test.src"))], "data.valid_tgt": [str(workshop.file("test.tgt"))]}
    sets = [
        text for text in workshop.settings(limits__max_steps=1, evaluation={"every_steps": 1}) if "model." not in text
    ]
    sets.append("optimization.learning_rate=1e-6")
    # Neither the size of the model nor the vocabulary is given: both come from the other run.
    sets = [text for text in sets if not text.startswith("vocabulary")]
    config = resolve(flags, sets=sets, preset_name="tiny", fixed=init_layer(trained)).config
    assert config.model == workshop.configure().model
    run, fresh = tmp_path / "run", tmp_path / "fresh"
    workshop.train(config, run, init_from=trained)
    workshop.train(config, fresh)
    assert (run / "tokenizer.json").read_bytes() == (trained / "tokenizer.json").read_bytes()
    assert (fresh / "tokenizer.json").read_bytes() != (trained / "tokenizer.json").read_bytes()
    assert first_loss(run) < first_loss(fresh) - 0.3


def test_init_from_with_another_model_is_refused(workshop: Any, trained: Path, tmp_path: Path) -> None:
    config = workshop.configure(limits__max_steps=1, model__d_ff=64)
    with pytest.raises(RunError, match="weights do not fit"):
        list(train(TrainRequest(config, tmp_path / "run", init_from=trained)))


def test_a_run_of_another_kind_is_refused(workshop: Any, trained: Path, tmp_path: Path) -> None:
    import shutil

    from attnkit.checkpoints.run_folder import RunFolder

    run = tmp_path / "run"
    shutil.copytree(trained, run)
    checkpoint = RunFolder(run).checkpoint("last")[0]
    contents = {name: checkpoint.read(name) for name in checkpoint.manifest.files}
    contents["config.yaml"] = contents["config.yaml"].replace(b"task: translation", b"task: word2vec")
    RunFolder(run).save(checkpoint.step, contents)
    with pytest.raises(RunError, match="another attnkit version"):
        list(train(TrainRequest(workshop.configure(), run)))


def test_a_folder_of_other_files_is_refused(workshop: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="contains other files") as caught:
        list(train(TrainRequest(workshop.configure(), tmp_path)))
    assert caught.value.exit_code == 4
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("steps", [2, 9])
def test_a_changed_training_file_is_refused(workshop: Any, tmp_path: Path, steps: int) -> None:
    """Whether there is something left to do or not."""
    import shutil

    shutil.copytree(workshop.corpus, tmp_path / "corpus")
    moved = type(workshop)(tmp_path / "corpus")
    moved.train(moved.configure(limits__max_steps=2), tmp_path / "run")
    with moved.file("train.src").open("a") as src, moved.file("train.tgt").open("a") as tgt:
        src.write("1 2\n")
        tgt.write("2 1\n")
    request = TrainRequest(moved.configure(limits__max_steps=steps), tmp_path / "run")
    if steps == 2:
        assert list(train(request))[-1].already
        return
    with pytest.raises(AttnkitError, match="has changed since the run started") as caught:
        list(train(request))
    assert caught.value.exit_code == 2
    assert caught.value.where == str(moved.file("train.src"))
