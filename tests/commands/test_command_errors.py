"""What a user sees who made a mistake: at most three lines on stderr, nothing on stdout, the design's exit code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli import COMMANDS, main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attnkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def refused(answer: tuple[int, str, str], code: int, *words: str) -> list[str]:
    """Check the form of an error and return its lines."""
    found, out, err = answer
    assert (found, out) == (code, "")
    lines = err.splitlines()
    assert lines[0].startswith("error: ") and len(lines) <= 3, err
    assert "Traceback" not in err
    for word in words:
        assert word in err
    return lines


def test_missing_files(call: Call, workshop: Any, trained: Path, tmp_path: Path) -> None:
    train = ["train", "--tgt", workshop.file("train.tgt"), "-o", tmp_path / "run"]
    refused(call(*train, "--src", workshop.file("train.scr")), 2, "there is no file", "did you mean", "train.src?")
    refused(call("translate", trained, "-i", tmp_path / "missing"), 2, "there is no file")
    refused(call("score", trained, tmp_path / "missing", workshop.file("test.tgt")), 2, "there is no file")
    refused(call("train", "--config", tmp_path / "c.yaml"), 2, "cannot read the configuration", "c.yaml")
    assert not (tmp_path / "run").exists()


def test_keys_and_values(call: Call, workshop: Any, tmp_path: Path) -> None:
    train = workshop.arguments("transformer", tmp_path / "run")
    lines = refused(call(*train, "--set", "model.d_modle=32"), 2, "unknown key 'model.d_modle'")
    assert lines[-1] == "help: did you mean 'model.d_model'?"
    lines = refused(call(*train, "--set", "model.d_model=wide"), 2, 'model.d_model: "wide" does not fit', "integer")
    assert "--set model.d_model" in lines[1]
    refused(call(*train, "--set", "model.norm=past"), 2, "'post' or 'pre'", "did you mean 'post'?")
    refused(call(*train, "--set", "model.dropout=1.5"), 2, "less than 1")
    refused(call(*train, "--set", "model.d_model"), 2, "--set takes key=value")
    refused(call(*train, "--set", "optimization.betas=[0.9"), 2, "not valid YAML")
    refused(call(*train, "--set", "model.n_heads=3"), 2, "multiple of n_heads")
    (tmp_path / "c.yaml").write_text("model:\n  kind: transformer\nmodel: {}\n")
    refused(call(*train, "--config", tmp_path / "c.yaml"), 2, "'model' stands twice", "c.yaml:3")
    (tmp_path / "c.yaml").write_text("optimisation: {learning_rate: 1e-3}\n")
    refused(call(*train, "--config", tmp_path / "c.yaml"), 2, "did you mean 'optimization'?", "c.yaml")


def test_commands_and_flags(call: Call, trained: Path) -> None:
    refused(call("trian"), 2, "there is no command 'trian'", "did you mean 'train'?")
    refused(call("xyzzy"), 2, "attnkit --help")
    refused(call("translate", trained, "--beem-size", 3), 2, "--beem-size", "help: attnkit translate --help")
    refused(call("translate", trained, "--beam-size", "many"), 2, "--beam-size", "integer")
    refused(call("translate", trained, "--beam-size", 2, "--num-hypotheses", 3, "-i", "/dev/null"), 2, "beam_size")
    refused(call("translate"), 2, "RUN")
    refused(call("train"), 2, "nothing to train on", "--src a.en --tgt a.de")
    refused(call("train", "--preset", "huge"), 2, "huge")


def test_run_folders(call: Call, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("mine")
    for command in (["translate"], ["average"]):
        refused(call(*command, tmp_path / "missing"), 4, "there is no run folder")
        refused(call(*command, tmp_path / "other"), 4, "is no run folder")
    refused(call("translate", trained / "checkpoints/step-12", "-i", "/dev/null"), 4, "one checkpoint of a run")
    refused(call("average", trained, "--last", 9), 4, "fewer than 9")


def test_bad_bytes_under_strict(call: Call, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"1 2\n\xff\n")
    strict = call("translate", trained, "-i", tmp_path / "text", "-o", tmp_path / "out", "--strict")
    refused(strict, 3, f"{tmp_path / 'text'}:2")
    assert not (tmp_path / "out").exists()
    code, out, err = call("translate", trained, "-i", tmp_path / "text")
    assert (code, out.count("\n"), err.count("\n")) == (0, 2, 1)
    assert err.startswith("warning: ") and "text:2" in err


def test_lines_that_do_not_pair_up(call: Call, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n")
    refused(call("score", trained, tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c"), 3, "2 lines", "1")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("place", [0, 3])
def test_debug_shows_the_traceback(call: Call, tmp_path: Path, place: int) -> None:
    arguments: list[Any] = ["translate", tmp_path / "missing", "--beam-size=2"]
    arguments.insert(place, "--debug")
    code, out, err = call(*arguments)
    assert (code, out) == (4, "")
    assert "Traceback" in err and err.splitlines()[-2].startswith("error: there is no run folder")


def test_our_own_bugs_are_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    from attnkit.cli import report

    assert report(ZeroDivisionError("by\nzero")) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: this is a bug in attnkit: ZeroDivisionError: by zero",
        "help: the same command with --debug shows where",
    ]
    assert report(KeyboardInterrupt()) == 130


HELP = f"""
import contextlib, io, sys
from attnkit.cli import main
for arguments in [["--help"], ["--version"], []] + [[name, "--help"] for name in {list(COMMANDS)}]:
    sys.argv = ["attnkit", *arguments]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            main()
        except SystemExit as ended:
            assert ended.code == 0, arguments
    text = shown.getvalue()
    if arguments[1:]:
        assert "Example" in text and f"attnkit {{arguments[0]}}" in text, arguments
    assert text.strip() and max(map(len, text.splitlines())) <= 100, arguments
heavy = sorted({{"torch", "tokenizers", "sacrebleu", "safetensors", "numpy"}} & set(sys.modules))
print(*heavy)
"""


def test_help_never_imports_torch() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "torch" not in done.stdout.split()


def test_importing_the_library_is_free_of_torch() -> None:
    code = "import sys, attnkit; attnkit.load, attnkit.train, attnkit.__version__; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
