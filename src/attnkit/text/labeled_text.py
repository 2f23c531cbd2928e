r"""Tables of labeled texts: a header line, then in each line a label and a text, or two texts, with tabs between.

Knows no tokens. A file with one text and one label a line and no header is ``documents``' business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnkit.errors import DataError
from attnkit.text.documents import label_fault
from attnkit.text.lines import read_lines


@dataclass(frozen=True)
class LabeledText:
    """A line of a table."""

    text: str
    text2: str | None
    """None in a table of single texts."""
    label: str | None
    """None in a table without labels."""
    line: int
    """Its number in the file, counted from 1."""


@dataclass(frozen=True)
class Columns:
    """Which column holds what, counted from 0."""

    text: int
    text2: int | None
    label: int | None
    names: tuple[str, ...]
    """The header, as it stands in the file."""


def find_columns(names: Sequence[str], *, labeled: bool = True) -> Columns:
    """Return where label, text and text2 stand, by their names in any case, else by their order.

    The label is the column of that name, else the first one; without ``labeled`` a column of that name or none. The
    texts are the columns named ``text`` and ``text2``, beside which others are not read; if none is named ``text``,
    they are the one or two columns that are left.

    >>> find_columns(["sentence", "label"])
    Columns(text=0, text2=None, label=1, names=('sentence', 'label'))

    Raises:
        ValueError: a name is missing or stands twice; the message says which.
    """
    label, text, text2 = (_place(names, name) for name in ("label", "text", "text2"))
    if label is None and labeled:
        label = next((i for i in range(len(names)) if i not in (text, text2)), None)
        if label is None:
            raise ValueError("no column is the label")
    left = [i for i in range(len(names)) if i != label]
    if text is not None:
        return Columns(text, text2, label, tuple(names))
    if text2 is not None or not left:
        raise ValueError("no column is named 'text'" if left else "no column is left for the text")
    if len(left) > 2:
        raise ValueError(f"{len(left)} columns beside the label could be the text")
    return Columns(left[0], left[1] if len(left) == 2 else None, label, tuple(names))


def read_labeled_texts(path: Path, *, labeled: bool = True) -> Iterator[LabeledText]:
    """Yield the lines of a table after its header; texts may be blank, labels are stripped of white space around them.

    Without ``labeled`` the table may lack labels: then those of ``LabeledText`` are None.

    Raises:
        DataError: the header does not say where the texts are, a line has other columns than the header, a label is
            missing or too long, the header is an example itself, or a byte is no UTF-8.
    """
    lines = read_lines(path)
    header = next(lines, None)
    if header is None:
        raise DataError("this file is empty", where=str(path), help=_HEADER)
    try:
        columns = find_columns([name.strip() for name in header.split("\t")], labeled=labeled)
    except ValueError as error:
        raise DataError(f"the header is not understood: {error}", where=f"{path}:1", help=_HEADER) from error
    by_order = columns.label is not None and columns.names[columns.label].lower() != "label"
    for number, line in enumerate(lines, 2):
        cells = line.split("\t")
        if len(cells) != len(columns.names):
            raise _ragged(f"{path}:{number}", len(cells), len(columns.names))
        label = None if columns.label is None else cells[columns.label].strip()
        if label is not None and (fault := label_fault(label)):
            raise DataError(fault, where=f"{path}:{number}", help="give each line a label, in the label's column")
        if by_order and columns.label is not None and label == columns.names[columns.label]:
            what = f"the first line looks like an example, not a header: '{label}' is also the label of line {number}"
            raise DataError(what, where=f"{path}:1", help=_HEADER)
        text2 = None if columns.text2 is None else cells[columns.text2]
        yield LabeledText(cells[columns.text], text2, label, number)


_HEADER = "begin the file with a line that names its columns: label<TAB>text or label<TAB>text<TAB>text2"


def _place(names: Sequence[str], name: str) -> int | None:
    found = [i for i, given in enumerate(names) if given.lower() == name]
    if len(found) > 1:
        raise ValueError(f"two columns are named '{name}'")
    return found[0] if found else None


def _ragged(where: str, n: int, expected: int) -> DataError:
    what = f"this line has {n} column{'s'[: n != 1]}, not {expected} as the header"
    help = "take tabs out of the texts" if n > expected else "put a tab between the columns"
    return DataError(what, where=where, help=help)
