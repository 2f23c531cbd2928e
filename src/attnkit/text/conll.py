"""CoNLL files: a word and its tag per line, a blank line after each sentence.

Columns are separated by tabs, or by spaces in lines without a tab; the last one is the tag. ``-DOCSTART-`` lines
separate documents. Entity tags use one of four schemes. ``B`` marks the start of every entity in BIO (IOB2), but in
IOB1 only after an adjacent entity of its type. BIOES adds ``E`` (end) and ``S`` (single word), BILOU ``L`` and ``U``.
"""

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

Scheme = Literal["bio", "iob1", "bioes", "bilou", "plain"]  #: ``plain``: other tags, such as parts of speech
DOCUMENT = "-DOCSTART-"
_PROSE = 3  # spaces in a "word": some corpora have words such as "1 1/2", none has four in most lines
LETTERS: dict[Scheme, str] = {"bio": "BI", "iob1": "BI", "bioes": "BIES", "bilou": "BILU"}
"""Tag letters of each entity scheme; the first of the schemes that fit equally well is chosen."""
MAX_WORDS = 1 << 16  #: maximum words of a sentence; a longer one suggests missing blank lines or another file format


@dataclass(frozen=True)
class Block:
    """Adjacent lines of a file: a sentence, or the lines between two sentences."""

    lines: tuple[str, ...]  #: the lines of the file
    words: tuple[str, ...]  #: empty for lines between sentences
    tags: tuple[str, ...]  #: one per word; empty if the file was read without tags
    line: int  #: number of the first line, counted from 1


def read_blocks(path: Path, *, tagged: bool = True) -> Iterator[Block]:
    """Yield all lines of a file as blocks: sentences and the lines between them.

    Without ``tagged``, no tags are read and a line may hold just a word. Raises ``DataError`` for a line with another
    number of columns than the first, a missing tag or word, texts in place of words, or a sentence of more than
    ``MAX_WORDS`` words.
    """
    n_columns: int | None = None
    help = "expected per line: word, tab or space, tag; a blank line ends a sentence"
    numbered = enumerate(read_lines(path), 1)
    for between, group in groupby(numbered, lambda pair: not pair[1].strip() or pair[1].startswith(DOCUMENT)):
        if between:
            while part := list(islice(group, MAX_WORDS)):
                yield Block(tuple(line for _, line in part), (), (), part[0][0])
            continue
        block = list(islice(group, MAX_WORDS + 1))
        if len(block) > MAX_WORDS:
            what = f"this sentence has more than {MAX_WORDS:,} words"
            raise DataError(what, where=f"{path}:{block[0][0]}", help="put a blank line after each sentence")
        rows: list[list[str]] = []
        for number, line in block:
            line = line.rstrip(" \t")
            tabs = "\t" in line
            row = [cell.strip(" ") for cell in line.split("\t" if tabs else " ") if tabs or cell]
            n_columns, fault = n_columns or len(row), None
            if tagged and len(row) < 2:
                fault = "this word has no tag"
            elif len(row) != n_columns:
                fault = f"this line has {len(row)} column{'s'[: len(row) != 1]}, the first line {n_columns}"
            elif not row[0]:
                fault = "the word is missing"
            elif tagged and (label := label_fault(row[-1])):
                fault = label.replace("label", "tag")
            if fault:
                raise DataError(fault, where=f"{path}:{number}", help=help)
            rows.append(row)
        if tagged and 2 * sum(row[0].count(" ") >= _PROSE for row in rows) > len(rows):
            number, text = next(
                (n, row[0]) for (n, _), row in zip(block, rows, strict=True) if row[0].count(" ") >= _PROSE
            )
            what = f"the first column holds texts, such as '{text[:30]}…', not words"
            help = f"{help}; for labeled texts: --task text-classification"
            raise DataError(what, where=f"{path}:{number}", help=help)
        tags = tuple(row[-1] for row in rows) if tagged else ()
        yield Block(tuple(line for _, line in block), tuple(row[0] for row in rows), tags, block[0][0])


def read_sentences(path: Path, *, tagged: bool = True) -> Iterator[Block]:
    """Yield the sentences of a file; errors as in ``read_blocks``."""
    return (block for block in read_blocks(path, tagged=tagged) if block.words)


def write_tags(block: Block, tags: Sequence[str]) -> list[str]:
    """Return the lines of a block, with ``tags`` appended as a column if it has words."""
    if not block.words:
        return list(block.lines)
    spaces = ("\t" if "\t" in line else " " for line in block.lines)
    lines = (line.rstrip(" \t") for line in block.lines)
    return [f"{line}{space}{tag}" for line, space, tag in zip(lines, spaces, tags, strict=True)]


@dataclass
class TagSummary:
    """Tags of a corpus, and how well each scheme fits them."""

    n_sentences: int = 0
    tags: dict[str, str] = field(default_factory=dict)  #: tag -> location of its first occurrence
    n_errors: Counter[Scheme] = field(default_factory=Counter)
    """Number of tags that violate each scheme, although their entities are unambiguous."""
    first_errors: dict[Scheme, str] = field(default_factory=dict)  #: scheme -> location, tag and corrected tag

    def add(self, path: Path, block: Block) -> None:
        """Add the tags of a sentence; raise ``DataError`` if a tag has white space."""
        self.n_sentences += 1
        for offset, tag in enumerate(block.tags):
            if tag not in self.tags:
                self.tags[tag] = where = f"{path}:{block.line + offset}"
                if holds_space(tag):
                    help = "remove the white space: tags are separated by spaces in the output"
                    raise DataError(f"the tag '{tag}' contains white space", where=where, help=help)
        for scheme in LETTERS if set(block.tags) - {OUTSIDE} else ():
            for offset, (tag, right) in enumerate(zip(block.tags, convert(block.tags, scheme), strict=True)):
                if tag != right:
                    self.n_errors[scheme] += 1
                    self.first_errors.setdefault(scheme, f"{path}:{block.line + offset}: '{tag}' as '{right}'")

    def scheme(self) -> Scheme:
        """Return the scheme with the fewest errors; ``plain`` if most tags name no entity."""
        return "plain" if _is_plain(self.tags) else min(LETTERS, key=self.n_errors.__getitem__)

    def invalid_tags(self) -> list[str]:
        """Return tags other than ``O`` that name no entity, in order of first occurrence."""
        return [tag for tag in self.tags if tag != OUTSIDE and not names_entity(tag)]

    def check_tags(self) -> None:
        """Raise ``DataError`` for the first tag that names no entity."""
        for tag in self.invalid_tags():
            what = f"the tag '{tag}' is not a BIO entity tag, but most tags are"
            help = "write O, or B, I, E, S, L or U, a hyphen and a type, as in B-PER"
            raise DataError(what, where=self.tags[tag], help=help)


def tag_warnings(scheme: Scheme, *summaries: TagSummary) -> list[str]:
    """Return a warning if tags violate the scheme, else an empty list."""
    wrong = [summary for summary in summaries if summary.n_errors[scheme]]
    if not wrong:
        return []
    n = sum(summary.n_errors[scheme] for summary in wrong)
    what = "1 tag does not follow" if n == 1 else f"{n:,} tags do not follow"
    read = "is interpreted as by conlleval" if n == 1 else "are interpreted as by conlleval; the first one"
    return [f"{what} {scheme.upper()} and {read}: {wrong[0].first_errors[scheme]}"]


def summarize_tags(paths: Iterable[Path], sample: list[Sequence[str]] | None = None, n_sampled: int = 0) -> TagSummary:
    """Summarize the tags of files; add words of ``n_sampled`` sentences to ``sample``."""
    summary = TagSummary()
    for path in paths:
        for block in read_sentences(path):
            summary.add(path, block)
            if sample is not None and summary.n_sentences <= n_sampled:
                sample.append(block.words)
    return summary


def label_scheme(labels: Collection[str]) -> Scheme:
    """Return the scheme of the labels of a model, judged by their letters."""
    if _is_plain(labels):
        return "plain"
    n = Counter(split_tag(label)[0] for label in labels if names_entity(label))
    if n["E"] or n["S"]:
        return "bioes"
    return "bilou" if n["L"] or n["U"] else "iob1" if n["I"] > n["B"] else "bio"


def convert(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Convert tags to another scheme; tags that name no entity stay unchanged.

    >>> convert(["I-PER", "I-PER", "B-PER", "O"], "bio")
    ['B-PER', 'I-PER', 'B-PER', 'O']
    """
    if scheme == "plain":
        return list(tags)
    written = [OUTSIDE] * len(tags)
    before: Entity | None = None
    for entity in entities(tags):
        letters = ["I"] * (entity.end - entity.begin)
        touches = before is not None and before.end == entity.begin and before.type == entity.type
        if scheme != "iob1" or touches:
            letters[0] = "B"
        if scheme in ("bioes", "bilou"):
            letters[-1] = LETTERS[scheme][2 if len(letters) > 1 else 3]
        written[entity.begin : entity.end] = [f"{letter}-{entity.type}" for letter in letters]
        before = entity
    return [new if names_entity(old) else old for old, new in zip(tags, written, strict=True)]


def _is_plain(tags: Collection[str]) -> bool:
    """Return whether entity tags are absent, or under half of the tags except ``O``."""
    n = sum(map(names_entity, tags))
    return not n or 2 * n < len(set(tags) - {OUTSIDE})


def holds_space(tag: str) -> bool:
    """Return whether a tag contains white space, the separator of tag lists."""
    return any(map(str.isspace, tag))
