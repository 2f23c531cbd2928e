"""console.py: what is told steers no terminal and turns no text round."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest

from attnkit.progress import console
from attnkit.progress.console import printable


def test_no_control_and_no_sign_of_direction_is_printed_as_it_is() -> None:
    signs = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp")]
    turning = {"LRM", "RLM", "ALM", "LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    names = {"LEFT-TO-RIGHT", "RIGHT-TO-LEFT", "ARABIC LETTER MARK", "POP DIRECTIONAL", "FIRST STRONG ISOLATE"}
    formats = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Cf"]
    turns = [sign for sign in formats if any(unicodedata.name(sign, "").startswith(name) for name in names)]
    assert len(turns) == len(turning)
    for sign in {*signs, *turns} - {"\t", "\n"}:
        assert printable(f"a{sign}b") == f"a<U+{ord(sign):04X}>b"
    for same in ("a\tb\n", "caf\u00e9 \u05d0\u0628 \u200d \u6f22"):
        assert printable(same) == same


@pytest.mark.parametrize("known", [True, False])
def test_progress_of_lines_waits_and_tells_the_time_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: bool
) -> None:
    source = tmp_path / "lines.txt"
    if known:
        source.write_text("a\n" * 1000)
    now, shown = [100.0], []

    class Status(console.StatusLine):
        def update(self, text: str) -> None:
            shown.append(text)

    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    follow = console.follow_lines(Status(), [source])
    for seconds, n_lines in ((60.0, 0), (1.9, 200), (0.2, 0), (2.9, 250), (5.0, 1000)):
        now[0] += seconds
        follow(n_lines)
    expected = ["250 lines  50 lines/s", "1,000 lines  100 lines/s"]
    if known:
        expected = [f"██░░░░░░  25%  {expected[0]}  15s left", f"████████ 100%  {expected[1]}  0s left"]
    assert shown == expected


def test_progress_leaves_a_damaged_file_to_its_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lines.gz").write_bytes(b"no gzip")
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    shown: list[str] = []
    status: Any = type("Status", (), {"update": staticmethod(shown.append)})
    follow = console.follow_lines(status, [tmp_path / "lines.gz"])
    follow(0)
    follow(5)
    assert len(shown) == 1 and shown[0].startswith("5 lines")
