"""Readers of documents, labeled documents and tables of labeled texts.

A table has a header line; each further line has a label and one or two texts, separated by tabs.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from attnkit.errors import DataError
from attnkit.text.files import is_stream
from attnkit.text.lines import read_lines
from attnkit.text.table_rows import is_table, read_rows

DocumentFormat = Literal["lines", "blocks"]
MAX_DOCUMENT_LENGTH = 1 << 20  #: maximum length of a block in characters; longer blocks are split to bound memory
_N_SAMPLED = 10_000  # lines read to detect the format
_MAX_LINES_PER_BLANK = 200  #: if blank lines are rarer than one per this many lines, they are ignored as accidental


def detect_document_format(path: Path) -> DocumentFormat:
    """Guess a file's format from its first lines: blocks if blank lines separate them."""
    n_lines = n_borders = 0
    blank_before = False
    for line in islice(read_lines(path), _N_SAMPLED):
        blank = not line or line.isspace()
        n_borders += blank_before and not blank and n_lines > 0
        n_lines, blank_before = n_lines + (not blank), blank
    return "blocks" if n_borders and n_borders * _MAX_LINES_PER_BLANK >= n_lines else "lines"


def read_documents(path: Path, format: DocumentFormat | Literal["auto"]) -> Iterator[str]:
    """Yield the non-blank documents of a file; lines of a block are joined by spaces."""
    if format == "auto":
        format = detect_document_format(path)
    lines = read_lines(path)
    return join_blocks(lines) if format == "blocks" else (line for line in lines if line and not line.isspace())


def join_blocks(lines: Iterable[str]) -> Iterator[str]:
    """Yield each block of consecutive non-blank lines, joined by spaces.

    >>> list(join_blocks(["", "It rained.", "Nobody came.", " ", "The end."]))
    ['It rained. Nobody came.', 'The end.']
    """
    block: list[str] = []
    size = 0
    for line in lines:
        blank = not line or line.isspace()
        if block and (blank or size + len(line) > MAX_DOCUMENT_LENGTH):
            yield " ".join(block)
            block, size = [], 0
        if not blank:
            block.append(line.strip())
            size += len(line) + 1
    if block:
        yield " ".join(block)


SEPARATOR = "|||"
MAX_LABEL_LENGTH = 200  #: maximum length of a label in characters
_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*")
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def split_sentences(document: str) -> list[str]:
    """Split a document into non-blank sentences, at ``|||`` if it occurs.

    >>> split_sentences("It rained. Nobody came!")
    ['It rained.', 'Nobody came!']
    >>> split_sentences("no. 1 ||| no. 2")
    ['no. 1', 'no. 2']
    """
    parts = document.split(SEPARATOR) if SEPARATOR in document else _END.split(document)
    return [part.strip() for part in parts if part.strip()]


def space_words(sentence: str) -> str:
    """Put spaces between words and punctuation marks, as word vocabularies require.

    >>> space_words("Don't go, well-known friend!")
    "Don't go , well-known friend !"
    """
    return " ".join(_WORD.findall(sentence))


def read_labeled(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the (document, label) of each line; raise ``DataError`` for invalid lines."""
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        label = columns[-1].strip()
        if len(columns) != 2:
            what = f"this line has {_n_columns(columns)}, expected two: document, tab, label"
            more = len(columns) > 2
            help = "remove tabs from the documents" if more else "add a tab and the label after the document"
            raise DataError(what, where=f"{path}:{number}", help=help)
        if fault := label_fault(label):
            raise DataError(fault, where=f"{path}:{number}", help="expected on each line: document, tab, label")
        yield columns[0], label


def label_fault(label: str) -> str | None:
    """Return why a label is invalid, or None if it is valid."""
    if not label:
        return "the label is missing"
    if len(label) > MAX_LABEL_LENGTH:
        return f"this label has {len(label):,} characters, more than {MAX_LABEL_LENGTH}"
    return "this label contains a carriage return" if "\r" in label else None


def _n_columns(columns: Sequence[str]) -> str:
    return f"{len(columns)} column{'s'[: len(columns) != 1]}"


PAIRS = (
    *(("text1", "text2"), ("text_a", "text_b"), ("sentence", "sentence2"), ("sentence1", "sentence2")),
    *(("sentence_a", "sentence_b"), ("question1", "question2"), ("premise", "hypothesis"), ("question", "answer")),
    *(("question", "sentence"), ("question", "passage"), ("question", "context"), ("query", "document")),
    *(("query", "passage"), ("claim", "evidence")),
)
"""Names of the two text columns in published data sets of text pairs."""
_TEXTS = (
    *("sentence", "review", "document", "comment", "tweet", "content", "body", "message", "utterance", "headline"),
    *("question", "query", "sms"),
)
_LABELS = ("labels", "class", "category", "sentiment", "polarity", "gold", "gold_label", "target", "is_duplicate")
_IDS = (
    *("id", "ids", "idx", "index", "guid", "uid", "uuid", "pairid", "promptid", "qid", "qid1", "qid2", "docid", "no"),
    *("#", "number", "", "unnamed: 0"),  # the last two name the index column of pandas
)
_ID_ENDINGS = ("_id", "-id", " id", "_idx", "_index")
KINDS = "single texts", "pairs of texts"  #: contents of a table without and with a second text column
_N_EXAMPLES = 1000  #: lines searched for the names in an invalid header, which may itself be an example
_N_SHOWN = 6  # column names listed in a message


@dataclass(frozen=True)
class LabeledText:
    """One row of a table of labeled texts."""

    text: str
    text2: str | None  #: None in a table of single texts
    label: str | None  #: None if labels are not read
    line: int  #: line number in the file, counted from 1


@dataclass(frozen=True)
class Columns:
    """Column indices, from 0, of the texts and the label."""

    text: int
    text2: int | None
    label: int | None
    names: tuple[str, ...]  #: the header, as in the file

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the one or two text columns."""
        return tuple(self.names[i] for i in (self.text, self.text2) if i is not None)

    @property
    def taken(self) -> tuple[str, ...]:
        """Names of the label column, if any, and of the text columns."""
        return (() if self.label is None else (self.names[self.label],)) + self.texts

    def message(self) -> str:
        """Return a message that lists the chosen and the ignored columns."""
        parts = [f"'{_shown(name)}' is the {part}" for name, part in zip(self.texts, ("text", "text2"), strict=False)]
        if self.label is not None:
            parts.append(f"'{_shown(self.names[self.label])}' the label")
        used = (self.text, self.text2, self.label)
        unread = [name for i, name in enumerate(self.names) if i not in used]
        return ", ".join(parts) + (f"; ignored: {_listed(unread)}" if unread else "")


def find_columns(names: Sequence[str], *, labeled: bool = True, trained: Sequence[str] = ()) -> Columns:
    """Find the label and text columns by their names, ignoring case.

    The texts are the columns of ``trained``, if present; else ``text`` and, if present, ``text2``, ignoring other
    columns; else a pair of ``PAIRS``; else the only column that is neither the label nor, by its name, an id. The
    label is the column of ``trained`` or ``label``; else the only column with a usual name; else the only other column.
    Without ``labeled``, the label is optional.

    ``trained`` lists the label column and the text columns of the table that a model was trained on.
    Raises ``ValueError`` if a column is missing, a name occurs twice or the names are ambiguous.

    >>> find_columns(["idx", "sentence", "label"])
    Columns(text=1, text2=None, label=2, names=('idx', 'sentence', 'label'))
    """
    lower, known = [name.lower() for name in names], [name.lower() for name in trained]
    label = next((i for name in (*known[:1], "label") if (i := _find(lower, name)) is not None), None)
    if label is None:
        usual = [i for i, name in enumerate(lower) if name in _LABELS and name not in ("text", "text2", *known[1:])]
        label = usual[0] if len(usual) == 1 else None
    texts = _find_texts(lower, known[1:])
    ids = {i for i, name in enumerate(lower) if name in _IDS or name.endswith(_ID_ENDINGS)}
    left = [i for i in range(len(names)) if i not in (label, *texts) and i not in ids]
    if not texts:
        no_label = labeled and label is None
        usual = [i for i in left if lower[i] in _TEXTS]
        if no_label and len(left) == 1:
            raise ValueError("no label column")
        if not left:
            raise ValueError("no text column left")
        if no_label and (len(left) != 2 or len(usual) != 1):
            raise ValueError(_unclear("is the label and which the text", lower, left))
        if not no_label and len(left) > 1:
            raise ValueError(_unclear("are texts", lower, left))
        texts = usual if no_label else left
        left = [i for i in left if i not in texts]
    if label is None and labeled:
        if len(left) != 1:
            raise ValueError(_unclear("is the label", names, left) if left else "no label column")
        label = left[0]
    for i in (label, *texts):
        if i is not None and len(names[i]) > MAX_LABEL_LENGTH:
            raise ValueError(f"a column's name has {len(names[i]):,} characters, which is too many")
    return Columns(texts[0], texts[1] if len(texts) == 2 else None, label, tuple(names))


def _find(names: Sequence[str], name: str) -> int | None:
    if names.count(name) > 1:
        raise ValueError(f"two columns are named '{name}'")
    return names.index(name) if name in names else None


def _find_texts(names: Sequence[str], trained: Sequence[str]) -> list[int]:
    """Return the text columns with known lower-cased names, or an empty list."""
    known = [i for name in trained if (i := _find(names, name)) is not None]
    if known and len(known) == len(trained):
        return known
    text, text2 = _find(names, "text"), _find(names, "text2")
    if text is not None:
        return [text] if text2 is None else [text, text2]
    pairs = [[i for name in pair if (i := _find(names, name)) is not None] for pair in PAIRS if set(pair) <= set(names)]
    if len(pairs) > 1:
        raise ValueError(_unclear("are the texts", names, sorted({i for pair in pairs for i in pair})))
    if not pairs and text2 is not None:
        raise ValueError("no column is named 'text'")
    return pairs[0] if pairs else []


class LabeledTable:
    """Rows of a table of labeled texts; can be iterated only once.

    The constructor reads the header. Texts may be blank; labels are stripped, and ignored without ``labeled``.

    Raises ``DataError`` if the header does not identify the columns or is itself an example, if a line has another
    number of columns than the header, or if a label is invalid.
    """

    def __init__(self, path: Path, *, labeled: bool = True, trained: Sequence[str] = ()) -> None:
        self.path, self._labeled = path, labeled
        self._has_header = not is_table(path)  # rather than names that cannot be an example
        self._rows = read_rows(path)
        first = next(self._rows, None)
        if first is None:
            raise DataError("this file is empty", where=str(path), help=_HEADER)
        names = [name.strip() for name in first[1]]
        try:
            self.columns = find_columns(names, labeled=labeled, trained=trained)
        except ValueError as error:
            # A header cell that recurs in its column suggests that the header is itself an example. Streams are not
            # searched, since their lines may never arrive.
            searched = self._has_header and not is_stream(path)
            for number, cells in islice(self._rows, _N_EXAMPLES) if searched else ():
                for name, cell in zip(names, cells, strict=False):
                    if name and cell.strip() == name:
                        raise self._example(name, number) from None
            commas = self._has_header and len(names) == 1 and "," in names[0]
            help = "separate the columns by tabs instead of commas" if commas else _RENAME
            raise DataError(f"invalid header: {error}", where=f"{path}:1", help=help) from error

    def __iter__(self) -> Iterator[LabeledText]:
        columns, names = self.columns, self.columns.names
        label_column = columns.label if self._labeled else None
        named = label_column is None or names[label_column].lower() == "label"
        for number, cells in self._rows:
            where, label = f"{self.path}:{number}", None
            if len(cells) != len(names):
                what = f"this line has {_n_columns(cells)}, but the header has {len(names)}"
                help = "remove tabs from the texts" if len(cells) > len(names) else "separate columns by tabs"
                raise DataError(what, where=where, help=help)
            if label_column is not None:
                label = cells[label_column].strip()
                if fault := label_fault(label):
                    raise DataError(fault, where=where, help="add a label to each line")
                if not named and self._has_header and label == names[label_column]:
                    raise self._example(label, number)
            text2 = None if columns.text2 is None else cells[columns.text2]
            yield LabeledText(cells[columns.text], text2, label, number)

    def _example(self, cell: str, number: int) -> DataError:
        what = f"the first line looks like an example, not a header: '{_shown(cell)}' also occurs in line {number}"
        return DataError(what, where=f"{self.path}:1", help=_HEADER)


_HEADER = "begin the file with a line that names its columns: label<TAB>text or label<TAB>text<TAB>text2"
_RENAME = "name the columns in the first line: label, text and perhaps text2; other columns are ignored"


def _unclear(what: str, names: Sequence[str], columns: Sequence[int]) -> str:
    return f"it is not clear which of {_listed([names[i] for i in columns])} {what}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _N_SHOWN} more" if len(names) > _N_SHOWN else ""
    return ", ".join(f"'{_shown(name)}'" for name in names[:_N_SHOWN]) + more


def _shown(name: str) -> str:
    return name if len(name) <= 40 else name[:40] + "..."
