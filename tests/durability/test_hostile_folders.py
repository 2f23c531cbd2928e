"""Vocabularies, runs and checkpoints that are not what a command needs: told by name, and left as they were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def words(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two vocabularies: of the digits and of some letters."""
    from attnkit.text.config import VocabularyConfig
    from attnkit.text.vocabulary import train_vocabulary

    folder = tmp_path_factory.mktemp("vocabularies")
    for name, lines in {"digits": ["1 2 3 4 5 6 7 8 9 0"] * 9, "letters": ["a b c d"] * 9}.items():
        vocabulary = train_vocabulary(lines, VocabularyConfig(kind="word", byte_fallback=False))
        (folder / name).write_text(vocabulary.to_json())
    return folder


def changed(text: str, **values: Any) -> str:
    return json.dumps({**json.loads(text), **values})


VOCABULARIES: dict[str, tuple[Callable[[str], str | bytes | None], int, str]] = {
    # what becomes of a good one (None: there is none); exit code; words
    "missing": (lambda good: None, 4, "no such vocabulary file: v"),
    "empty": (lambda good: "", 4, "v is not a valid attnkit vocabulary"),
    "truncated": (lambda good: good[: len(good) // 2], 4, "v is not a valid attnkit vocabulary"),
    "another JSON": (lambda good: '{"model": {}}', 4, "v is not a valid attnkit vocabulary"),
    "a list": (lambda good: "[]", 4, "v is not a valid attnkit vocabulary"),
    "a number": (lambda good: "5", 4, "v is not a valid attnkit vocabulary"),
    "text": (lambda good: "1 2 3\n", 4, "v is not a valid attnkit vocabulary"),
    "not UTF-8": (lambda good: b"\xff\xfe{}", 4, "v is not a valid attnkit vocabulary"),
    "of a later version": (lambda good: changed(good, version=99), 4, "v has version 99"),
    "of no version": (lambda good: changed(good, version=None), 4, "v is not a valid attnkit vocabulary"),
    "of unknown settings": (
        lambda good: changed(good, config={"kind": "runes"}),
        4,
        "v is not a valid attnkit vocabulary",
    ),
    "5,000 brackets": (lambda good: "[" * 5000, 4, "v is not a valid attnkit vocabulary"),
    "5,000 digits": (lambda good: good.replace('"version":1', '"version":' + "9" * 5000), 4, "v"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("command", ["check {src} {tgt} --vocab v", "train --src {src} --tgt {tgt} --vocab v -o run"])
@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabularies(attnkit: Any, workshop: Any, words: Path, tmp_path: Path, name: str, command: str) -> None:
    change, code, said = VOCABULARIES[name]
    content = change((words / "digits").read_text())
    if content is not None:
        (tmp_path / "v").write_bytes(content if isinstance(content, bytes) else content.encode())
    names = {"src": workshop.file("train.src"), "tgt": workshop.file("train.tgt")}
    ended = attnkit(command.format(**names).split(), tmp_path)
    ended.check(code, said, "help: ")
    assert ended.out == "" and not (tmp_path / "run" / "data").exists()


GIVEN: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "three": ("--vocab {v}/digits --vocab {v}/digits --vocab {v}/digits", 2, ("vocabulary_files", "2")),
    "one for two": ("--vocab {v}/digits --set joint_vocabulary=false", 2, ("vocabulary_files (flag)",)),
    "two for one": (
        "--vocab {v}/digits --vocab {v}/letters --set joint_vocabulary=true",
        2,
        ("two for separate ones", "vocabulary_files (flag)"),
    ),
    "tied by three": (
        "--vocab {v}/digits --vocab {v}/letters --set model.tie_embeddings=all",
        2,
        ("model.tie_embeddings=all needs",),
    ),
    "swapped": ("--vocab {v}/letters --vocab {v}/digits", 0, ("of the source tokens are unknown",)),
    "of other text": ("--vocab {v}/letters", 0, ("of the source tokens are unknown", "of the target tokens")),
    "beside weights": ("--vocab {v}/digits --init-from {run}", 2, ("need that run's vocabulary", "--vocab")),
    "a run": ("--vocab {run}", 4, ("no such vocabulary file", "help: ")),
}


@pytest.mark.parametrize("name", GIVEN)
def test_vocabularies_that_do_not_fit(
    attnkit: Any, workshop: Any, words: Path, trained: Path, tmp_path: Path, name: str
) -> None:
    flags, code, said = GIVEN[name]
    train = workshop.arguments("transformer", tmp_path / "run", limits__max_steps=1)
    ended = attnkit([*train, *flags.format(v=words, run=trained).split()], tmp_path)
    ended.check(code, *said)


def best(text: str) -> Callable[[Path], object]:
    return lambda run: (run / "best").write_text(text)


def spoil(step: int, name: str = "model.safetensors") -> Callable[[Path], object]:
    return lambda run: (run / f"checkpoints/step-{step}" / name).write_bytes(b"")


def spoil_all(run: Path) -> None:
    for path in run.glob("checkpoints/*/model.safetensors"):
        path.write_bytes(b"x")


def rewrite(run: Path, **changes: Any) -> None:
    """Save the newest checkpoint again with another configuration, its manifest true."""
    from attnkit.checkpoints.checkpoint import open_checkpoint
    from attnkit.checkpoints.run_folder import RunFolder
    from attnkit.config import parse_yaml

    folder = RunFolder(run)
    step = folder.steps()[-1]
    checkpoint = open_checkpoint(run / f"checkpoints/step-{step}", f"step-{step}")
    contents = {name: checkpoint.read(name) for name in checkpoint.manifest.files}
    contents["config.yaml"] = json.dumps({**parse_yaml(contents["config.yaml"].decode(), ""), **changes}).encode()
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "averaged", ignore_errors=True)
    (run / "best").unlink()
    folder.save(step, contents)


def lost(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "best").unlink()


def empty_of_checkpoints(run: Path) -> None:
    lost(run)
    (run / "status.json").unlink()


def as_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("mine")


def as_other(run: Path) -> None:
    shutil.rmtree(run)
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints/step-3").write_text("mine")
    (run / "config.yaml").write_text("model: bert")


def as_empty(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def nothing(run: Path) -> None:
    """Leave it as it is."""


def touch(run: Path) -> None:
    (run.parent / "out").touch()


Change = Callable[[Path], object]
SAY, LAST = "translate run -i {src}", "translate run -i {src} --checkpoint last"
RUNS: dict[str, tuple[Change, str, int, tuple[str, ...]]] = {
    # what becomes of a good run; command; exit code; words
    "missing to score": (shutil.rmtree, "score run {src} {tgt}", 4, ("no such run folder: run", "help: ")),
    "missing to export": (shutil.rmtree, "export run out --to ctranslate2", 4, ("no such run folder: run",)),
    "missing to begin from": (shutil.rmtree, "{train} -o new --init-from run", 4, ("no such run folder: run",)),
    "missing to translate": (shutil.rmtree, "translate run -i {src} --threads 2", 4, ("no such run folder: run",)),
    "empty to translate": (as_empty, SAY, 4, ("run is not a run folder",)),
    "empty to average": (as_empty, "average run", 4, ("run is not a run folder",)),
    "a file to translate": (as_file, SAY, 4, ("run is a file, not a run folder", "-i run")),
    "a file to score": (as_file, "score run {src} {tgt}", 4, ("run is a file, not a run folder",)),
    "a file to train in": (as_file, "{train} -o run", 4, ("run is not a folder", "choose a new")),
    "another's to translate": (as_other, SAY, 4, ("run is not a run folder",)),
    "another's to train in": (
        as_other,
        "{train} -o run",
        4,
        ("run contains other files and is not a run folder", "choose a new"),
    ),
    "another's to overwrite": (
        as_other,
        "{train} -o run --overwrite",
        4,
        ("run contains other files and is not a run folder",),
    ),
    "no checkpoint yet": (empty_of_checkpoints, SAY, 4, ("run has no checkpoint yet", "help: ")),
    "no checkpoint to average": (empty_of_checkpoints, "average run", 4, ("run has no checkpoint yet",)),
    "lost checkpoints": (lost, SAY, 4, ("the checkpoints of run are missing", "restore checkpoints/")),
    "continues from lost ones": (
        lost,
        "{train} -o run",
        4,
        ("the checkpoints of run are missing", "restore checkpoints/"),
    ),
    "no such checkpoint": (nothing, "translate run -i {src} --checkpoint step-7", 4, ("no checkpoint step-7",)),
    "no such average": (nothing, "translate run -i {src} --checkpoint averaged", 4, ("no checkpoint averaged",)),
    "best is missing": (best("step-7\n"), SAY, 4, ("run has no checkpoint step-7", "available: step-")),
    "best is empty": (best(""), SAY, 4, ("the best checkpoint is damaged", "at run/best")),
    "best is elsewhere": (best("../../x\n"), SAY, 4, ("the best checkpoint is damaged",)),
    "best is endless": (best("step-1" * 10**6), SAY, 4, ("the best checkpoint is damaged",)),
    "best escapes": (best("\x1b[31m\n"), SAY, 4, ("the best checkpoint is damaged",)),
    "newest is damaged": (spoil(12), LAST, 0, ("warning: ", "checkpoint step-12")),
    "newest is cut": (spoil(12, "manifest.json"), LAST, 0, ("warning: ", "step-12")),
    "named is damaged": (spoil(12), "score run {src} {tgt} --checkpoint step-12", 4, ("model.safetensors of",)),
    "all are damaged": (spoil_all, SAY, 4, ("model.safetensors of checkpoint step-",)),
    "last of none": (spoil_all, LAST, 4, ("no checkpoint can be used",)),
    "continues from none": (spoil_all, "{train} -o run", 4, ("no checkpoint can be used", "restore checkpoints/")),
    "averages none": (spoil_all, "average run", 4, ("no checkpoint can be used",)),
    "continues after damage": (spoil(12), "{train} -o run", 0, ("warning: ", "resuming from step 10")),
    "of another kind": (lambda run: rewrite(run, task="tagging"), SAY, 4, ("of task 'tagging'",)),
    "of another version": (lambda run: rewrite(run, wings=2), SAY, 4, ("another attnkit version", "wings")),
    "of another model": (
        lambda run: rewrite(run, model={"kind": "transformer", "d_model": 8, "n_heads": 1}),
        SAY,
        4,
        ("the weights do not fit", "at run/checkpoints/step-12"),
    ),
    "of an endless model": (
        lambda run: rewrite(run, model={"kind": "transformer", "d_model": 10**12}),
        SAY,
        4,
        ("model.d_model",),
    ),
    "checkpoint, not run": (nothing, "score run/checkpoints/step-12 {src} {tgt}", 4, ("is a checkpoint",)),
    "folder is a file": (
        lambda run: (shutil.rmtree(run / "checkpoints"), (run / "checkpoints").touch()),
        "{train} -o run",
        4,
        ("run/checkpoints is not a folder of this run",),
    ),
    "status is damaged": (lambda run: (run / "status.json").write_text("{"), SAY, 0, ()),
    "lock is damaged": (lambda run: (run / "lock").write_bytes(b"\xff"), "{train} -o run", 0, ("run is finished",)),
    "export into a file": (touch, "export run out --to ctranslate2", 2, ("not empty", "at out")),
    "corpus into a file": (touch, "toy-corpus reverse -o out", 5, ("out", "help: ")),
    "two of a kind": (nothing, "average run --last 1", 2, ("--last",)),
    "begins from itself": (nothing, "{train} -o run --init-from run", 2, ("cannot be initialized from itself",)),
    "other settings": (nothing, "{train} -o run --seed 5", 2, ("other settings: seed: 1 -> 5", "at run")),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", RUNS)
def test_runs(attnkit: Any, workshop: Any, trained: Path, tmp_path: Path, name: str) -> None:
    change, command, code, said = RUNS[name]
    shutil.copytree(trained, tmp_path / "run")
    change(tmp_path / "run")
    before = contents(tmp_path)
    train = workshop.arguments("transformer", Path("run"))
    names = {"src": [str(workshop.file("test.src"))], "tgt": [str(workshop.file("test.tgt"))]}
    names["train"] = train[: train.index("-o")] + train[train.index("-o") + 2 :]
    arguments = [part for word in command.split() for part in names.get(word.strip("{}"), [word])]
    attnkit(arguments, tmp_path).check(code, *said)
    if code:
        assert contents(tmp_path) == before, "what is refused stays as it was"
    assert not list(tmp_path.rglob(".tmp-*"))


def contents(folder: Path) -> dict[Path, bytes]:
    """Return every file but those that say who asked last."""
    named = (path for path in folder.rglob("*") if path.is_file() and path.name not in ("lock", "status.json"))
    return {path: path.read_bytes() for path in named}
