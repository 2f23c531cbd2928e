"""``attnkit toy-corpus``: what it takes for text of its own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from attnkit.cli.main import main
from attnkit.progress import console


def test_a_link_counts_as_other_text_whatever_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*more: str) -> int:
        arguments = ["reverse", "-o", str(tmp_path / "toy"), "--pairs", "3", "--valid", "2", "--test", "2"]
        monkeypatch.setattr(sys, "argv", ["attnkit", "toy-corpus", *arguments, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    assert call() == 0
    path, same = tmp_path / "toy/valid.src", tmp_path / "same"
    path.rename(same)
    for goal in (same, tmp_path / "missing", Path("/dev/zero")):
        path.symlink_to(goal)
        capsys.readouterr()
        assert call() == 2
        assert f"{path} exists with different content" in capsys.readouterr().err
        assert path.readlink() == goal
        path.unlink()
    path.symlink_to(same)
    assert call("--overwrite") == 0
    assert path.read_bytes() == same.read_bytes() and not path.is_symlink()


@pytest.mark.parametrize("quiet", [False, True])
def test_a_large_corpus_shows_progress_unless_quiet(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    monkeypatch.setattr(console, "_settings", {"quiet": False})
    arguments = ["reverse", "-o", str(tmp_path), "--pairs", "30", "--valid", "2", "--test", "4"]
    monkeypatch.setattr(sys, "argv", ["attnkit", "toy-corpus", *arguments, *(["-q"] if quiet else [])])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code in (0, None) and "30 lines" in out
    assert bool(re.search(r"█.* 28%  11 lines .* left", err)) is not quiet
