r"""Documents in lines of text: their sentences, their words, and the labels beside them. Knows no tokens and no models.

A line of a labeled file is ``document<TAB>label``. The sentences of a document are what stands between ``|||`` where it
holds any; otherwise a sentence ends after ``. ! ? …`` and white space, or after ``。 ！ ？``. Both rules are plain:
"Mr. Smith" makes two sentences, and whoever has better ones puts ``|||`` between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from attnkit.errors import DataError
from attnkit.text.lines import read_lines

SEPARATOR = "|||"
MAX_LABEL_LENGTH = 200
"""Characters of a label."""
_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*")
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def split_sentences(document: str) -> list[str]:
    """Return the sentences of a document that are not blank.

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
    """Yield the documents of a labeled file, which may be blank, and their labels.

    Raises:
        DataError: a line is not a document, a tab and a label, or a byte is no UTF-8.
    """
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        label = columns[-1].strip()
        if len(columns) != 2:
            n = len(columns)
            what = f"this line has {n} column{'s'[: n != 1]}, not two: a document, a tab, its label"
            help = "take tabs out of the documents" if n > 2 else "put a tab and its label after the document"
            raise DataError(what, where=f"{path}:{number}", help=help)
        if fault := label_fault(label):
            raise DataError(fault, where=f"{path}:{number}", help="each line is a document, a tab, its label")
        yield columns[0], label


def label_fault(label: str) -> str | None:
    """Return what is wrong with a label, if anything is."""
    if not label:
        return "the label is missing"
    if len(label) > MAX_LABEL_LENGTH:
        return f"this label has {len(label):,} characters, more than {MAX_LABEL_LENGTH}"
    return "this label holds a carriage return" if "\r" in label else None
