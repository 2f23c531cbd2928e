"""Commands on corpora that are not two text files: the same results as from text, and resuming that notices changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["attnkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out + captured.err

    return call


@pytest.fixture
def corpus(workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """The lines of a corpus; in the working folder as text, shards, JSONL and TMX."""
    monkeypatch.chdir(tmp_path)
    src, tgt = (workshop.file(f"train.{side}").read_text().split("\n")[:-1] for side in ("src", "tgt"))
    assert len(src) <= 200
    for side, lines in (("en", src), ("de", tgt)):
        Path(f"a.{side}").write_text("".join(f"{line}\n" for line in lines))
        Path(side).mkdir()
        for number in range(4):
            Path(side, f"{number}.txt").write_text("\n".join(lines[50 * number : 50 * number + 50]))
    pairs = list(zip(src, tgt, strict=True))
    Path("a.jsonl").write_text("".join(json.dumps({"t": {"en": a, "de": b}}) + "\n" for a, b in pairs))
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{a}</seg></tuv><tuv xml:lang="de"><seg>{b}</seg></tuv></tu>' for a, b in pairs
    )
    Path("a.tmx").write_text(f'<tmx><body>{units}<tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu></body></tmx>')
    return src, tgt


def test_vocabularies_of_all_forms_are_equal(run: Run, corpus: object) -> None:
    found = []
    for number, source in enumerate(("a.en", "en", "en/*.txt", "a.jsonl:t.en")):
        assert run("vocab", source, "-o", f"{number}.json", "--size", "300")[0] == 0
        found.append(Path(f"{number}.json").read_bytes())
    assert len(set(found)) == 1


def test_training_encodes_the_same_text_and_notices_changes(run: Run, corpus: object) -> None:
    options = ["--preset", "tiny", "--device", "cpu", "--set", "decoding.max_length=5", "--set", "data.max_ratio=100"]
    for name, src, tgt in (
        ("text", "a.en", "a.de"),
        ("shards", "en", "de/*"),
        ("json", "a.jsonl:t.en", "a.jsonl:t.de"),
    ):
        assert run("train", "--src", src, "--tgt", tgt, "-o", name, "--max-steps", "1", *options)[0] == 0
        for file in ("src/ids.bin", "tgt/offsets.bin"):
            (encoded,) = Path(name, "data").glob(f"train/{file}")
            assert encoded.read_bytes() == Path("text/data/train", file).read_bytes()
    assert run("train", "--src", "en", "--tgt", "de/*", "-o", "shards", "--max-steps", "2", *options)[0] == 0
    Path("en/4.txt").write_text("")
    code, said = run("train", "--src", "en", "--tgt", "de/*", "-o", "shards", "--max-steps", "3", *options)
    assert code == 2 and "has changed since the run started" in said and "at en\n" in said


def test_a_unit_that_lacks_a_language_drops_the_pair_on_both_sides(
    run: Run, corpus: tuple[list[str], list[str]]
) -> None:
    n = len(corpus[0]) + 1
    options = ["--any-language", "--keep-copies", "--duplicates", "keep", "--max-ratio", "100"]
    assert run("clean", "a.jsonl:t.en", "a.jsonl:t.de", "-o", "whole", *options)[0] == 0
    assert run("clean", "a.tmx:en", "a.tmx:de", "-o", "cleaned", *options)[0] == 0
    report = json.loads(Path("cleaned/report.json").read_text())
    whole = json.loads(Path("whole/report.json").read_text())
    assert report["n_src"] == report["n_tgt"] == n
    assert sum(report["dropped"].values()) == sum(whole["dropped"].values()) + 1
    for side in ("en", "de"):
        assert Path(f"cleaned/a.{side}").read_bytes() == Path(f"whole/a.{side}").read_bytes()
    code, said = run("check", "a.tmx:en", "a.tmx:de")
    assert "1  pair with a blank target" in said and f"line {n}: alone" in said
    code, said = run("clean", "cleaned/*.en", "cleaned/a.de", "-o", "cleaned", "--overwrite")
    assert code == 2 and "lies in the output folder" in said


def test_what_is_mistyped_costs_no_run(run: Run, corpus: object) -> None:
    for source, what, code in (
        ("a.jsonl:en", "no field 'en'", 3),
        ("a.jsonl", "is a table of several fields", 2),
        ("b/*.en", "no file matches", 2),
        ("a.tmx:fr", "no language 'fr'", 3),
    ):
        for command in (
            ["train", "--src", source, "--tgt", "a.de"],
            ["pretrain-mlm", source],
            ["word2vec", "train", source],
        ):
            ended, said = run(*command, "-o", "new")
            assert (ended, what in said) == (code, True), (command, said)
            assert not Path("new").exists() or command[0] == "word2vec"
