"""Folders and patterns as input, one output per file; compressed output; jobs that are killed and resumed."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main
from attnkit.data.loader import Batching
from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.io.resumable import ResumableFiles
from attnkit.io.safe_read import zstd_module
from attnkit.tasks.translation.jobs import find_inputs, pair_outputs
from attnkit.text.lines import read_lines

READERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress, ".bz2": bz2.decompress}


def has_zstd() -> bool:
    try:
        return zstd_module() is not None
    except UsageError:
        return False


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["attnkit", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def shards(workshop: Any, tmp_path: Path) -> Path:
    """Return a folder of four files, one compressed and one empty, a hidden one and a subfolder."""
    lines = workshop.file("test.src").read_text().split("\n")[:-1]
    texts = ["".join(f"{lines[(i * 7 + j) % len(lines)]}\n" for j in range(n)) for i, n in enumerate((250, 90, 120))]
    folder = tmp_path / "shards"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.src").write_text(texts[0])
    (folder / "b.src.gz").write_bytes(gzip.compress(texts[1].encode()))
    (folder / "c.src").write_text(texts[2] + "\u200b\n\n")
    (folder / "d.src").write_text("")
    (folder / ".hidden").write_text("not translated\n")
    (folder / "sub" / "e.src").write_text("1 2\n")
    return folder


def interrupted(real: Callable[..., None], share: float, draw: random.Random) -> Callable[..., None]:
    def run(*arguments: Any) -> None:
        if draw.random() < share:  # before a write
            raise KeyboardInterrupt
        real(*arguments)
        if draw.random() < share:  # after it
            raise KeyboardInterrupt

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_each_file_is_translated_as_alone(
    trained: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, more = tmp_path / "new" / "out", ["--device", "cpu", "--max-length", "6"]
    assert call(monkeypatch, "translate", trained, "-i", shards, "-o", out, *more) == 0
    assert f"4 files, 462 lines translated to {out}" in capsys.readouterr().err
    assert sorted(contents(out)) == ["a.src", "b.src.gz", "c.src", "d.src"]
    for name in contents(out):
        assert call(monkeypatch, "translate", trained, "-i", shards / name, "-o", tmp_path / name, *more) == 0
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()
    assert len(gzip.decompress((out / "b.src.gz").read_bytes()).splitlines()) == 90
    assert (out / "c.src").read_text().endswith("\n\n\n") and (out / "d.src").read_bytes() == b""
    assert call(monkeypatch, "translate", trained, "-i", f"{shards}/[ac].s*", "-o", tmp_path / "some", *more) == 0
    assert contents(tmp_path / "some") == {name: contents(out)[name] for name in ("a.src", "c.src")}


def test_a_killed_job_of_files_resumes_and_is_the_same(
    trained: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["translate", trained, "-i", shards, "--device", "cpu", "--max-length", "6", "--resume", "-o"]
    monkeypatch.setattr("attnkit.data.loader.Batching", partial(Batching, window=40))
    assert call(monkeypatch, *command, tmp_path / "whole") == 0
    draw, n_kills = random.Random(1), 0
    real_append, real_move, real_write = atomic.append_bytes, atomic.move, atomic.write_text

    with monkeypatch.context() as patch:
        patch.setattr("attnkit.io.atomic.append_bytes", interrupted(real_append, 0.1, draw))
        patch.setattr("attnkit.io.atomic.move", interrupted(real_move, 0.3, draw))
        patch.setattr("attnkit.io.atomic.write_text", interrupted(real_write, 0.1, draw))
        while call(patch, *command, tmp_path / "killed"):
            n_kills += 1
            assert n_kills < 200
    assert n_kills > 5
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_no_finished_file_is_translated_twice(
    trained: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("1\t7\n")
    command = ["translate", trained, "-i", shards, "-o", tmp_path / "out", "--device", "cpu", "--resume"]
    command += ["--glossary", terms]
    real = ResumableFiles.finish

    def finish(self: ResumableFiles) -> None:
        if self.files and self.files[0].name == "c.src":  # recorded as translated, without its final name
            raise KeyboardInterrupt
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(ResumableFiles, "finish", finish)
        assert call(patch, *command, "--max-length", "6") != 0
    first = (tmp_path / "out" / "a.src").stat()
    assert not (tmp_path / "out" / "c.src").exists()
    assert call(monkeypatch, *command, "--max-length", "5") == 2
    assert "other input or settings" in capsys.readouterr().err
    changed = terms.stat()
    terms.write_text("1\t77\n")
    assert call(monkeypatch, *command, "--max-length", "6") == 2
    assert "other input or settings" in capsys.readouterr().err
    terms.write_text("1\t7\n")
    os.utime(terms, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    assert call(monkeypatch, *command, "--max-length", "6") == 0
    assert "resuming after 3 of 4 files and 462 lines" in capsys.readouterr().err
    assert (tmp_path / "out" / "a.src").stat().st_mtime_ns == first.st_mtime_ns
    assert sorted(contents(tmp_path / "out")) == ["a.src", "b.src.gz", "c.src", "d.src"]


def test_what_is_no_folder_or_pattern_is_one_file(tmp_path: Path) -> None:
    strange = tmp_path / "a[1].txt"
    strange.write_text("x\n")
    assert find_inputs(strange) is None and find_inputs(Path("-")) is None and find_inputs(tmp_path / "none") is None
    assert find_inputs(tmp_path) == [strange]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has no files"):
        find_inputs(tmp_path / "empty")
    with pytest.raises(UsageError, match="no file matches"):
        find_inputs(tmp_path / "*.fr")


def test_names_are_checked_before_the_work(tmp_path: Path) -> None:
    for name in ("x/a.en", "y/a.en", "z/b", "z/b.part"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=r"x/a.en and .*y/a.en would have one name, a.en"):
        pair_outputs([tmp_path / "x" / "a.en", tmp_path / "y" / "a.en"], out)
    with pytest.raises(UsageError, match=r"would have one name, b.part"):
        pair_outputs([tmp_path / "z" / "b", tmp_path / "z" / "b.part"], out)
    with pytest.raises(UsageError, match="is also an input file"):
        pair_outputs([tmp_path / "x" / "a.en"], tmp_path / "x")
    with pytest.raises(UsageError, match="need an output folder"):
        pair_outputs([tmp_path / "x" / "a.en"], None)
    with pytest.raises(UsageError, match="is not a folder"):
        pair_outputs([tmp_path / "x" / "a.en"], tmp_path / "y" / "a.en")
    assert not out.exists()


def test_options_of_one_file_are_refused(
    trained: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert call(monkeypatch, "translate", trained, "-i", shards, "-o", tmp_path / "out", "--target-prefix=x") == 2
    assert "cannot be combined with several files" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


DOCUMENTS = {
    "html": ("a.html", '<html lang="en"><p>{} <b>{}</b>: http://a.b/c</p><p>&lt;b&gt;{}&lt;/b&gt;</p>'),
    "markdown": ("a.md", "# {}\n\nas *{}* wrote:\n> {}\n> {{name}}\n"),
    "xliff": ("a.xlf", "<xliff><trans-unit><source>{} <g>{}</g> {}</source></trans-unit></xliff>"),
    "srt": ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n{{\\an8}}- {} <i>{}</i>\n- {}\n"),
}


@pytest.fixture
def site(workshop: Any, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that makes a folder of five documents of a format: one compressed, one without text."""
    lines = workshop.file("test.src").read_text().split("\n")[:-1]

    def make(format: str) -> Path:
        folder = tmp_path / f"site-{format}"
        (folder / "sub").mkdir(parents=True)
        name, form = DOCUMENTS[format]
        for i in range(4):
            text = "\n\n".join(
                form.format(*lines[i + k : i + k + 3]) for k in range(i % 2 + 1 if format != "xliff" else 1)
            )
            (folder / f"{i}{name}").write_text(text)
        whole = folder / f"3{name}"
        (folder / f"{whole.name}.gz").write_bytes(gzip.compress(whole.read_bytes()))
        whole.write_text(form.format("", "", "") if format != "srt" else "1\n00:00:01,000 --> 00:00:02,000\n\n")
        (folder / ".hidden").write_text("\0")
        (folder / "sub" / name).write_text("not translated")
        return folder

    return make


@pytest.mark.parametrize("format", DOCUMENTS)
def test_each_document_of_a_folder_is_translated_as_alone(
    trained: Path,
    site: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    format: str,
) -> None:
    folder, out, name = site(format), tmp_path / "new" / "out", DOCUMENTS[format][0]
    (tmp_path / "terms").write_text("1\t7\n")
    more = ["--format", format, "--device", "cpu", "--max-length", "6", "--glossary", tmp_path / "terms"]
    assert call(monkeypatch, "translate", trained, "-i", folder, "-o", out, *more) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(rf"5 files, \d+ passages translated, .* in {re.escape(str(out))}", said)
    assert "read as" not in said and list(contents(out)) == [f"{i}{name}" for i in range(4)] + [f"3{name}.gz"]
    for one in contents(out):
        assert call(monkeypatch, "translate", trained, "-i", folder / one, "-o", tmp_path / one, *more) == 0
        assert (tmp_path / one).read_bytes() == (out / one).read_bytes() != b""
    capsys.readouterr()
    assert (
        call(monkeypatch, "translate", trained, "-i", f"{folder}/[01]*", "-o", tmp_path / "two", *more, "--json") == 0
    )
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert list(dict.fromkeys(one["file"] for one in found)) == [f"{folder}/0{name}", f"{folder}/1{name}"]
    for one in found:
        assert one["translations"][0]["text"] in (tmp_path / "two" / Path(one["file"]).name).read_text()
    assert contents(tmp_path / "two") == {one: contents(out)[one] for one in (f"0{name}", f"1{name}")}


@pytest.mark.parametrize("format", DOCUMENTS)
def test_a_killed_job_of_documents_resumes_and_translates_none_twice(
    trained: Path, site: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """At each moment a document is whole under its name, or not there; finished ones are not touched again."""
    folder, draw = site(format), random.Random(format)
    command = ["translate", trained, "-i", folder, "--format", format, "--device", "cpu", "--max-length", "6"]
    command += ["--resume", "-o"]
    assert call(monkeypatch, *command, tmp_path / "whole") == 0
    whole, out, n_kills = contents(tmp_path / "whole"), tmp_path / "killed", 0
    times: dict[str, int] = {}
    with monkeypatch.context() as patch:
        for name, share in (("append_bytes", 0.15), ("move", 0.2), ("write_text", 0.1)):
            patch.setattr(f"attnkit.io.atomic.{name}", interrupted(getattr(atomic, name), share, draw))
        while call(patch, *command, out):
            n_kills += 1
            assert n_kills < 200
            done = {path.name: path for path in out.iterdir() if path.name in whole}
            assert {name: path.read_bytes() for name, path in done.items()} == {name: whole[name] for name in done}
            for name, path in done.items():
                assert times.setdefault(name, path.stat().st_mtime_ns) == path.stat().st_mtime_ns
    assert n_kills > 3 and contents(out) == whole


def test_documents_are_checked_before_the_work(
    trained: Path, site: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder, out = site("html"), tmp_path / "out"
    command = ["translate", trained, "--format", "html", "--device", "cpu", "--resume", "-o", out, "-i"]
    (folder / "logo.png").write_bytes(b"\x89PNG\xff")
    assert call(monkeypatch, *command, folder) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "logo.png:1" in said and not out.exists()
    (folder / "logo.png").unlink()
    (folder / "x.css").write_text("p { color: red }\n<b>")
    assert call(monkeypatch, *command, folder) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "read as html whatever the suffix says: x.css; a pattern such as" in said
    assert f"{folder / 'x.css'}: 1 tag is without a partner" in said and (out / "x.css").is_file()
    assert call(monkeypatch, *command, f"{folder}/*.html", "--json") == 2
    assert "--json cannot be combined with --resume of documents" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [*READERS, ".zst"])
def test_output_is_compressed_by_its_suffix(tmp_path: Path, suffix: str) -> None:
    path, parts = tmp_path / f"a{suffix.upper()}", tmp_path / f"b{suffix}"
    if suffix == ".zst" and not has_zstd():
        with pytest.raises(UsageError, match=r"backports\.zstd") as caught, atomic.open_output(path) as stream:
            stream.write("text")
        assert caught.value.help == 'pip install "attnkit[zst]"' and list(tmp_path.iterdir()) == []
        return
    with atomic.open_output(path) as stream:
        stream.write("äh\n" * 1000)
        stream.flush()
        stream.write("end\n")
    job = ResumableFiles(tmp_path / "p", [parts], {}, 0)
    job.append(["äh\n" * 1000], 1)
    job.append(["end\n"], 2)
    job.finish()
    for file in (path, parts):
        assert list(read_lines(file)) == ["äh"] * 1000 + ["end"] and file.stat().st_size < 500
    if suffix in READERS:
        assert READERS[suffix](path.read_bytes()).decode() == "äh\n" * 1000 + "end\n"
    nothing = tmp_path / f"nothing{suffix}"
    ResumableFiles(tmp_path / "p", [nothing], {}, 0).finish()
    assert list(read_lines(nothing)) == [] and nothing.stat().st_size > 0
    with pytest.raises(ZeroDivisionError), atomic.open_output(path) as stream:
        stream.write("lost")
        1 / 0  # noqa: B018
    assert list(read_lines(path))[-1] == "end"
