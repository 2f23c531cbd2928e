r"""Tagged words in columns: a word a line with its tag in the last column, a blank line after each sentence (CoNLL).

Columns stand between tabs, or between spaces where a line has no tab. Lines of ``-DOCSTART-`` divide documents. Tags
of entities come in four schemes: in BIO (IOB2) ``B`` begins every entity, in IOB1 only one that touches another of its
type, in BIOES ``E`` ends it and ``S`` is one of a single word, for which BILOU has ``L`` and ``U``. Knows no tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Literal

from attnkit.errors import DataError
from attnkit.protocols import OUTSIDE, Entity, entities, names_entity, split_tag
from attnkit.text.documents import label_fault
from attnkit.text.lines import read_lines

Scheme = Literal["bio", "iob1", "bioes", "bilou", "plain"]
"""``plain`` tags name no entities, as parts of speech do not."""
DOCUMENT = "-DOCSTART-"
LETTERS: dict[Scheme, str] = {"bio": "BI", "iob1": "BI", "bioes": "BIES", "bilou": "BILU"}
"""Of the tags of each scheme that has entities; of those that fit as well as each other the first one is taken."""
MAX_WORDS = 1 << 16
"""Of a sentence: a file with more has no blank lines, or is another kind of file."""


@dataclass(frozen=True)
class Block:
    """Neighbouring lines of a file: a sentence, or the lines between two, which have no words."""

    lines: tuple[str, ...]
    """The lines of the file."""
    words: tuple[str, ...]
    tags: tuple[str, ...]
    """One for each word; empty where the file was read without."""
    line: int
    """Number of the first line, counted from 1."""


def read_blocks(path: Path, *, tagged: bool = True) -> Iterator[Block]:
    """Yield all lines of a file as blocks, sentences and the lines between them in turn.

    Without ``tagged`` a line may be a word alone, and no tags are read.

    Raises:
        DataError: a line has other columns than the first one, no tag, an empty word, or a byte is not UTF-8; or a
            sentence has more than ``MAX_WORDS`` words.
    """
    n_columns: int | None = None
    numbered = enumerate(read_lines(path), 1)
    for empty, group in groupby(numbered, key=lambda pair: _is_border(pair[1])):
        if empty:
            while part := list(islice(group, MAX_WORDS)):
                yield Block(tuple(line for _, line in part), (), (), part[0][0])
            continue
        block = list(islice(group, MAX_WORDS + 1))
        if len(block) > MAX_WORDS:
            what = f"this sentence has more than {MAX_WORDS:,} words"
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


@dataclass
class TagErrors:
    """Tags that do not follow a scheme, though it is clear which entities they name."""

    n: int = 0
    first: str = ""
    """Where the first one is, what it is and what it is read as."""

    def add(self, where: str, tag: str, right: str) -> None:
        """Count one."""
        self.n += 1
        self.first = self.first or f"{where}: '{tag}' as '{right}'"

    def __or__(self, other: TagErrors) -> TagErrors:
        return TagErrors(self.n + other.n, self.first or other.first)

    def message(self, scheme: Scheme) -> str:
        """Return what is said of them; there is one at least."""
        what = "1 tag does not follow" if self.n == 1 else f"{self.n:,} tags do not follow"
        read = "is read as conlleval does" if self.n == 1 else "are read as conlleval does, the first"
        return f"{what} {scheme.upper()} and {read}: {self.first}"


@dataclass
class TagSummary:
    """What a pass over tagged sentences tells of their tags."""

    n_sentences: int = 0
    tags: dict[str, str] = field(default_factory=dict)
    """Each with the place where it stands first."""
    slips: dict[Scheme, TagErrors] = field(default_factory=lambda: {scheme: TagErrors() for scheme in LETTERS})
    """From each scheme, if that were the one."""

    def add(self, path: Path, block: Block) -> None:
        """Look at a sentence. Raises ``DataError`` where a tag holds white space."""
        self.n_sentences += 1
        for place, tag in enumerate(block.tags):
            if tag not in self.tags:
                self.tags[tag] = where = f"{path}:{block.line + place}"
                _refuse_space(tag, where)
        if all(tag == OUTSIDE for tag in block.tags):
            return
        for scheme, slips in self.slips.items():
            for place, right in tag_faults(block.tags, scheme):
                slips.add(f"{path}:{block.line + place}", block.tags[place], right)

    def scheme(self) -> Scheme:
        """Return the scheme with the fewest slips; ``plain`` if fewer than half of the tags but ``O`` name entities."""
        return "plain" if _name_nothing(self.tags) else min(LETTERS, key=lambda scheme: self.slips[scheme].n)

    def invalid_tags(self) -> list[str]:
        """Return the tags but ``O`` that name no entity, in the order in which they were first seen."""
        return [tag for tag in self.tags if tag != OUTSIDE and not names_entity(tag)]

    def check_tags(self) -> None:
        """Raise ``DataError`` for the first tag that names no entity, where others do."""
        for tag in self.invalid_tags():
            what = f"the tag '{tag}' names no entity, as most tags do"
            help = "write O, or B, I, E, S, L or U, a hyphen and a type, as in B-PER"
            raise DataError(what, where=self.tags[tag], help=help)


def summarize_tags(paths: Iterable[Path], sample: list[Sequence[str]] | None = None, n_sampled: int = 0) -> TagSummary:
    """Summarize the tags of files; add the words of their first ``n_sampled`` sentences to ``sample``.

    Raises:
        DataError: as ``read_blocks`` and ``TagSummary.add``.
    """
    found = TagSummary()
    for path in paths:
        for block in read_sentences(path):
            found.add(path, block)
            if sample is not None and found.n_sentences <= n_sampled:
                sample.append(block.words)
    return found


def label_scheme(labels: Collection[str]) -> Scheme:
    """Return the scheme of a list of all tags, which the letters in it tell."""
    n = Counter(split_tag(label)[0] for label in labels if names_entity(label))
    if _name_nothing(labels):
        return "plain"
    if n["E"] or n["S"]:
        return "bioes"
    return "bilou" if n["L"] or n["U"] else "iob1" if n["I"] > n["B"] else "bio"


def tag_faults(tags: Sequence[str], scheme: Scheme) -> Iterator[tuple[int, str]]:
    """Yield the places of tags that their scheme does not allow there, with those that it has for the same entities."""
    for place, (tag, right) in enumerate(zip(tags, convert(tags, scheme), strict=True)):
        if tag != right:
            yield place, right


def convert(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Return the tags of the same entities in another scheme; tags that name none stay as they are.

    >>> convert(["I-PER", "I-PER", "B-PER", "O"], "bio")
    ['B-PER', 'I-PER', 'B-PER', 'O']
    """
    if scheme == "plain":
        return list(tags)
    written = write_entities(entities(tags), len(tags), scheme)
    return [new if names_entity(old) else old for old, new in zip(tags, written, strict=True)]


def write_entities(found: Sequence[Entity], n_words: int, scheme: Scheme) -> list[str]:
    """Return the tags of entities, which are in order and do not overlap, in a sentence of so many words."""
    tags = [OUTSIDE] * n_words
    before: Entity | None = None
    for entity in found:
        letters = ["I"] * (entity.end - entity.begin)
        touches = before is not None and before.end == entity.begin and before.type == entity.type
        if scheme != "iob1" or touches:
            letters[0] = "B"
        if scheme in ("bioes", "bilou"):
            letters[-1] = LETTERS[scheme][2 if len(letters) > 1 else 3]
        tags[entity.begin : entity.end] = [f"{letter}-{entity.type}" for letter in letters]
        before = entity
    return tags


def _name_nothing(tags: Collection[str]) -> bool:
    """Return whether tags are not entity tags: fewer than half of those but ``O`` look like such, or there are none."""
    n = sum(map(names_entity, tags))
    return not n or 2 * n < len(set(tags) - {OUTSIDE})


def holds_space(tag: str) -> bool:
    """Return whether a tag would be several where tags stand with spaces between."""
    return any(map(str.isspace, tag))


def _refuse_space(tag: str, where: str) -> None:
    if holds_space(tag):
        help = "take it out: the tags of a sentence are written with spaces between"
        raise DataError(f"the tag '{tag}' holds white space", where=where, help=help)


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
