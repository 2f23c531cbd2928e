"""How often the text of a run is read: once for each use, and once more to know what to hold out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnkit.data.config import DataConfig
from attnkit.tasks.translation.parallel_data import ParallelData

NAMES = [f"{name}.{side}" for name in "abc" for side in ("src", "tgt")]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make three pairs of files of 40 lines; return the names of what is opened from then on."""
    for name in NAMES:
        (tmp_path / name).write_text("".join(f"{name} {n}\n" for n in range(40)))
    found: list[str] = []
    open_as_ever = Path.open

    def noting(path: Path, *arguments: Any, **options: Any) -> Any:
        found.append(path.name)
        return open_as_ever(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", noting)
    return found


def corpora(folder: Path, **others: Any) -> ParallelData:
    src, tgt = (tuple(str(folder / name) for name in NAMES if name.endswith(side)) for side in ("src", "tgt"))
    return ParallelData(DataConfig(src=src, tgt=tgt, **others))


def test_text_is_read_once_where_nothing_is_held_out(tmp_path: Path, opened: list[str]) -> None:
    valid = {f"valid_{side}": (str(tmp_path / f"a.{side}"),) for side in ("src", "tgt")}
    given = corpora(tmp_path, **valid)
    opened.clear()
    assert len(list(given.lines(0))) == 120
    assert sorted(opened) == NAMES


def test_lines_before_a_file_are_counted_once(tmp_path: Path, opened: list[str]) -> None:
    held = corpora(tmp_path)
    # To count lines, and to see by the first one whether a model wrote the file.
    assert sorted(opened) == sorted([*NAMES, *["a.src", "b.src", "c.src"] * 2])
    opened.clear()
    kept = list(held.lines(0))
    assert sorted(opened) == NAMES
    assert len(held.valid) == held.n_held_out == 6
    written = [f"{name} {n}" for name in NAMES if name.endswith("src") for n in range(40)]
    assert sorted([*kept, *(src for src, _ in held.valid)]) == sorted(written)
