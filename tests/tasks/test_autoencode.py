"""Auto-encoders learn: vectors against PCA and the mean, lines against the unigram; and what runs of them hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.config import NoiseConfig
from attnkit.data.store import write_store
from attnkit.engine.loading import load_model
from attnkit.engine.resolve import resolve
from attnkit.engine.task import task_of
from attnkit.engine.trainer import TrainingStarted, TrainRequest, train
from attnkit.errors import AttnkitError, DataError, RunError, UsageError
from attnkit.tasks.autoencoding.lines import unigram_loss

STEADY = ["precision=float32", "device=cpu", "threads=1", "evaluation.n_samples=0"]


def learn(flags: dict[str, Any], run: Path, *sets: str) -> Any:
    config = resolve({"task": "autoencode", **flags}, sets=[*STEADY, *sets], preset_name="tiny").config
    return list(train(TrainRequest(config, run)))[-1]


def subspace(n: int, rank: int, width: int, seed: int, noise: float = 0.1) -> Any:
    """Return vectors near a plane of that rank which is the same for every seed."""
    basis = np.random.default_rng(0).normal(size=(rank, width))
    drawn = np.random.default_rng(seed)
    return (drawn.normal(size=(n, rank)) @ basis + 5 + noise * drawn.normal(size=(n, width))).astype(np.float32)


def pca_error(given: Any, tested: Any, rank: int) -> float:
    """Return the mean squared error of the best plane through the first vectors, for the second ones."""
    mean = given.mean(0)
    directions = np.linalg.svd(given - mean, full_matrices=False)[2][:rank]
    return float(np.square((tested - mean) - (tested - mean) @ directions.T @ directions).mean())


@pytest.mark.parametrize(
    ("widths", "factor"),
    [("[]", 1.3), pytest.param("[32]", 1.3, marks=pytest.mark.slow)],
    ids=["linear", "one hidden layer"],
)
def test_vectors_come_back_nearly_as_well_as_from_pca(tmp_path: Path, widths: str, factor: float) -> None:
    given, tested = subspace(1000, 3, 12, 1), subspace(300, 3, 12, 2)
    for name, vectors in (("given", given), ("tested", tested)):
        np.save(tmp_path / f"{name}.npy", vectors)
    flags = {"data.files": [str(tmp_path / "given.npy")], "data.valid_files": [str(tmp_path / "tested.npy")]}
    sets = (f"model.d_hidden={widths}", "model.d_code=3", "limits.max_epochs=40", "optimization.learning_rate=2e-2")
    sets += ("optimization.batch_tokens=128", "evaluation.every_epochs=40")
    found = learn(flags, tmp_path / "run", *sets).metrics
    best = pca_error(given, tested, 3)
    assert found["error"] < factor * best
    assert found["error"] < 0.02 * found["mean_error"], "far below the mean"
    baseline = float(np.square(tested - given.mean(0, dtype=np.float64)).mean())
    assert found["mean_error"] == pytest.approx(baseline, rel=1e-6)
    assert found["explained"] == pytest.approx(1 - found["error"] / baseline, rel=1e-6)


def test_a_code_too_narrow_is_held_back_as_pca_is(tmp_path: Path) -> None:
    """No auto-encoder of layers without activations can beat PCA: if one does, something leaks past the code."""
    given = subspace(1000, 4, 8, 1)
    np.save(tmp_path / "a.npy", given)
    np.save(tmp_path / "b.npy", given)
    flags = {"data.files": [str(tmp_path / "a.npy")], "data.valid_files": [str(tmp_path / "b.npy")]}
    sets = ("model.d_hidden=[]", "model.d_code=2", "limits.max_epochs=25", "optimization.learning_rate=2e-2")
    sets += ("optimization.batch_tokens=128", "evaluation.every_epochs=25")
    error = learn(flags, tmp_path / "run", *sets).metrics["error"]
    best = pca_error(given, given, 2)
    assert best * (1 - 1e-5) <= error < 1.1 * best


@pytest.mark.slow
def test_lines_come_back(tmp_path: Path) -> None:
    words = ["red", "blue", "old", "new", "car", "house", "tree", "stone"]
    lines = [f"{a} {b} {c}" for a in words[:4] for b in words[4:6] for c in words[6:]]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    flags = {"data.files": [str(tmp_path / "a.txt")] * 4, "data.valid_files": [str(tmp_path / "a.txt")]}
    sets = ["vocabulary.kind=word", "vocabulary.min_frequency=1", "model.d_model=24", "model.d_hidden=32"]
    sets += ["model.d_code=8", "model.dropout=0", "limits.max_steps=150", "evaluation={every_steps: 150}"]
    sets += ["optimization.learning_rate=1e-2", "optimization.batch_tokens=300"]
    found = learn(flags, tmp_path / "run", *sets).metrics
    assert found["exact"] == 100
    assert found["loss"] < 0.1 * found["unigram_loss"]
    assert found["perplexity"] == pytest.approx(float(np.exp(found["loss"])))


@pytest.mark.slow
def test_denoising_learns_what_belongs_together(tmp_path: Path) -> None:
    """The second word follows from the first: what is masked can be restored, and the code ignores the noise."""
    lines = [f"a{i} b{i} c{i}" for i in range(6)]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines * 10))
    (tmp_path / "b.txt").write_text("".join(f"{line}\n" for line in lines))
    flags = {"data.files": [str(tmp_path / "a.txt")], "data.valid_files": [str(tmp_path / "b.txt")]}
    sets = ["vocabulary.kind=word", "vocabulary.min_frequency=1", "model.d_model=24", "model.d_hidden=32"]
    sets += ["model.d_code=4", "model.dropout=0", "limits.max_steps=150", "evaluation={every_steps: 150}"]
    sets += [
        "optimization.learning_rate=1e-2",
        "noise.mask_prob=0.4",
        "noise.word_dropout=0.1",
        "noise.shuffle_prob=0.2",
    ]
    assert learn(flags, tmp_path / "run", *sets).metrics["exact"] == 100
    opened = load_model(tmp_path / "run", "autoencode", device="cpu")
    from attnkit.engine.vocabularies import read_tokenizer
    from attnkit.tasks.autoencoding.lines import reconstruct

    tokenizer = read_tokenizer(opened.checkpoint)
    damaged = [[3 if place == 1 else id for place, id in enumerate(ids)] for ids in tokenizer.encode(lines)]
    assert reconstruct(opened.model, damaged, tokenizer, opened.device) == lines


def test_the_unigram_baseline_is_worked_out_by_hand(tmp_path: Path) -> None:
    train = write_store(tmp_path / "train", [[[4, 4], [5]]], 6)
    valid = write_store(tmp_path / "valid", [[[4]]], 6)
    # Ids 0 to 5 once each, then 4 twice, 5 once and two ends: 11 together. The line costs a 4 and an end.
    assert unigram_loss(train, valid) == pytest.approx((np.log(11 / 3) + np.log(11 / 3)) / 2)


def test_the_masked_numbers_are_the_mean_of_the_training_data(tmp_path: Path, workshop: Any) -> None:
    from attnkit.data.denoising import VectorDataset

    workshop.train(workshop.configure_task("vectors", limits__max_steps=1), tmp_path / "run")
    rows = VectorDataset.open(tmp_path / "run/data/train", NoiseConfig(mask_prob=1.0))
    batch = rows.batch(np.arange(4), 1, 0)
    torch.testing.assert_close(batch.noisy, torch.from_numpy(rows.mean).float().expand(4, -1))
    assert torch.equal(batch.clean, torch.from_numpy(rows.vectors[:4].copy()))
    model = load_model(tmp_path / "run", "autoencode", device="cpu").model
    torch.testing.assert_close(model.mean, torch.from_numpy(rows.mean).float())


@pytest.mark.parametrize("name", ["lines", "vectors", "documents", "masked tokens", "pairs", "next words"])
def test_a_run_is_whole_finished_and_of_its_kind(workshop: Any, tmp_path: Path, name: str) -> None:
    config = workshop.configure_task(name, checkpoints__average=2)
    run = tmp_path / "run"
    done = workshop.train(config, run)
    assert done.metrics.keys() == set(config.metrics) and done.best
    verified = verify_run(run)
    assert [thing for thing in verified.things if not thing.good] == [] and verified.newest == "step-12"
    assert workshop.train(config, run).already
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("finished", 0)
    card = (run / "README.md").read_text()
    assert config.data.files[0] in card and all(f"| {metric} |" in card for metric in config.metrics)
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["pipeline_tag"] in header["tags"] and header["library_name"] == "attnkit"
    other = workshop.configure_task(name, checkpoints__average=2, seed=2)
    with pytest.raises(UsageError, match="seed: 1 -> 2"):
        workshop.train(other, run)
    with pytest.raises(UsageError, match=f"task: {config.task} -> translation"):
        workshop.train(workshop.configure(), run)
    with pytest.raises(RunError, match=f"of task '{config.task}', not a translation model"):
        from attnkit.tasks.translation.loading import load_run

        load_run(run)
    fresh = workshop.train(config, tmp_path / "second", init_from=run)
    assert fresh.step == 12 and fresh.metrics != done.metrics
    # A translator may start with BERT's encoder, of which this one has other positions.
    wrong, said = (UsageError, "model.positions") if config.task == "mlm" else (RunError, "not a translation model")
    with pytest.raises(wrong, match=said):
        workshop.train(workshop.configure(), tmp_path / "third", init_from=run)


def test_a_run_begun_from_another_begins_with_its_weights(workshop: Any, tmp_path: Path) -> None:
    workshop.train(workshop.configure_task("vectors"), tmp_path / "first")
    source = RunFolder(tmp_path / "first").checkpoint()[0]
    changes = {"limits__max_steps": 1, "optimization__learning_rate": 1e-12}
    workshop.train(workshop.configure_task("vectors", **changes), tmp_path / "second", init_from=tmp_path / "first")
    models = [load_model(tmp_path / name, "autoencode", device="cpu").model for name in ("first", "second")]
    for ours, theirs in zip(*(model.state_dict().values() for model in models), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert source.step in (5, 10, 12)


def test_held_out_lines_are_never_trained_on(tmp_path: Path) -> None:
    lines = [f"line {i % 50}" for i in range(100)]  # each stands twice
    (tmp_path / "a.txt").write_text("\n".join(["", *lines, "  "]) + "\n")
    flags = {"data.files": [str(tmp_path / "a.txt")]}
    sets = ("limits.max_steps=1", "data.held_out=5", "vocabulary.kind=char", "model.d_model=8", "model.d_hidden=8")
    config = resolve({"task": "autoencode", **flags}, sets=[*STEADY, *sets], preset_name="tiny").config
    begun = next(event for event in train(TrainRequest(config, tmp_path / "run")) if isinstance(event, TrainingStarted))
    counts = begun.counts
    assert counts["valid"] == len((tmp_path / "run/data/valid.txt").read_text().splitlines())
    assert counts["train"] + counts["held_out"] + counts["repeats_of_held_out"] + counts["blank"] == 102
    assert counts["repeats_of_held_out"] >= 3


def test_validation_lines_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnkit.tasks.autoencoding.lines._MAX_VALID_LENGTH", 8)
    (tmp_path / "a.txt").write_text("1 2 3\n" * 20)
    (tmp_path / "b.txt").write_text("1 2 3\n" + "1 2 3 1 2 3 1 2 3\n" * 2)
    flags = {
        "task": "autoencode",
        "data.files": [str(tmp_path / "a.txt")],
        "data.valid_files": [str(tmp_path / "b.txt")],
    }
    sets = [*STEADY, "vocabulary.kind=char", "limits.max_steps=1"]
    config = resolve(flags, sets=sets, preset_name="tiny").config
    begun = next(event for event in train(TrainRequest(config, tmp_path / "run")) if isinstance(event, TrainingStarted))
    assert (begun.counts["valid"], begun.counts["too_long_in_validation"]) == (1, 2)


def setting(tmp_path: Path, text: str = "a b\nc d\n" * 20) -> dict[str, list[str]]:
    (tmp_path / "a.txt").write_text(text)
    return {"data.files": [str(tmp_path / "a.txt")]}


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["model.kind=mlp"], "reads vectors"),
        (["model.kind=han"], "model.kind cannot be"),
        (["noise.word_dropout=1.0"], "noise.word_dropout"),
        (["limits.metric=bleu"], "limits.metric cannot be 'bleu'; choose one of loss"),
        (["data.src=x"], "unknown key 'data.src'"),
        (["task=tagging"], "unknown task 'tagging'"),
        (["joint_vocabulary=false"], "unknown key 'joint_vocabulary'"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, sets: list[str], said: str) -> None:
    with pytest.raises(UsageError) as found:
        resolve({**({} if "task" in sets[0] else {"task": "autoencode"}), **setting(tmp_path)}, sets=sets)
    assert said in f"{found.value.what}"


def test_vectors_take_no_settings_of_text(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((30, 2)))
    flags = {"task": "autoencode", "data.files": [str(tmp_path / "a.npy")]}
    assert resolve(flags).config.model.kind == "mlp", "the name of the file says it"
    for sets, said in ((["noise.word_dropout=0.1"], "require text"), (["model.kind=rnn"], "reads text")):
        with pytest.raises(UsageError, match=said):
            resolve(flags, sets=sets)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("", DataError, "empty"),
        ("one line\n", DataError, "too few for training"),
        ("\n \n\t\n\n", AttnkitError, "no line left for validation"),
    ],
)
def test_text_that_cannot_be_trained_on(tmp_path: Path, text: str, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        learn(setting(tmp_path, text), tmp_path / "run")
    with pytest.raises(error, match=said):
        config = resolve({"task": "autoencode", **setting(tmp_path, text)}, preset_name="tiny").config
        task_of(config).dry_run(config)


def test_vectors_that_are_all_alike_do_no_harm(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((60, 3), 7.0))
    found = learn({"data.files": [str(tmp_path / "a.npy")]}, tmp_path / "run", "limits.max_steps=3").metrics
    assert found["mean_error"] == 0 and found["explained"] == 0 and np.isfinite(found["error"])
