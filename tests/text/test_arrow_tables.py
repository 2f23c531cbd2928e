"""Columns of Parquet, Arrow and data sets saved on disk. Without pyarrow, the error names the extra."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from attnkit.data.prepared_dir import fingerprint
from attnkit.errors import DataError, UsageError
from attnkit.text.lines import LineReader, count_lines, open_binary, read_lines
from attnkit.text.parallel import read_parallel

EN = [f"{i} one" for i in range(3000)]
DE = [f"{i} eins" for i in range(3000)]


def test_the_error_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="need the package pyarrow") as caught:
        open_binary(tmp_path / "a.parquet:en")
    assert caught.value.help == 'pip install "attnkit[data]"'


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow")


@pytest.fixture
def table(pa: Any) -> Any:
    pairs = [{"en": a, "de": b} for a, b in zip(EN, DE, strict=True)]
    return pa.table({"id": list(range(len(EN))), "translation": pairs, "en": EN})


def write_arrow(pa: Any, table: Any, path: Path, *, is_file: bool = False) -> None:
    kind = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, kind(file, table.schema) as writer:
        writer.write_table(table)


def save(pa: Any, table: Any, folder: Path) -> None:
    """Write a folder as ``datasets`` does, in two files."""
    folder.mkdir()
    names = [f"data-0000{i}-of-00002.arrow" for i in range(2)]
    for name, part in zip(names, (table.slice(0, 1700), table.slice(1700)), strict=True):
        write_arrow(pa, part, folder / name)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def test_columns_are_lines(pa: Any, table: Any, tmp_path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(table.slice(0, 1000), tmp_path / "a-0.parquet", row_group_size=300)
    parquet.write_table(table.slice(1000), tmp_path / "a-1.parquet", compression="zstd")
    write_arrow(pa, table, tmp_path / "stream.arrow")
    write_arrow(pa, table, tmp_path / "file.arrow", is_file=True)
    save(pa, table, tmp_path / "saved")
    for name in ("*.parquet", "stream.arrow", "file.arrow", "saved", "saved/*.arrow"):
        pairs = read_parallel(tmp_path / f"{name}:translation.en", tmp_path / f"{name}:translation.de")
        assert list(pairs) == list(zip(EN, DE, strict=True)), name
        assert count_lines(tmp_path / f"{name}:en") == len(EN)
    before = fingerprint(tmp_path / "saved:en")
    (tmp_path / "saved" / "data-00001-of-00002.arrow").write_bytes((tmp_path / "stream.arrow").read_bytes())
    assert fingerprint(tmp_path / "saved:en") != before


def test_nulls_and_line_breaks_keep_their_rows(pa: Any, tmp_path: Path) -> None:
    from pyarrow import parquet

    columns = {
        "t": pa.array([{"en": "a"}, None, {"en": None}, {"en": "d"}]),
        "few": pa.array(["x", None, "x", "y"]).dictionary_encode(),
        "long": pa.array(["a\nb\r\n", "", None, "c"], pa.large_string()),
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    write_arrow(pa, pa.table(columns), tmp_path / "a.arrow")
    for name in ("a.parquet", "a.arrow"):
        assert list(read_lines(tmp_path / f"{name}:t.en")) == ["a", "", "", "d"]
        assert list(read_lines(tmp_path / f"{name}:few")) == ["x", "", "x", "y"]
        reader = LineReader(tmp_path / f"{name}:long")
        assert list(reader) == ["a b", "", "", "c"] and reader.counts.n_line_breaks == 1


def test_columns_that_are_missing_or_no_text(pa: Any, tmp_path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(pa.table({"t": [{"en": "a"}], "n": [1], "raw": [b"x"]}), tmp_path / "a.parquet")
    cases = {
        "x": ("no column 'x'", "columns: t.en, n, raw"),
        "t.de": ("no column 't.de'", "columns: t.en, n, raw"),
        "n": ("column 'n' is int64, not text", "None"),
        "raw": ("column 'raw' is binary, not text", "None"),
        "t": ("column 't' is struct<en: string>, not text", "columns: t.en"),
    }
    for field, (what, help) in cases.items():
        with pytest.raises(DataError) as caught:
            open_binary(tmp_path / f"a.parquet:{field}")
        assert (caught.value.what, str(caught.value.help)) == (what, help)


def test_damaged_files_are_refused(pa: Any, table: Any, tmp_path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(table, tmp_path / "a.parquet")
    write_arrow(pa, table, tmp_path / "a.arrow")
    for name in ("a.parquet", "a.arrow"):
        raw = (tmp_path / name).read_bytes()
        for content in (
            b"",
            raw[:4],
            raw[: len(raw) // 2],
            raw[:-3],
            b"hello\n" * 99,
            raw[: len(raw) // 2] + b"\xff" * 999,
        ):
            (tmp_path / name).write_bytes(content)
            if name == "a.arrow" and content == raw[:-3]:
                continue  # the last bytes of a stream mark its end, which may be missing
            with pytest.raises(DataError) as caught:
                list(read_lines(tmp_path / f"{name}:en"))
            assert str(tmp_path / name) in str(caught.value.where)


def test_states_of_data_sets(pa: Any, table: Any, tmp_path: Path) -> None:
    save(pa, table, tmp_path / "saved")
    state = tmp_path / "saved" / "state.json"
    good = json.loads(state.read_text())
    with pytest.raises(UsageError, match="is a table of several fields"):
        open_binary(tmp_path / "saved")
    for values, what in (
        ({"_data_files": [{"filename": "../saved/data-00000-of-00002.arrow"}]}, "list of files"),
        ({"_data_files": []}, "list of files"),
        ({"_data_files": 7}, "list of files"),
        ({**good, "_indices_data_files": [{"filename": "x"}]}, "selected by indices"),
    ):
        state.write_text(json.dumps(values))
        with pytest.raises(DataError, match=what):
            open_binary(tmp_path / "saved:en")
    state.write_text('{"a": 1, "a": 2}')
    with pytest.raises(DataError, match="duplicate key"):
        open_binary(tmp_path / "saved:en")
    state.write_text(json.dumps(good))
    part = tmp_path / "saved" / good["_data_files"][0]["filename"]
    part.unlink()
    with pytest.raises(UsageError, match="no such file"):
        open_binary(tmp_path / "saved:en")
    os.mkfifo(part)
    with pytest.raises(DataError, match="not a plain file"):
        open_binary(tmp_path / "saved:en")
    (tmp_path / "all").mkdir()
    (tmp_path / "saved").rename(tmp_path / "all" / "train")
    (tmp_path / "all" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(UsageError, match="has several splits: train, test") as caught:
        open_binary(tmp_path / "all:en")
    assert "/all/train:en" in str(caught.value.help)
