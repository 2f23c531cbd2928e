"""The command lines of `back-translate`, `augment` and `distill`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., tuple[int, str, str]]
OPTIONS = ["--device", "cpu", "--threads", "1", "--keep-flagged"]


@pytest.fixture(scope="module")
def words(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose tokens are digits, so that whatever it writes is text."""
    settings = {"vocabulary.kind": "word", "vocabulary.min_frequency": 1, "evaluation.every_steps": 50}
    folder = tmp_path_factory.mktemp("words")
    workshop.train(workshop.configure(limits__max_steps=20, **settings), folder)
    return folder


def test_back_translate_prints_its_counts_and_the_next_command(
    call: Call, words: Path, workshop: Any, tmp_path: Path
) -> None:
    mono, out = tmp_path / "mono", tmp_path / "out"
    mono.write_text("1 2 3\n\n4 5\n")
    code, printed, err = call("back-translate", words, mono, "-o", out, *OPTIONS, "--sampling", "--seed", 3)
    assert code == 0, err
    assert printed == f"3  lines read\n2  pairs kept in {out}\n1  dropped: blank\n"
    assert "try: " in err and f"--src {out}/pairs.src --tgt {out}/pairs.tgt" in err
    assert (out / "pairs.tgt").read_text() == "1 2 3\n4 5\n"
    first = (out / "pairs.src").read_text()
    assert [line.split()[0] for line in first.splitlines()] == ["<bt>", "<bt>"]
    code, again, err = call("back-translate", words, mono, "-o", out, *OPTIONS, "--sampling", "--seed", 3)
    assert (code, again) == (0, printed) and f"{out} is finished; add --overwrite to start again" in err
    code, printed, err = call("back-translate", words, mono, "-o", out, *OPTIONS)
    assert code == 2 and f"{out} is finished, with other input or settings" in err and "--overwrite" in err
    more = ("--overwrite", "--tag", "", "--quiet", "--json")
    code, printed, err = call("back-translate", words, mono, "-o", out, *OPTIONS, *more)
    assert code == 0 and err == ""
    assert json.loads(printed) == {"n_lines": 3, "kept": 2, "dropped": {"blank": 1}, "reference_bleu": None}
    assert "<bt>" not in (out / "pairs.src").read_text()


def test_augment_prints_its_counts_and_says_what_is_missing(
    call: Call, words: Path, workshop: Any, tmp_path: Path
) -> None:
    src, tgt, out = workshop.file("test.src"), workshop.file("test.tgt"), tmp_path / "out"
    code, _, err = call("augment", src, tgt, "-o", out, *OPTIONS)
    assert code == 2 and "no run to translate with" in err and "--forward RUN, --backward RUN, or both" in err
    code, _, err = call("augment", src, tgt, "-o", out, *OPTIONS, "--forward", words, "--backward", tmp_path / "none")
    assert code == 4 and f"no such run folder: {tmp_path / 'none'}" in err
    short = tmp_path / "short"
    short.write_text("1\n")
    code, _, err = call("augment", src, short, "-o", out, *OPTIONS, "--forward", words)
    assert code == 3 and f"{short} has 1" in err
    assert not out.exists()
    both = ("--forward", words, "--backward", words, "--max-length", 8)
    code, printed, err = call("augment", src, tgt, "-o", out, *OPTIONS, *both)
    assert code == 0, err
    n_lines = len(src.read_text().splitlines())
    assert printed.startswith(f"{n_lines}  lines read\n") and f"pairs kept in {out}" in printed
    assert f"--src {out}/pairs.src --tgt {out}/pairs.tgt" in err


def test_distill_reports_how_near_its_translations_are(call: Call, words: Path, workshop: Any, tmp_path: Path) -> None:
    src, tgt, out = workshop.file("test.src"), workshop.file("test.tgt"), tmp_path / "out"
    code, printed, err = call("distill", words, src, tgt, "-o", out, *OPTIONS, "--beam-size", 4)
    assert code == 0, err
    bleu = json.loads((out / "report.json").read_text())["reference_bleu"]
    assert f"{bleu:.1f}" in printed and "mean sentence BLEU of the kept translations" in printed
    assert (out / "pairs.src").read_text() == src.read_text()


def test_a_run_of_the_wrong_direction_is_suspected(
    call: Call, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnkit.quality.profile import TrainingProfile

    monkeypatch.setattr(TrainingProfile, "unlikely", lambda self, lines: __import__("numpy").ones(len(lines), bool))
    (tmp_path / "mono").write_text("1 2 3\n")
    code, _, err = call("back-translate", words, tmp_path / "mono", "-o", tmp_path / "out", *OPTIONS)
    assert code == 0 and "warning: 1 of the first 1 lines are unlike the source text of" in err
    assert "from the target to the source language" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tag", "a b"], "the tag contains white space"),
        (["--min-log-prob", "1"], "--min-log-prob"),
        (["--min-round-trip", "30"], "require --forward"),
        (["--sampling", "--beam-size", "3"], "sampling has no beam"),
        (["--top-k", "3"], "need sampling"),
        (["--min-round-trip", "130", "--forward", "x"], "--min-round-trip"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    call: Call, words: Path, workshop: Any, tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, _, err = call("back-translate", words, workshop.file("test.tgt"), "-o", tmp_path / "out", *arguments)
    assert code == 2 and message in err, err
    assert not (tmp_path / "out").exists()


def test_wrong_files_are_refused(call: Call, words: Path, workshop: Any, tmp_path: Path) -> None:
    out, src = tmp_path / "out", workshop.file("test.src")
    code, _, err = call("back-translate", src, src, "-o", out)
    assert code == 4 and "is a file, not a run folder" in err
    code, _, err = call("distill", words, tmp_path / "none", "-o", out)
    assert code == 2 and "no such file" in err
    (tmp_path / "short").write_text("1\n")
    code, _, err = call("distill", words, src, tmp_path / "short", "-o", out, *OPTIONS)
    assert code == 3 and "has 40 lines and" in err
    (tmp_path / "bad").write_bytes(b"1 2\n1 \xff\n")
    code, _, err = call("back-translate", words, tmp_path / "bad", "-o", out, *OPTIONS)
    assert code == 3 and "is not UTF-8" in err and "bad:2" in err
