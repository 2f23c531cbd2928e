"""Tables of labeled texts in CSV, JSONL, Parquet and folders: the same examples as from lines with tabs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from attnkit.errors import DataError, UsageError
from attnkit.text.documents import LabeledTable
from attnkit.text.table_rows import count_rows

ROWS = [("good", 'fine, "really"', 1), ("bad", "no", 0), ("label", "né \U0001f600", 2)]


def write(path: Path, rows: list[tuple[str, str, int]] = ROWS) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([("label", "text", "stars"), *rows])
    elif path.suffix == ".tsv":
        path.write_text("label\ttext\tstars\n" + "".join(f"{a}\t{b}\t{c}\n" for a, b, c in rows))
    else:
        path.write_text("".join(json.dumps({"label": a, "text": b, "stars": c}) + "\n" for a, b, c in rows))
    return path


def examples(path: Path, **options: Any) -> list[tuple[str | None, str]]:
    return [(one.label, one.text) for one in LabeledTable(path, **options)]


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_formats_give_the_same_examples(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}")
    assert examples(path) == [(a, b) for a, b, _ in ROWS]
    assert examples(path, trained=["stars", "text"]) == [(str(c), b) for _, b, c in ROWS]
    assert count_rows(path) == len(ROWS) + 1
    shards = tmp_path / "shards"
    shards.mkdir()
    for number, row in enumerate(ROWS):
        write(shards / f"{number}{suffix}", [row])
    for source in (shards, shards / f"*{suffix}"):
        assert examples(source) == [(a, b) for a, b, _ in ROWS]


def test_tabs_and_line_breaks_in_cells_become_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [("good", "a\tb\r\nc\n", 1)])
    assert examples(path) == [("good", "a b c ")]


def test_a_field_of_such_a_table_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    with pytest.raises(UsageError, match="read whole, without the field 'text'"):
        examples(Path(f"{path}:text"))


def test_shards_with_other_columns_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv")
    (tmp_path / "b.tsv").write_text("text\tlabel\nx\ty\n")
    with pytest.raises(DataError, match=r"the columns are not those of .*a\.tsv") as caught:
        examples(tmp_path / "*.tsv")
    assert caught.value.where == str(tmp_path / "b.tsv")


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ('{"label": "a", "text": "b"}\n{"label": "a"}\n', 2, "no field 'text'"),
        ('{"label": "a", "text": "b"}\n{"label": "a", "text": ["b"]}\n', 2, "neither text nor a number"),
        ('{"label": "a", "text": "b"}\n{"label": null, "text": "b"}\n', 2, "the label is missing"),
        ('{"label": "a", "text": "\\ud800"}\n', 1, "half of a surrogate pair"),
        ("[]\n", 1, "not a JSON object"),
        ('{"x": "a"}\n', 1, "invalid header"),
    ],
)
def test_faults_of_rows_are_named(tmp_path: Path, content: str, line: int, what: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=what) as caught:
        examples(path)
    assert caught.value.where == f"{path}:{line}"


def test_numbers_of_class_labels_become_names(tmp_path: Path) -> None:
    pa: Any = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    features = {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}, "text": {"_type": "Value"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({"label": [1, 0, None], "text": ["a", "b\nc", "d"], "tokens": [["x"], [], []]})
    table = table.replace_schema_metadata(metadata)
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="the label is missing"):
        examples(tmp_path / "a.parquet")
    folder = tmp_path / "saved"
    folder.mkdir()
    with pa.OSFile(str(folder / "data-0.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table.slice(0, 2))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-0.arrow"}]}))
    assert examples(folder) == [("good", "a"), ("bad", "b c")]
