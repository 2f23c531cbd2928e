"""An interrupted translation resumes after its last whole part, and the result is the same."""

from __future__ import annotations

import json
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main
from attnkit.data.loader import Batching
from attnkit.errors import RunError, UsageError
from attnkit.io import atomic, safe_read
from attnkit.io.resumable import ResumableFiles


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["attnkit", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def make_input(workshop: Any, folder: Path) -> Path:
    lines = workshop.file("test.src").read_text().split("\n")[:-1]
    path = folder / "in.src"
    marked = [lines[0], *(f"<b>{line}</b> {line} http://a.b/{len(line)} {{x}}" for line in lines[1:3]), *lines[3:]]
    path.write_text("".join(f"{marked[i % len(lines)]}\n" for i in range(600)) + "\u200b\n\n  \n")
    return path


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--num-hypotheses", "2", "--beam-size", "2"),
        ("--sampling",),
        ("--json",),
        ("--protect",),
        ("--protect", "--json"),
        ("--protect", "--sampling"),
    ],
)
def test_a_killed_translation_resumes_and_is_the_same(
    trained: Path, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    source, whole, output = make_input(workshop, tmp_path), tmp_path / "whole", tmp_path / "out"
    command = ["translate", trained, "-i", source, "--device", "cpu", "--max-length", "6", *more]
    if "--sampling" not in more or "--protect" not in more:  # samples of protected lines depend on the window
        assert call(monkeypatch, *command, "-o", whole) == 0
    monkeypatch.setattr("attnkit.data.loader.Batching", partial(Batching, window=100))
    assert whole.exists() or call(monkeypatch, *command, "-o", whole) == 0
    draw = random.Random(str(more))
    real = atomic.append_bytes

    def append(path: Path, data: bytes) -> None:
        real(path, data)
        if draw.random() < 0.4:  # behind an append, before its record
            raise KeyboardInterrupt

    monkeypatch.setattr("attnkit.io.atomic.append_bytes", append)
    n_kills = 0
    while call(monkeypatch, *command, "-o", output, "--resume"):
        n_kills += 1
        assert n_kills < 100 and not output.exists() and (tmp_path / "out.progress").is_file()
    assert n_kills and output.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.src", "out", "whole"]


def test_invisible_lines_stay_blank(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("\u200b\n\ufeff\u200e \n\u00ad\n\n")
    assert call(monkeypatch, "translate", trained, "-i", tmp_path / "in", "--device", "cpu") == 0
    assert capsys.readouterr().out == "\n" * 4


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes")
def test_a_finished_translation_is_not_done_again(
    trained: Path, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output, folder = make_input(workshop, tmp_path), tmp_path / "out", tmp_path / "folder"
    if not has_attributes(source):
        pytest.skip("this file system has no extended attributes")
    command = ["translate", trained, "--device", "cpu", "--resume", "--max-length", "6", "-i", source, "-o"]
    of_files = [*command[:-2], f"{tmp_path}/in.*", "-o", folder]
    assert call(monkeypatch, *command, output) == call(monkeypatch, *of_files) == 0
    first = output.stat().st_ino, (folder / "in.src").stat().st_ino
    with monkeypatch.context() as patch:
        patch.setattr("attnkit.tasks.translation.stream.open_translator", None)
        capsys.readouterr()
        assert call(patch, *command, output) == call(patch, *of_files) == 0
        said = capsys.readouterr()
        assert said.out == "" and f"{output} is finished" in said.err and f"{folder} is finished: 1 file;" in said.err
    assert (output.stat().st_ino, (folder / "in.src").stat().st_ino) == first
    # Whatever differs starts again, as without --resume: an edited result, other settings, other input.
    wanted = output.read_bytes()
    output.write_bytes(b"edited" + wanted[6:])
    assert call(monkeypatch, *command, output) == 0 and output.read_bytes() == wanted
    assert "is finished" not in capsys.readouterr().err
    assert call(monkeypatch, *command, output, "--max-length", "5") == 0 and output.read_bytes() != wanted
    assert call(monkeypatch, *command, output) == 0 and output.read_bytes() == wanted
    os.utime(source, ns=(1, 1))
    assert call(monkeypatch, *of_files) == 0
    assert "is finished" not in capsys.readouterr().err
    # A job that has begun again comes before its earlier result.
    (tmp_path / "out.progress").write_text("{}")
    assert call(monkeypatch, *command, output) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "in.src", "out", "out.progress"]


def has_attributes(path: Path) -> bool:
    atomic.set_attribute(path, "test", b"1")
    return safe_read.read_attribute(path, "test") == b"1"


def test_resuming_needs_the_same_input_and_settings(
    trained: Path, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = make_input(workshop, tmp_path), tmp_path / "out"
    command = ["translate", trained, "-i", source, "-o", output, "--device", "cpu", "--resume"]
    with monkeypatch.context() as patch:

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("attnkit.io.atomic.append_bytes", stop)
        assert call(patch, *command) != 0
    assert call(monkeypatch, *command, "--beam-size", "3") == 2
    assert "other input or settings" in capsys.readouterr().err
    with source.open("a") as file:
        file.write("more\n")
    assert call(monkeypatch, *command) == 2
    capsys.readouterr()
    assert call(monkeypatch, "translate", trained, "-i", source, "--resume") == 2
    assert "requires -i and -o" in capsys.readouterr().err


def test_files_are_cut_to_what_is_recorded(tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    job = ResumableFiles(tmp_path / "p", files, {"x": (1, 2)}, 0)
    job.append(["one\n", ""], {"n": 1})
    with job.parts[1].open("a") as file:
        file.write("lost")
    again = ResumableFiles(tmp_path / "p", files, {"x": [1, 2]}, 0)
    assert again.is_resumed and again.state == {"n": 1} and again.parts[1].read_text() == ""
    again.append(["two\n", "b\n"], {"n": 2})
    files[0].write_text("an older result")
    again.finish()
    assert [path.read_text() for path in files] == ["one\ntwo\n", "b\n"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"settings": {}, "state": 0, "sizes": ["x"]}'])
def test_a_damaged_record_is_refused(tmp_path: Path, damage: str) -> None:
    ResumableFiles(tmp_path / "p", [tmp_path / "a"], {}, 0)
    (tmp_path / "p").write_text(damage)
    with pytest.raises(RunError, match="damaged"):
        ResumableFiles(tmp_path / "p", [tmp_path / "a"], {}, 0)


def test_a_lost_part_and_other_settings_are_refused(tmp_path: Path) -> None:
    job = ResumableFiles(tmp_path / "p", [tmp_path / "a"], {}, 0)
    job.append(["text"], 1)
    with pytest.raises(UsageError, match="other input or settings"):
        ResumableFiles(tmp_path / "p", [tmp_path / "a"], {"x": 1}, 0)
    saved = json.loads((tmp_path / "p").read_text())
    assert saved["state"] == 1 and saved["sizes"] == [4]
    job.parts[0].unlink()
    with pytest.raises(RunError, match="missing"):
        ResumableFiles(tmp_path / "p", [tmp_path / "a"], {}, 0)


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "thesis").write_text("precious")
    with pytest.raises(UsageError, match="not a regular file"):
        ResumableFiles(tmp_path / "out.progress", [folder], {}, 0)
    assert (folder / "thesis").read_text() == "precious"


def test_an_earlier_result_is_not_taken_for_a_lost_part(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("precious earlier result\n")
    job = ResumableFiles(tmp_path / "out.progress", [out], {}, 0)
    job.append(["line one\n"], 1)
    job.parts[0].unlink()
    with pytest.raises(RunError, match="is missing"):
        ResumableFiles(tmp_path / "out.progress", [out], {}, 0)
    assert out.read_text() == "precious earlier result\n"
