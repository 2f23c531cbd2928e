r"""Tagged words in columns: a word a line with its tag in the last column, a blank line after each sentence (CoNLL).

Columns stand between tabs, or between spaces where a line has no tab. Lines of ``-DOCSTART-`` divide documents. Tags
of entities come in three schemes: in BIO (IOB2) ``B`` begins every entity, in IOB1 only one that touches another of its
type, in BIOES ``E`` ends it and ``S`` is one of a single word. Knows no tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Literal

from attnkit.errors import DataError
from attnkit.metrics.spans import OUTSIDE, Entity, entities, split_tag
from attnkit.text.documents import label_fault
from attnkit.text.lines import read_lines

Scheme = Literal["bio", "iob1", "bioes", "plain"]
"""``plain`` tags name no entities, as parts of speech do not."""
DOCUMENT = "-DOCSTART-"
_LETTERS: dict[Scheme, str] = {"bio": "BI", "iob1": "BI", "bioes": "BIES"}
MOST_WORDS = 1 << 16
"""Of a sentence: a file with more has no blank lines, or is another kind of file."""


@dataclass(frozen=True)
class Block:
    """Neighbouring lines of a file: a sentence, or what stands between two, which has no words."""

    lines: tuple[str, ...]
    """As they stand in the file."""
    words: tuple[str, ...]
    tags: tuple[str, ...]
    """One for each word; empty where the file was read without."""
    line: int
    """Number of the first line, counted from 1."""


def read_blocks(path: Path, *, tagged: bool = True) -> Iterator[Block]:
    """Yield all lines of a file as blocks, sentences and what stands between them in turn.

    Without ``tagged`` a line may be a word alone, and no tags are read.

    Raises:
        DataError: a line has other columns than the first one, no tag, an empty word, or a byte is no UTF-8; or a
            sentence has more than ``MOST_WORDS`` words.
    """
    n_columns: int | None = None
    numbered = enumerate(read_lines(path), 1)
    for empty, group in groupby(numbered, key=lambda pair: _is_border(pair[1])):
        if empty:
            while part := list(islice(group, MOST_WORDS)):
                yield Block(tuple(line for _, line in part), (), (), part[0][0])
            continue
        block = list(islice(group, MOST_WORDS + 1))
        if len(block) > MOST_WORDS:
            what = f"this sentence has more than {MOST_WORDS:,} words"
            raise DataError(what, where=f"{path}:{block[0][0]}", help="put a blank line after each sentence")
        rows = []
        for number, line in block:
            columns = _columns(line)
            n_columns = n_columns or len(columns)
            _check(columns, n_columns, tagged, f"{path}:{number}")
            rows.append(columns)
        tags = tuple(row[-1] for row in rows) if tagged else ()
        yield Block(tuple(line for _, line in block), tuple(row[0] for row in rows), tags, block[0][0])


def read_sentences(path: Path, *, tagged: bool = True) -> Iterator[Block]:
    """Yield the sentences of a file; errors as ``read_blocks``'."""
    return (block for block in read_blocks(path, tagged=tagged) if block.words)


def write_tags(block: Block, tags: Sequence[str]) -> list[str]:
    """Return the lines of a block with a further column of tags, one for each word: N lines in, N lines out."""
    if not block.words:
        return list(block.lines)
    spaces = ("\t" if "\t" in line else " " for line in block.lines)
    lines = (line.rstrip(" \t") for line in block.lines)
    return [f"{line}{space}{tag}" for line, space, tag in zip(lines, spaces, tags, strict=True)]


def find_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Return the scheme that tags are written in; of BIO and IOB1 the one that fits more of them, BIO if both do.

    Tags are ``plain`` unless each one but ``O`` is a letter of a scheme, a hyphen and a type, and there is one.
    """
    n_bio = n_iob1 = 0
    letters: set[str] = set()
    for tags in sentences:
        parts = [split_tag(tag) for tag in tags if tag != OUTSIDE]
        if not all(letter in _LETTERS["bioes"] and type for letter, type in parts):
            return "plain"
        letters.update(letter for letter, _ in parts)
        n_bio += sum(1 for _ in tag_faults(tags, "bio"))
        n_iob1 += sum(1 for _ in tag_faults(tags, "iob1"))
    if letters & {"E", "S"}:
        return "bioes"
    return "plain" if not letters else "bio" if n_bio <= n_iob1 else "iob1"


def tag_faults(tags: Sequence[str], scheme: Scheme) -> Iterator[tuple[int, str]]:
    """Yield the places of tags that their scheme does not allow there, with what is wrong, in words."""
    if scheme == "plain":
        return
    for place, (tag, right) in enumerate(zip(tags, convert(tags, scheme), strict=True)):
        letter, type = split_tag(tag)
        if tag != OUTSIDE and (letter not in _LETTERS[scheme] or not type):
            yield place, f"'{tag}' is no tag of {scheme.upper()}"
        elif tag != right:
            yield place, f"'{tag}' cannot stand here in {scheme.upper()}; '{right}' can"


def check_tags(path: Path, block: Block, scheme: Scheme) -> None:
    """Refuse a sentence whose tags do not follow their scheme.

    Raises:
        DataError: naming the line of the first such tag.
    """
    for place, fault in tag_faults(block.tags, scheme):
        where = f"{path}:{block.line + place}"
        raise DataError(f"the tag {fault}", where=where, help="mend the tag; BIO, IOB1 and BIOES are read")


def convert(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Return the tags of the same entities in another scheme.

    >>> convert(["I-PER", "I-PER", "B-PER", "O"], "bio")
    ['B-PER', 'I-PER', 'B-PER', 'O']
    """
    return list(tags) if scheme == "plain" else write_entities(entities(tags), len(tags), scheme)


def write_entities(found: Sequence[Entity], n_words: int, scheme: Scheme) -> list[str]:
    """Return the tags of entities, which are in order and do not overlap, in a sentence of so many words."""
    tags = [OUTSIDE] * n_words
    before: Entity | None = None
    for entity in found:
        letters = ["I"] * (entity.end - entity.begin)
        touches = before is not None and before.end == entity.begin and before.type == entity.type
        if scheme != "iob1" or touches:
            letters[0] = "B"
        if scheme == "bioes":
            letters[-1] = "E" if len(letters) > 1 else "S"
        tags[entity.begin : entity.end] = [f"{letter}-{entity.type}" for letter in letters]
        before = entity
    return tags


def _is_border(line: str) -> bool:
    return not line or line.isspace() or line.startswith(DOCUMENT)


def _columns(line: str) -> list[str]:
    line = line.rstrip(" \t")
    if "\t" in line:
        return [part.strip(" ") for part in line.split("\t")]
    return [part for part in line.split(" ") if part]


def _check(columns: Sequence[str], expected: int, tagged: bool, where: str) -> None:
    help = "a line is a word, a tab or space, its tag; a blank line ends a sentence"
    if tagged and len(columns) < 2:
        raise DataError("this word has no tag", where=where, help=help)
    if len(columns) != expected:
        what = f"this line has {len(columns)} column{'s'[: len(columns) != 1]}, the first one {expected}"
        raise DataError(what, where=where, help=help)
    if not columns[0]:
        raise DataError("the word is missing", where=where, help=help)
    if tagged and (fault := label_fault(columns[-1])):
        raise DataError(fault.replace("label", "tag"), where=where, help=help)
