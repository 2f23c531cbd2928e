r"""Tables of labeled texts: a header line, then in each line a label and a text, or two texts, with tabs between.

Knows no tokens. A file with one text and one label per line and no header is ``documents``' business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from attnkit.errors import DataError
from attnkit.text.documents import MAX_LABEL_LENGTH, label_fault
from attnkit.text.lines import is_stream, read_lines

PAIRS = (
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence", "sentence2"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "answer"),
    ("question", "sentence"),
    ("question", "passage"),
    ("question", "context"),
    ("query", "document"),
    ("query", "passage"),
    ("claim", "evidence"),
)
"""Names of columns that hold two texts which belong together, as published tables have them."""
_TEXTS = (
    *("sentence", "review", "document", "comment", "tweet", "content", "body", "message", "utterance", "headline"),
    *("question", "query", "sms"),
)
_LABELS = ("labels", "class", "category", "sentiment", "polarity", "gold", "gold_label", "target", "is_duplicate")
_IDS = (
    *("id", "ids", "idx", "index", "guid", "uid", "uuid", "pairid", "promptid", "qid", "qid1", "qid2", "docid", "no"),
    *("#", "number", "", "unnamed: 0"),  # the last two are pandas' index
)
_ID_ENDINGS = ("_id", "-id", " id", "_idx", "_index")
KINDS = "single texts", "pairs of texts"
"""What a table holds, in words: not pairs, pairs."""
_EXAMPLES = 1000
"""Lines that a header's words are looked for in, where it makes no sense: it may be an example itself."""
_SHOWN = 6  # columns


@dataclass(frozen=True)
class LabeledText:
    """A line of a table."""

    text: str
    text2: str | None
    """None in a table of single texts."""
    label: str | None
    """None where labels are not asked for."""
    line: int
    """Its number in the file, counted from 1."""


@dataclass(frozen=True)
class Columns:
    """Which column holds what, counted from 0."""

    text: int
    text2: int | None
    label: int | None
    names: tuple[str, ...]
    """The header, as in the file."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the one or two columns of texts."""
        return tuple(self.names[i] for i in (self.text, self.text2) if i is not None)

    @property
    def taken(self) -> tuple[str, ...]:
        """Names of the label's column, where there is one, and of the texts'."""
        return (() if self.label is None else (self.names[self.label],)) + self.texts

    def message(self) -> str:
        """Return in words what was taken for what."""
        parts = "text", "text2"
        found = [f"'{_shown(name)}' is the {part}" for name, part in zip(self.texts, parts, strict=False)]
        if self.label is not None:
            found.append(f"'{_shown(self.names[self.label])}' the label")
        used = (self.text, self.text2, self.label)
        unread = [name for i, name in enumerate(self.names) if i not in used]
        return ", ".join(found) + (f"; not read: {_listed(unread)}" if unread else "")


def find_columns(names: Sequence[str], *, labeled: bool = True, taught: Sequence[str] = ()) -> Columns:
    """Return where label, text and text2 stand, by their names in any case, or refuse to guess.

    The texts are the columns of ``taught``, if they are there; else those named ``text`` and ``text2``, beside which
    others are not read; else a pair of ``PAIRS``; else the only column that is neither the label nor, by its name, a
    number of the line. The label is the column of that name; else one that is usually called so; else the only one
    that is left beside the texts. Without ``labeled`` there need be none.

    Args:
        taught: names of the label's column and of those of the texts in the table that a model was trained on.

    Raises:
        ValueError: a name is missing or stands twice, or the names do not say enough; the message says which.

    >>> find_columns(["idx", "sentence", "label"])
    Columns(text=1, text2=None, label=2, names=('idx', 'sentence', 'label'))
    """
    header = _Header(names, taught)
    label, texts = header.label(), header.named_texts()
    left = [i for i in range(len(names)) if i not in (label, *texts) and not _is_id(names[i])]
    if not texts:
        texts = header.other_texts(left, labeled and label is None)
        left = [i for i in left if i not in texts]
    if label is None and labeled:
        if len(left) != 1:
            raise ValueError(_unclear("is the label", names, left) if left else "no column is the label")
        label = left[0]
    for i in (label, *texts):
        if i is not None and len(names[i]) > MAX_LABEL_LENGTH:
            raise ValueError(f"a column's name has {len(names[i]):,} characters")
    return Columns(texts[0], texts[1] if len(texts) == 2 else None, label, tuple(names))


class _Header:
    """The names of a table's columns, in small letters."""

    def __init__(self, names: Sequence[str], taught: Sequence[str]) -> None:
        self.names = [name.lower() for name in names]
        self.taught = [name.lower() for name in taught]

    def place(self, name: str) -> int | None:
        """Return where a name stands. Raises ``ValueError`` where it stands twice."""
        if self.names.count(name) > 1:
            raise ValueError(f"two columns are named '{name}'")
        return self.names.index(name) if name in self.names else None

    def label(self) -> int | None:
        """Return where the label stands by its name."""
        for name in (*self.taught[:1], "label"):
            if (found := self.place(name)) is not None:
                return found
        texts = ("text", "text2", *self.taught[1:])
        known = [i for i, name in enumerate(self.names) if name in _LABELS and name not in texts]
        return known[0] if len(known) == 1 else None

    def named_texts(self) -> list[int]:
        """Return where the texts stand by names that tell."""
        taught = [i for name in self.taught[1:] if (i := self.place(name)) is not None]
        if taught and len(taught) == len(self.taught) - 1:
            return taught
        found = [self.place(name) for name in ("text", "text2")]
        if found[0] is not None:
            return [i for i in found if i is not None]
        pairs = [[self.place(name) for name in pair] for pair in PAIRS if set(pair) <= set(self.names)]
        whole = [[i for i in pair if i is not None] for pair in pairs]
        if len(whole) > 1:
            raise ValueError(_unclear("are the texts", self.names, sorted({i for pair in whole for i in pair})))
        if not whole and found[1] is not None:
            raise ValueError("no column is named 'text'")
        return whole[0] if whole else []

    def other_texts(self, left: Sequence[int], label_too: bool) -> list[int]:
        """Return where the text stands among columns of which one is the label if that is still to be found."""
        usual = [i for i in left if self.names[i] in _TEXTS]
        if label_too and len(left) == 1:
            raise ValueError("no column is the label")
        if label_too and len(left) == 2 and len(usual) == 1:
            return usual
        if not left:
            raise ValueError("no column is left for the text")
        if label_too:
            raise ValueError(_unclear("is the label and which the text", self.names, left))
        if len(left) > 1:
            raise ValueError(_unclear("are texts", self.names, left))
        return list(left)


class LabeledTable:
    """The lines of a table after its header, which is read at once; iterate once.

    Texts may be blank, labels are stripped of white space around them; without ``labeled`` they are not read.

    Raises:
        DataError: the header does not say where the texts are, a line has other columns than the header, a label is
            missing or too long, the header is an example itself, or a byte is not UTF-8.
    """

    def __init__(self, path: Path, *, labeled: bool = True, taught: Sequence[str] = ()) -> None:
        self.path, self._labeled = path, labeled
        self._lines = read_lines(path)
        header = next(self._lines, None)
        if header is None:
            raise DataError("this file is empty", where=str(path), help=_HEADER)
        names = [name.strip() for name in header.split("\t")]
        try:
            self.columns = find_columns(names, labeled=labeled, taught=taught)
        except ValueError as error:
            self._refuse_example(names)
            raise DataError(f"the header is not understood: {error}", where=f"{path}:1", help=_RENAME) from error

    def __iter__(self) -> Iterator[LabeledText]:
        columns, names = self.columns, self.columns.names
        found = columns.label if self._labeled else None
        named = found is None or names[found].lower() == "label"
        for number, line in enumerate(self._lines, 2):
            cells = line.split("\t")
            if len(cells) != len(names):
                raise _ragged(f"{self.path}:{number}", len(cells), len(names))
            label = None if found is None else cells[found].strip()
            if label is not None and (fault := label_fault(label)):
                raise DataError(fault, where=f"{self.path}:{number}", help="give each line a label, in its column")
            if found is not None and not named and label == names[found]:
                raise self._example(label, number)
            text2 = None if columns.text2 is None else cells[columns.text2]
            yield LabeledText(cells[columns.text], text2, label, number)

    def _refuse_example(self, names: Sequence[str]) -> None:
        """Say so where a header that makes no sense has a word that stands further down in its column too.

        Nobody is made to wait for what a stream may bring.
        """
        if is_stream(self.path):
            return
        for number, line in enumerate(islice(self._lines, _EXAMPLES), 2):
            for name, cell in zip(names, line.split("\t"), strict=False):
                if name and cell.strip() == name:
                    raise self._example(name, number)

    def _example(self, cell: str, number: int) -> DataError:
        what = f"the first line looks like an example, not a header: '{_shown(cell)}' also occurs in line {number}"
        return DataError(what, where=f"{self.path}:1", help=_HEADER)


_HEADER = "begin the file with a line that names its columns: label<TAB>text or label<TAB>text<TAB>text2"
_RENAME = "name the columns in the first line: label, text and perhaps text2; columns of other names are not read then"


def _is_id(name: str) -> bool:
    """Return whether a column numbers the lines, by its name."""
    name = name.lower()
    return name in _IDS or name.endswith(_ID_ENDINGS)


def _unclear(what: str, names: Sequence[str], places: Sequence[int]) -> str:
    return f"it is not clear which of {_listed([names[i] for i in places])} {what}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"'{_shown(name)}'" for name in names[:_SHOWN]) + more


def _shown(name: str) -> str:
    return name if len(name) <= 40 else name[:40] + "..."


def _ragged(where: str, n: int, expected: int) -> DataError:
    what = f"this line has {n} column{'s'[: n != 1]}, not {expected} as the header"
    help = "take tabs out of the texts" if n > expected else "put a tab between the columns"
    return DataError(what, where=where, help=help)
