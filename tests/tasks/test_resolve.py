"""Layers of settings laid over each other, and what a run starts with."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main
from attnkit.data.prepared_dir import WarningEvent
from attnkit.engine.resolve import ResolvedConfig, resolve
from attnkit.errors import UsageError
from attnkit.tasks.translation.task import TASK, TrainRequest, train
from attnkit.text.config import VocabularyConfig
from attnkit.text.vocabulary import train_vocabulary


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    lines = {"data.src": "ab" * 3 + " c", "data.tgt": "xyz yx"}
    for key, line in lines.items():
        (tmp_path / key).write_text("".join(f"{line} {n}\n" for n in range(200)))
    return {key: [str(tmp_path / key)] for key in lines}


def resolved(files: dict[str, list[str]], *sets: str, **options: Any) -> ResolvedConfig:
    return resolve(files, sets=sets, preset_name="tiny", **options)


def test_all_limits_given_by_hand_hold(files: dict[str, list[str]], tmp_path: Path) -> None:
    config = resolve({**files, "limits.max_steps": 7, "limits.max_epochs": 2.0}, preset_name="tiny").config
    assert (config.limits.max_steps, config.limits.max_epochs) == (7, 2.0)
    (tmp_path / "a.yaml").write_text("limits: {max_epochs: 3}\n")
    config = resolved(files, "limits.max_steps=9", file=tmp_path / "a.yaml").config
    assert (config.limits.max_steps, config.limits.max_epochs) == (9, 3.0)
    config = resolved(files, "limits.max_minutes=1").config
    assert (config.limits.max_minutes, config.limits.max_epochs) == (1.0, 30.0), (
        "a clock comes on top of the preset's length"
    )
    config = resolved(files, "limits.max_steps=9").config
    assert (config.limits.max_steps, config.limits.max_epochs) == (9, None), (
        "a length comes in the place of the preset's"
    )


def test_a_period_replaces_that_of_the_file_and_two_of_one_hand_are_refused(
    files: dict[str, list[str]], tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("evaluation: {every_epochs: 3}\n")
    config = resolved(files, "evaluation.every_steps=9", file=tmp_path / "a.yaml").config
    assert (config.evaluation.every_steps, config.evaluation.every_epochs) == (9, None)
    with pytest.raises(UsageError, match="every_steps"):
        resolved(files, "evaluation.every_steps=9", "evaluation.every_epochs=1")


def vocabularies(files: dict[str, list[str]], folder: Path) -> list[str]:
    paths = []
    for key, size in (("data.src", 16), ("data.tgt", 24)):
        text = Path(files[key][0]).read_text().splitlines()
        found = train_vocabulary(text, VocabularyConfig(kind="char", byte_fallback=False, size=size, multiple_of=size))
        (folder / f"{key}.json").write_text(found.to_json())
        paths.append(str(folder / f"{key}.json"))
    return paths


def test_two_vocabularies_are_separate_ones_and_the_plan_reads_them(
    files: dict[str, list[str]], tmp_path: Path
) -> None:
    given = {**files, "vocabulary_files": vocabularies(files, tmp_path)}
    config = resolve(given, preset_name="tiny").config
    assert config.joint_vocabulary is False and config.model.tie_embeddings == "target"
    joint = resolved(files, "joint_vocabulary=false", "vocabulary.kind=char", "vocabulary.byte_fallback=false").config
    width = config.model.d_model  # source table, target table, output bias
    assert TASK.dry_run(config).n_parameters - TASK.dry_run(joint).n_parameters == (16 - 24) * width, (
        "24 characters a side else"
    )


def test_a_missing_vocabulary_is_told_by_the_dry_run(files: dict[str, list[str]], tmp_path: Path) -> None:
    config = resolve({**files, "vocabulary_files": [str(tmp_path / "none.json")]}, preset_name="tiny").config
    with pytest.raises(Exception, match=r"none\.json"):
        TASK.dry_run(config)


def test_the_dry_run_as_json_keeps_types(
    files: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = ["--src", files["data.src"][0], "--tgt", files["data.tgt"][0]]
    monkeypatch.setattr(sys, "argv", ["attnkit", "train", *paths, "--max-steps", "7", "--dry-run", "--json"])
    with pytest.raises(SystemExit):
        main()
    shown = json.loads(capsys.readouterr().out)["configuration"]
    assert shown["limits.max_steps"] == {"value": 7, "origin": "flag"}
    assert shown["joint_vocabulary"]["value"] is True and shown["limits.max_epochs"]["value"] is None


def test_a_run_goes_on_without_what_it_began_with(workshop: Any, trained: Path, tmp_path: Path) -> None:
    """The other run and the vocabulary file may be gone: a run folder holds everything."""
    other, run = tmp_path / "other", tmp_path / "run"
    shutil.copytree(trained, other)
    workshop.train(workshop.configure(), run, stops=[6], init_from=other)
    shutil.rmtree(other)
    assert workshop.train(workshop.configure(), run, init_from=other).step == 12

    vocabulary = tmp_path / "vocabulary.json"
    shutil.copy(trained / "tokenizer.json", vocabulary)
    config = workshop.configure(vocabulary_files=[str(vocabulary)])
    workshop.train(config, tmp_path / "second", stops=[6])
    vocabulary.unlink()
    assert workshop.train(config, tmp_path / "second").step == 12
    events = list(
        train(
            TrainRequest(
                workshop.configure(limits__max_steps=13, vocabulary_files=[str(vocabulary)]), tmp_path / "second"
            )
        )
    )
    assert events


def test_a_name_alone_is_a_list_of_one(files: dict[str, list[str]], tmp_path: Path) -> None:
    (src,), (tgt,) = files["data.src"], files["data.tgt"]
    (tmp_path / "a.yaml").write_text(f"data:\n  src: {src}\n  valid_src: {src}\n  tgt: {tgt}\n")
    lists = resolve({**files, "data.valid_src": [src], "data.valid_tgt": [tgt]}).config
    assert resolve({}, sets=[f"data.valid_tgt={tgt}"], file=tmp_path / "a.yaml").config == lists
    config = resolved(files, "vocabulary_files=v.json").config
    assert config.vocabulary_files == ("v.json",) and config.joint_vocabulary


@pytest.mark.parametrize(
    ("sets", "what"),
    [
        (["regularization.r_drop=5", "model.dropout=0"], "r_drop needs dropout"),
        (["regularization.bpe_dropout=0.1", "vocabulary.kind=char"], "bpe_dropout needs vocabulary.kind=bpe, not char"),
        (["regularization.unigram_alpha=0"], "unigram_alpha needs vocabulary.kind=unigram, not bpe"),
        (["regularization.unigram_alpha=0.1", "regularization.bpe_dropout=0.1"], "cannot be combined"),
    ],
)
def test_regularization_that_cannot_be_is_refused(files: dict[str, list[str]], sets: list[str], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        resolved(files, *sets)


def test_a_given_vocabulary_of_another_kind_is_refused_when_it_is_read(
    files: dict[str, list[str]], tmp_path: Path
) -> None:
    text = ["ababab c", "xyz yx"] * 100
    path = tmp_path / "vocabulary.json"
    path.write_text(train_vocabulary(text, VocabularyConfig(kind="unigram", size=300)).to_json())
    config = resolved({**files, "vocabulary_files": [str(path)]}, "regularization.bpe_dropout=0.1", "device=cpu").config
    for refuse in (lambda: TASK.dry_run(config), lambda: list(train(TrainRequest(config, tmp_path / "run")))):
        with pytest.raises(UsageError, match="needs a vocabulary of kind bpe, not unigram"):
            refuse()


def test_the_plan_of_r_drop_has_two_passes(files: dict[str, list[str]]) -> None:
    once, twice = (
        TASK.dry_run(resolved(files, f"regularization.r_drop={alpha}", "device=cpu").config) for alpha in (0, 5)
    )
    parts = once.memory_parts, twice.memory_parts
    assert parts[1].pop("activations") == pytest.approx(2 * parts[0].pop("activations"), abs=2)
    assert parts[0] == parts[1]


def test_a_model_that_is_too_large_for_its_text_is_told_so(tmp_path: Path) -> None:
    files = {}
    for key, line in {"data.src": "ab c", "data.tgt": "xyz yx"}.items():
        (tmp_path / key).write_text("".join(f"{line} {n}\n" for n in range(1100)))
        files[key] = [str(tmp_path / key)]
    base = resolve(files, sets=["device=cpu", "limits.max_steps=1"], preset_name="base").config
    note = TASK.dry_run(base).note
    assert "million parameters for a text of" in note and "--preset tiny" in note
    assert TASK.dry_run(resolve(files, sets=["device=cpu"], preset_name="tiny").config).note == ""
    warned = [
        event.text for event in TASK.prepare(base, tmp_path / "data", None, None) if isinstance(event, WarningEvent)
    ]
    assert [text for text in warned if "million parameters for a text of" in text]
