"""Tables of labeled texts: columns by name and by order, and every way a table can be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attnkit.errors import DataError
from attnkit.text.documents import LabeledTable, find_columns


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
    ("gold sentence", 1, None, 0),
    ("text verdict", 0, None, 1),  # the only one that is left
    ("text class", 0, None, 1),
    ("idx sentence label", 1, None, 2),  # numbers of lines are no texts
    ("sentence label idx", 0, None, 1),
    ("guid text_a text_b label", 1, 2, 3),
    ("pairID Premise Hypothesis genre gold_label", 1, 2, 4),
    ("id qid1 qid2 question1 question2 is_duplicate", 3, 4, 5),
    ("index question sentence label", 1, 2, 3),
    ("review sentiment", 0, None, 1),
    ("sentiment review", 1, None, 0),
    ("review verdict", 0, None, 1),
    ("review_id verdict comment", 2, None, 1),
]


@pytest.mark.parametrize(("header", "text", "text2", "label"), HEADERS)
def test_columns_are_found(header: str, text: int, text2: int | None, label: int) -> None:
    columns = find_columns(header.split())
    assert (columns.text, columns.text2, columns.label) == (text, text2, label)


def test_a_table_without_labels_has_columns_of_text() -> None:
    columns = find_columns(["premise", "hypothesis"], labeled=False)
    assert (columns.text, columns.text2, columns.label) == (0, 1, None)
    assert find_columns(["label", "x"], labeled=False).label == 0
    columns = find_columns(["sentiment", "review"], labeled=False)
    assert (columns.text, columns.text2, columns.label) == (1, None, 0), "what is right is not text"


def test_a_table_without_names_for_its_index_has_one_all_the_same() -> None:
    columns = find_columns(["", "sentence", "label"])
    assert (columns.text, columns.text2, columns.label) == (1, None, 2)


TRAINED = [
    # (header, columns that were trained on, labeled, text, text2, label)
    ("verdict remark", "verdict remark", False, 1, None, 0),
    ("remark verdict", "verdict remark", True, 0, None, 1),
    ("n remark note", "verdict remark", False, 1, None, None),  # others are not read
    ("text Verdict REMARK", "verdict remark", True, 2, None, 1),
    ("b a", "which a b", False, 1, 0, None),
    ("a question answer", "which a b", False, 1, 2, None),  # not all of them: as if nothing were known
    ("text label", "which a b", True, 0, None, 1),
]


@pytest.mark.parametrize(("header", "trained", "labeled", "text", "text2", "label"), TRAINED)
def test_names_that_were_trained_on_are_known(
    header: str, trained: str, labeled: bool, text: int, text2: int | None, label: int | None
) -> None:
    columns = find_columns(header.split(), labeled=labeled, trained=trained.split())
    assert (columns.text, columns.text2, columns.label) == (text, text2, label)


def test_what_is_taken_for_what_is_told() -> None:
    columns = find_columns(["idx", "premise", "hypothesis", "label"])
    assert columns.message() == "'premise' is the text, 'hypothesis' is the text2, 'label' the label; ignored: 'idx'"
    assert columns.taken == ("label", "premise", "hypothesis")
    assert find_columns(["text"], labeled=False).message() == "'text' is the text"


@pytest.mark.parametrize("header", ["sentiment verdict", "remark verdict", "sentence verdict", "sentence text2"])
def test_nothing_is_guessed_where_nobody_says_what_is_right(tmp_path: Path, header: str) -> None:
    """Two columns may be two texts, or a text and what is right."""
    path = table(tmp_path, "\t".join(header.split()) + "\nx\ty\n")
    if header == "sentiment verdict":
        assert [line.text for line in LabeledTable(path, labeled=False)] == ["y"]
        return
    with pytest.raises(DataError, match=r"not clear which of|no column is named 'text'") as caught:
        list(LabeledTable(path, labeled=False))
    assert caught.value.where == f"{path}:1" and "text2" in str(caught.value.help)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("text", "no label column"),
        ("label", "no text column left"),
        ("label a b c", "it is not clear which of 'a', 'b', 'c' are texts"),
        ("label idx", "no text column left"),
        ("idx sentence", "no label column"),
        ("premise hypothesis", "no label column"),
        ("a b", "not clear which of 'a', 'b' is the label and which the text"),
        ("gold first second", "not clear which of 'first', 'second' are texts"),
        ("gold class text", "not clear which of 'gold', 'class' is the label"),
        ("question answer sentence label", "not clear which of 'question', 'answer', 'sentence' are the texts"),
        ("premise premise hypothesis label", "two columns are named 'premise'"),
        (f"text {'y' * 201}", "a column's name has 201 characters"),
        ("label text2 other", "no column is named 'text'"),
        ("text text label", "two columns are named 'text'"),
    ],
)
def test_headers_that_say_too_little_are_refused(tmp_path: Path, header: str, said: str) -> None:
    path = table(tmp_path, "\t".join(header.split()) + "\nx\ty\n")
    with pytest.raises(DataError, match=said) as caught:
        list(LabeledTable(path))
    assert caught.value.where == f"{path}:1" and caught.value.help


def test_lines_are_read_as_they_stand(tmp_path: Path) -> None:
    path = table(tmp_path, 'text\tlabel\tid\n"a" | b \t pos \t1\r\n\tneg\t2\n')
    first, second = LabeledTable(path)
    assert (first.text, first.text2, first.label, first.line) == ('"a" | b ', None, "pos", 2)
    assert (second.text, second.label, second.line) == ("", "neg", 3)


def test_pairs_are_read(tmp_path: Path) -> None:
    (only,) = LabeledTable(table(tmp_path, "label\ttext\ttext2\nyes\tOne.\tTwo.\n"))
    assert (only.label, only.text, only.text2) == ("yes", "One.", "Two.")


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ("label\ttext\npos\ta\nneg\n", 3, "this line has 1 column, but the header has 2"),
        ("label\ttext\npos\ta\tb\n", 2, "this line has 3 columns, but the header has 2"),
        ("label\ttext\n \ta\n", 2, "the label is missing"),
        (f"label\ttext\n{'x' * 201}\ta\n", 2, "this label has 201 characters"),
        ("pos\tgood\nneg\tbad\npos\tfine\n", 1, "not a header: 'pos' also occurs in line 3"),
        ("sentence\tgood\na\tbad\nb\tgood\n", 1, "not a header: 'good' also occurs in line 3"),
        ("label\ttext\npos\ta\n\n", 3, "this line has 1 column"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, content: str, line: int, said: str) -> None:
    path = table(tmp_path, content)
    with pytest.raises(DataError, match=said) as caught:
        list(LabeledTable(path))
    assert caught.value.where == f"{path}:{line}" and caught.value.help


def test_a_header_that_comes_from_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """Without a look at lines that may never come."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    try:
        os.write(end, b"pos\tgood\n")
        with pytest.raises(DataError, match="invalid header"):
            list(LabeledTable(path))
    finally:
        os.close(end)


def test_an_empty_file_is_refused_and_a_header_alone_is_not(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="empty"):
        list(LabeledTable(table(tmp_path, "")))
    assert list(LabeledTable(table(tmp_path, "label\ttext\n"))) == []


def test_a_class_may_be_called_label(tmp_path: Path) -> None:
    (only,) = LabeledTable(table(tmp_path, "label\ttext\nlabel\tx\n"))
    assert only.label == "label"
