"""The command line of `clean`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["attnkit", "clean", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_run_scores_pairs(
    trained: Path, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import attnkit

    src, tgt = workshop.file("valid.src"), workshop.file("valid.tgt")
    lines = [path.read_text().split("\n")[:-1] for path in (src, tgt)]
    scores = attnkit.Translator.load(trained, device="cpu").score(*lines)
    means = [score.log_prob / score.n_tokens for score in scores]
    least = sorted(means)[len(means) // 2] + 1e-4
    out = tmp_path / "out"
    options = ["--any-language", "--keep-copies", "--duplicates", "keep", "--max-ratio", "100"]
    assert call(monkeypatch, src, tgt, "-o", out, "--run", trained, "--min-log-prob", least, "--json", *options) == 0
    report = json.loads(capsys.readouterr().out)
    low = sum(mean < least for mean in means)
    assert report["dropped"] == {"low_log_prob": low} and report["kept"] == len(means) - low
    kept = (out / "valid.src").read_text().split("\n")[:-1]
    assert kept == [line for line, mean in zip(lines[0], means, strict=True) if mean >= least]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--min-log-prob", "-1"], "--run and --min-log-prob require each other"),
        (["--max-ratio", "0.5"], "--max-ratio"),
        (["--min-evidence", "9"], "--min-evidence"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    workshop: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    files = workshop.file("valid.src"), workshop.file("valid.tgt")
    assert call(monkeypatch, *files, "-o", tmp_path / "out", *options) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_missing_file_is_reported_before_anything_is_written(
    workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, workshop.file("valid.src"), tmp_path / "none", "-o", tmp_path / "out") == 2
    assert "no such file" in capsys.readouterr().err and not (tmp_path / "out").exists()
