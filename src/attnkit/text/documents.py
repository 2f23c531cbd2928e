"""Documents and labeled texts: lines or blocks of lines, their sentences and words, labels, tables of labeled texts.

A table has a header, then per line a label and one or two texts, separated by tabs.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from attnkit.errors import DataError
from attnkit.text.lines import is_stream, read_lines

DocumentFormat = Literal["lines", "blocks"]
MAX_DOCUMENT_LENGTH = 1 << 20  #: maximum characters of a block; a longer one is split, to bound memory
_N_SAMPLED = 10_000  # lines
_MAX_LINES_PER_BLANK = 200  #: blank lines rarer than one in so many separate nothing: they were left in by accident


def detect_document_format(path: Path) -> DocumentFormat:
    """Return the format that the first lines of a file suggest: blocks if blank lines separate the others."""
    n_lines = n_borders = 0
    blank_before = False
    for line in islice(read_lines(path), _N_SAMPLED):
        blank = not line or line.isspace()
        n_borders += blank_before and not blank and n_lines > 0
        n_lines, blank_before = n_lines + (not blank), blank
    return "blocks" if n_borders and n_borders * _MAX_LINES_PER_BLANK >= n_lines else "lines"


def read_documents(path: Path, format: DocumentFormat | Literal["auto"]) -> Iterator[str]:
    """Yield the documents of a file that are not blank, the lines of each joined by spaces."""
    if format == "auto":
        format = detect_document_format(path)
    lines = read_lines(path)
    return join_blocks(lines) if format == "blocks" else (line for line in lines if line and not line.isspace())


def join_blocks(lines: Iterable[str]) -> Iterator[str]:
    """Yield the blocks of lines between blank ones.

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
MAX_LABEL_LENGTH = 200  #: characters of a label
_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*")
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def split_sentences(document: str) -> list[str]:
    """Return the sentences of a document, without blank ones.

    >>> split_sentences("It rained. Nobody came!")
    ['It rained.', 'Nobody came!']
    >>> split_sentences("no. 1 ||| no. 2")
    ['no. 1', 'no. 2']
    """
    parts = document.split(SEPARATOR) if SEPARATOR in document else _END.split(document)
    return [part.strip() for part in parts if part.strip()]


def space_words(sentence: str) -> str:
    """Return a sentence with a space between words and punctuation marks, as a vocabulary of whole words needs it.

    >>> space_words("Don't go, well-known friend!")
    "Don't go , well-known friend !"
    """
    return " ".join(_WORD.findall(sentence))


def read_labeled(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the documents, maybe blank, and labels of a file. Raises ``DataError`` for other lines than these."""
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        label = columns[-1].strip()
        if len(columns) != 2:
            what = f"this line has {_n_columns(columns)}, expected two: document, tab, label"
            more = len(columns) > 2
            help = "remove tabs from the documents" if more else "add a tab and the label after the document"
            raise DataError(what, where=f"{path}:{number}", help=help)
        if fault := label_fault(label):
            raise DataError(fault, where=f"{path}:{number}", help="expected per line: document, tab, label")
        yield columns[0], label


def label_fault(label: str) -> str | None:
    """Return the reason why a label is invalid, None if it is not."""
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
"""Column names of text pairs in published tables."""
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
KINDS = "single texts", "pairs of texts"  #: names of the contents of a table, without and with pairs
_N_EXAMPLES = 1000  #: lines searched for the words of a header that makes no sense: it may be an example itself
_N_SHOWN = 6  # columns


@dataclass(frozen=True)
class LabeledText:
    """A line of a table."""

    text: str
    text2: str | None  #: None in a table of single texts
    label: str | None  #: None if no labels are read
    line: int  #: its number in the file, counted from 1


@dataclass(frozen=True)
class Columns:
    """Which column holds what, counted from 0."""

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
        """Return a sentence that says which columns were chosen."""
        parts = [f"'{_shown(name)}' is the {part}" for name, part in zip(self.texts, ("text", "text2"), strict=False)]
        if self.label is not None:
            parts.append(f"'{_shown(self.names[self.label])}' the label")
        used = (self.text, self.text2, self.label)
        unread = [name for i, name in enumerate(self.names) if i not in used]
        return ", ".join(parts) + (f"; ignored: {_listed(unread)}" if unread else "")


def find_columns(names: Sequence[str], *, labeled: bool = True, trained: Sequence[str] = ()) -> Columns:
    """Return which columns are label, text and text2 by their names in any case; never guess.

    The texts are the columns of ``trained``, if present; else those named ``text`` and ``text2``, beside which
    others are not read; else a pair of ``PAIRS``; else the only column that is neither the label nor, by its name, a
    number of the line. The label is the column of that name; else one with a usual name; else the only one left beside
    the texts. Without ``labeled`` there need be none.

    ``trained`` are the names of the label column and of the text columns in the table that a model was trained on.
    Raises ``ValueError`` if a name is missing or occurs twice, or the names do not say enough.

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
            raise ValueError(f"a column's name has {len(names[i]):,} characters")
    return Columns(texts[0], texts[1] if len(texts) == 2 else None, label, tuple(names))


def _find(names: Sequence[str], name: str) -> int | None:
    if names.count(name) > 1:
        raise ValueError(f"two columns are named '{name}'")
    return names.index(name) if name in names else None


def _find_texts(names: Sequence[str], trained: Sequence[str]) -> list[int]:
    """Return the text columns with known names, in lower case; none if there are no such."""
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
    """The lines of a table after its header, which the constructor reads; iterate once.

    Texts may be blank, labels are stripped of white space; without ``labeled`` they are not read.

    Raises ``DataError`` if the header does not name the texts or is an example itself, a line has other columns than
    the header, or a label is missing or too long.
    """

    def __init__(self, path: Path, *, labeled: bool = True, trained: Sequence[str] = ()) -> None:
        self.path, self._labeled = path, labeled
        self._lines = read_lines(path)
        header = next(self._lines, None)
        if header is None:
            raise DataError("this file is empty", where=str(path), help=_HEADER)
        names = [name.strip() for name in header.split("\t")]
        try:
            self.columns = find_columns(names, labeled=labeled, trained=trained)
        except ValueError as error:
            # A word of the header that occurs again in its column: the header is an example itself. Lines of a stream
            # may never come.
            for number, line in enumerate(() if is_stream(path) else islice(self._lines, _N_EXAMPLES), 2):
                for name, cell in zip(names, line.split("\t"), strict=False):
                    if name and cell.strip() == name:
                        raise self._example(name, number) from None
            raise DataError(f"invalid header: {error}", where=f"{path}:1", help=_RENAME) from error

    def __iter__(self) -> Iterator[LabeledText]:
        columns, names = self.columns, self.columns.names
        label_column = columns.label if self._labeled else None
        named = label_column is None or names[label_column].lower() == "label"
        for number, line in enumerate(self._lines, 2):
            cells, where, label = line.split("\t"), f"{self.path}:{number}", None
            if len(cells) != len(names):
                what = f"this line has {_n_columns(cells)}, not {len(names)} like the header"
                help = "remove tabs from the texts" if len(cells) > len(names) else "separate columns by tabs"
                raise DataError(what, where=where, help=help)
            if label_column is not None:
                label = cells[label_column].strip()
                if fault := label_fault(label):
                    raise DataError(fault, where=where, help="add a label to each line")
                if not named and label == names[label_column]:
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
