"""Tables of labeled texts: columns by name and by order, and every way a table can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnkit.errors import DataError
from attnkit.text.labeled_text import find_columns, read_labeled_texts


def table(folder: Path, content: str) -> Path:
    path = folder / "t.tsv"
    path.write_bytes(content.encode())
    return path


HEADERS = [
    # (header, text, text2, label)
    ("label text", 1, None, 0),
    ("text label", 0, None, 1),
    ("TEXT Text2 Label", 0, 1, 2),
    ("id text label text2 note", 1, 3, 2),  # others are not read
    ("sentence label", 0, None, 1),
    ("premise hypothesis label", 0, 1, 2),
    ("gold sentence", 1, None, 0),  # by order alone
    ("gold first second", 1, 2, 0),
    ("text class", 0, None, 1),  # the first that is no text
]


@pytest.mark.parametrize(("header", "text", "text2", "label"), HEADERS)
def test_columns_are_found(header: str, text: int, text2: int | None, label: int) -> None:
    columns = find_columns(header.split())
    assert (columns.text, columns.text2, columns.label) == (text, text2, label)


def test_a_table_without_labels_has_columns_of_text() -> None:
    columns = find_columns(["premise", "hypothesis"], labeled=False)
    assert (columns.text, columns.text2, columns.label) == (0, 1, None)
    assert find_columns(["label", "x"], labeled=False).label == 0


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("text", "no column is the label"),
        ("label", "no column is left for the text"),
        ("label a b c", "3 columns beside the label could be the text"),
        ("label text2 other", "no column is named 'text'"),
        ("text text label", "two columns are named 'text'"),
    ],
)
def test_headers_that_say_too_little_are_refused(tmp_path: Path, header: str, said: str) -> None:
    path = table(tmp_path, "\t".join(header.split()) + "\nx\ty\n")
    with pytest.raises(DataError, match=said) as caught:
        list(read_labeled_texts(path))
    assert caught.value.where == f"{path}:1" and caught.value.help


def test_lines_are_read_as_they_stand(tmp_path: Path) -> None:
    path = table(tmp_path, 'text\tlabel\tid\n"a" | b \t pos \t1\r\n\tneg\t2\n')
    first, second = read_labeled_texts(path)
    assert (first.text, first.text2, first.label, first.line) == ('"a" | b ', None, "pos", 2)
    assert (second.text, second.label, second.line) == ("", "neg", 3)


def test_pairs_are_read(tmp_path: Path) -> None:
    (only,) = read_labeled_texts(table(tmp_path, "label\ttext\ttext2\nyes\tOne.\tTwo.\n"))
    assert (only.label, only.text, only.text2) == ("yes", "One.", "Two.")


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ("label\ttext\npos\ta\nneg\n", 3, "this line has 1 column, not 2"),
        ("label\ttext\npos\ta\tb\n", 2, "this line has 3 columns, not 2"),
        ("label\ttext\n \ta\n", 2, "the label is missing"),
        (f"label\ttext\n{'x' * 201}\ta\n", 2, "this label has 201 characters"),
        ("pos\tgood\nneg\tbad\npos\tfine\n", 1, "not a header: 'pos' is also the label of line 3"),
        ("label\ttext\npos\ta\n\n", 3, "this line has 1 column"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, content: str, line: int, said: str) -> None:
    path = table(tmp_path, content)
    with pytest.raises(DataError, match=said) as caught:
        list(read_labeled_texts(path))
    assert caught.value.where == f"{path}:{line}" and caught.value.help


def test_an_empty_file_is_refused_and_a_header_alone_is_not(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="empty"):
        list(read_labeled_texts(table(tmp_path, "")))
    assert list(read_labeled_texts(table(tmp_path, "label\ttext\n"))) == []


def test_a_class_may_be_called_label(tmp_path: Path) -> None:
    (only,) = read_labeled_texts(table(tmp_path, "label\ttext\nlabel\tx\n"))
    assert only.label == "label"
