"""Commands that do not train, stopped at any moment: all of an output or nothing, and nobody left at work."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import pytest
import signalled

from attnkit.cli import main as cli
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.engine.resolve import init_layer, resolve
from attnkit.errors import DataError, UsageError
from attnkit.runtime.signals import STOP_SIGNALS, Signals, defer_signals
from attnkit.text import vocabulary
from attnkit.text.config import VocabularyConfig
from attnkit.text.vocabulary import train_in_process, train_vocabulary


@pytest.fixture(scope="module")
def signals() -> Any:
    return signalled.signals()


TRIALS = 12


@dataclass
class Place:
    """Files that commands read, and a run; a copy of it for those that write into one."""

    corpus: Path
    run: Path
    bert: Path
    film: Path
    """A classifier that was initialized from it."""
    folder: Path

    def own_run(self) -> Path:
        own = self.folder / "run"
        if not own.exists():
            shutil.copytree(self.run, own)
        return own


@dataclass(frozen=True)
class Case:
    """A command, and what it writes."""

    command: Callable[[Place], list[Any]]
    outputs: tuple[str, ...]
    at_once: int | None = None


def vocab(place: Place) -> list[Any]:
    return ["vocab", place.corpus / "long", "-o", place.folder / "out", "--size", 400]


def translate(place: Place, *more: Any) -> list[Any]:
    return ["translate", place.run, "-i", place.corpus / "lines", "-o", place.folder / "out", "--device", "cpu", *more]


CASES = {
    "translate": Case(translate, ("out",)),
    "translate, two threads": Case(lambda place: translate(place, "--threads", 2, "--beam-size", 8), ("out",)),
    "translate, torch": Case(lambda place: translate(place, "--engine", "torch"), ("out",)),
    "score": Case(
        lambda place: [
            *("score", place.run, place.corpus / "lines", place.corpus / "lines"),
            *("-o", place.folder / "out", "--device", "cpu"),
        ],
        ("out",),
    ),
    "vocab": Case(vocab, ("out",)),
    "vocab, apart": Case(vocab, ("out",), at_once=1000),
    "export": Case(lambda place: ["export", place.run, place.folder / "out", "--to", "ctranslate2"], ("out",)),
    "average": Case(lambda place: ["average", place.own_run()], ("run/averaged", "run/best")),
    "toy-corpus": Case(
        lambda place: ["toy-corpus", "reverse", "-o", place.folder, "--pairs", 2000, "--valid", 50, "--test", 50],
        ("train.src", "train.tgt", "valid.src", "valid.tgt", "test.src", "test.tgt"),
    ),
    "predict": Case(
        lambda place: ["predict", place.film, place.corpus / "lines", "-o", place.folder / "out", "--device", "cpu"],
        ("out",),
    ),
    "embed": Case(
        lambda place: ["embed", place.bert, place.corpus / "lines", "-o", place.folder / "out.npy", "--device", "cpu"],
        ("out.npy",),
    ),
    "export to huggingface": Case(
        lambda place: ["export", place.bert, place.folder / "out", "--to", "huggingface"], ("out",)
    ),
    "import": Case(
        lambda place: ["import", "huggingface", place.corpus / "hub", "-o", place.folder / "out"],
        ("out/checkpoints", "out/config.yaml", "out/tokenizer.json"),
    ),
    "score-bleu": Case(
        lambda place: ["score-bleu", *[place.corpus / "lines"] * 2, "--against", place.corpus / "lines"], ()
    ),
}


@pytest.fixture(scope="module")
def place(workshop: Any, trained: Path, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("commands")
    flags = {"task": "text-classification", "data.files": [str(workshop.file("table.tsv"))]}
    sets = ["limits.max_steps=1", "device=cpu", "precision=float32", "threads=1"]
    config = resolve(flags, sets=sets, fixed=init_layer(pretrained)).config
    workshop.train(config, folder / "film", init_from=pretrained)
    export_huggingface(pretrained, folder / "hub")
    chance = random.Random(1)
    (folder / "lines").write_text("".join(f"{' '.join(chance.choices('0123456789', k=6))}\n" for _ in range(100)))
    words = ["".join(chance.choices("abcdefghij", k=5)) for _ in range(3000)]
    (folder / "long").write_text("".join(f"{' '.join(chance.choices(words, k=9))}\n" for _ in range(1000)))
    return Place(folder, trained, pretrained, folder / "film", folder)


def content(path: Path) -> Any:
    """Return what lies at a path, None where nothing does."""
    if path.is_dir():
        return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    return path.read_bytes() if path.exists() else None


def fresh(place: Place, folder: Path) -> Place:
    folder.mkdir()
    return replace(place, folder=folder)


def stop(signals: Any, place: Place, case: Case, folder: Path, seeds: range) -> list[int]:
    """Stop a command at moments drawn by the seeds; return the exit codes."""
    here = fresh(place, folder / "whole")
    given = [content(here.own_run() / name) for name in ("averaged", "best")] if "run/best" in case.outputs else []
    whole = signals(*case.command(here), at_once=case.at_once)
    assert whole.code == 0 and not whole.alive, whole.err
    expected = [content(here.folder / name) for name in case.outputs]
    codes = []
    for seed in seeds:
        chance = random.Random(seed)
        number, here = chance.choice((SIGINT, SIGTERM)), fresh(place, folder / str(seed))
        arguments = case.command(here)
        ended = signals(*arguments, at_once=case.at_once, signals=[(chance.random() * whole.seconds, number)])
        assert ended.code in (0, 128 + number), ended.err
        assert not ended.alive
        assert "Traceback" not in ended.err and "Exception" not in ended.err
        assert not ended.code or "interrupted" in ended.err.splitlines()
        assert list(here.folder.rglob(".tmp-*")) == []
        found = [content(here.folder / name) for name in case.outputs]
        for one, complete, before in zip(found, expected, given or [None] * len(found), strict=True):
            assert one in (complete, before), "all or nothing"
        assert ended.code or found == expected
        codes.append(ended.code)
        shutil.rmtree(here.folder)
    return codes


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CASES)
def test_a_stopped_command_leaves_all_or_nothing(signals: Any, place: Place, tmp_path: Path, name: str) -> None:
    for first in range(0, 16, 2):  # a busy machine may let both signals come too late
        folder = tmp_path / f"from-{first}"
        folder.mkdir()
        if {130, 143} & set(stop(signals, place, CASES[name], folder, range(first, first + 2))):
            return
    pytest.fail("no signal came in time")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_100_stopped_commands(signals: Any, place: Place, tmp_path: Path, name: str) -> None:
    codes: list[int] = []
    for first in range(100, 100 + 8 * TRIALS, TRIALS):  # a command that is done early is stopped again
        folder = tmp_path / str(first)
        folder.mkdir()
        codes += stop(signals, place, CASES[name], folder, range(first, first + TRIALS))
        if {130, 143} <= set(codes):
            break
    print(name, codes)
    assert {130, 143} <= set(codes)


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_threads_end_with_the_command(signals: Any, place: Place, tmp_path: Path, number: int) -> None:
    """The signal comes while they are in a search of many seconds, in compiled code."""
    here = fresh(place, tmp_path / "here")
    many = tmp_path / "many"
    many.write_text((place.corpus / "lines").read_text() * 40)
    options = ["--threads", 2, "--beam-size", 64, "--min-length", 199, "--max-length", 200]
    command = ["translate", place.run, "-i", many, "-o", here.folder / "out", "--device", "cpu", *options]
    ended = signals(*command, signals=[(1.5, number)])
    assert (ended.code, ended.alive, ended.err) == (128 + number, False, "interrupted\n")
    assert ended.seconds < 4 and list(here.folder.iterdir()) == []


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_the_compiler_ends_with_the_command(signals: Any, place: Place, tmp_path: Path, number: int) -> None:
    here = fresh(place, tmp_path / "here")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ended = signals(*translate(here), environment=environment, when="child", signals=[(0.4, number)])
    assert (ended.code, ended.alive) == (128 + number, False), ended.err
    notes, last = ended.err.splitlines()
    assert "compiling the float32 search" in notes and last == "interrupted"
    assert list(here.folder.iterdir()) == [] and not list(tmp_path.rglob("*.o"))


# -- the process that makes a vocabulary


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A text whose vocabulary the trainer of ``tokenizers`` makes in minutes, in one call."""
    chance = random.Random(1)
    path = tmp_path / "endless"
    path.write_text("".join(f"{''.join(chance.choices('abcdefghij', k=2000))}\n" for _ in range(2000)))
    return path


@pytest.mark.parametrize("number", [SIGTERM, signal.SIGKILL])
def test_no_trainer_is_deaf(signals: Any, endless: Path, tmp_path: Path, number: int) -> None:
    """Within the time that a command may take; the trainer's process has gone with it, whatever has ended that."""
    arguments = ("vocab", endless, "-o", tmp_path / "out", "--size", 60_000)
    environment = {"NUMBA_DISABLE_JIT": "1"}  # without compiled loops, the trainer is a process
    ended = signals(*arguments, environment=environment, when="child", signals=[(1.2, number)])
    assert ended.code == (-number if number == signal.SIGKILL else 128 + number), ended.err
    assert not ended.alive and not (tmp_path / "out").exists()


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_vocabulary_made_apart_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: Any, is_compiled: bool
) -> None:
    text = tmp_path / "text"
    chance = random.Random(2)
    words = ["".join(chance.choices("abcdé日\u2028 \t", k=7)).strip() for _ in range(500)]
    text.write_text("".join(f"{' '.join(chance.choices(words, k=8))} <2de>\n" for _ in range(400)), encoding="utf-8")
    config = VocabularyConfig(kind=kind, size=700, symbols=("<2de>",), normalize="nfkc")
    here = train_vocabulary([text], config)
    monkeypatch.setattr(vocabulary, "AT_ONCE", 1000)
    monkeypatch.setattr(vocabulary, "has_counting", lambda: is_compiled)
    monkeypatch.setattr(vocabulary, "train_in_process", None)  # not in this process
    assert train_vocabulary([text], config).to_json() == here.to_json()
    lines = ["two\nlines", "a \ud800 half"[:2], *text.read_text(encoding="utf-8").split("\n")]
    assert (
        train_vocabulary(lines, config).to_json()
        == train_in_process(vocabulary._lines(lines, config), config).to_json()
    )


@pytest.mark.parametrize("is_compiled", [True, False])
def test_errors_come_back_from_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_compiled: bool) -> None:
    monkeypatch.setattr(vocabulary, "AT_ONCE", 10)
    monkeypatch.setattr(vocabulary, "has_counting", lambda: is_compiled)
    with pytest.raises(UsageError, match="kind bpe needs at least 260 entries") as small:
        train_vocabulary(["some words"] * 100_000, VocabularyConfig(size=64))
    assert small.value.lines()[1:] == ["  at vocabulary.size", "help: use at least 260, or disable byte fallback"]
    bad = tmp_path / "bad"
    bad.write_bytes(b"some words\n" * 9 + b"\xff\n")
    with pytest.raises(DataError, match="0xFF is not UTF-8"):
        train_vocabulary([bad], VocabularyConfig())


def test_no_code_is_taken_from_the_working_folder(tmp_path: Path) -> None:
    for name in ("json", "tokenizers", "ctypes", "attnkit"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('wrong file')\n")
    code = """
import sys
sys.path = [path for path in sys.path if path]
from attnkit.text import vocabulary
from attnkit.text.config import VocabularyConfig
vocabulary.AT_ONCE = 10
vocabulary.has_counting = lambda: False
print(vocabulary.train_vocabulary(["some words"] * 9, VocabularyConfig(size=264)).vocab_size)
"""
    source = str(Path(cli.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("264\n", "")


# -- signals as such


def test_a_signal_is_raised_once_and_a_second_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with Signals():
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(SIGTERM)
        signal.raise_signal(SIGINT)
        assert ended == [130]
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun hands on what the job has got
        signal.raise_signal(SIGTERM)
        assert ended == [130]
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


@pytest.mark.parametrize(("number", "raised"), [(SIGINT, KeyboardInterrupt), (SIGTERM, SystemExit)])
def test_no_signal_is_lost_where_nothing_can_be_raised(number: int, raised: type[BaseException]) -> None:
    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(number)

    with Signals(), pytest.raises(raised):
        dying = Dying()
        del dying
        time.sleep(60)


class HalfBuilt:
    """As an object of llvmlite whose constructor a signal has interrupted."""

    def __del__(self) -> None:
        del self.never_set


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_a_signal_leaves_no_traces_of_half_built_objects(is_interrupted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: printed.append(lost.exc_type))
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    try:
        with Signals() as signals:
            if is_interrupted:
                with pytest.raises(KeyboardInterrupt):
                    signal.raise_signal(SIGINT)
            HalfBuilt()
            signals.ignore()
        HalfBuilt()  # garbage of the last moments of the process
    finally:
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)
    assert printed == ([] if is_interrupted else [AttributeError] * 2)


def test_an_ignored_signal_stays_ignored() -> None:
    """As Ctrl-C for a job that a shell script has put in the background."""
    before = signal.signal(SIGINT, signal.SIG_IGN)
    try:
        with Signals():
            signal.raise_signal(SIGINT)
    finally:
        signal.signal(SIGINT, before)


def test_held_signals_come_after_the_block() -> None:
    done = False
    with Signals(), pytest.raises(KeyboardInterrupt), defer_signals():
        os.kill(os.getpid(), SIGINT)
        done = True
    assert done


def test_no_signal_ends_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even between the command's end and the process's."""
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    monkeypatch.setattr(sys, "argv", ["attnkit", "--version"])
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
        for number in STOP_SIGNALS:
            signal.raise_signal(number)
    finally:
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)
    assert ended.value.code == 0
