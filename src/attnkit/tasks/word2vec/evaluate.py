"""Scores of word vectors: correlation with human similarity judgements, and solved analogies."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError
from attnkit.formats.word_vectors.table import Floats
from attnkit.metrics.similarity import pearson, spearman
from attnkit.tasks.word2vec.vectors import Vectors, unit_vector
from attnkit.text.lines import read_lines

_PAIRS = "expected per line: two words and a number, separated by tabs, commas or spaces"
_ANALOGIES = "expected per line: four words, or a colon and a section name"


class WordPair(NamedTuple):
    """Two words and how alike people find them."""

    a: str
    b: str
    score: float


@dataclass(frozen=True)
class Section:
    """Analogies of one kind: a is to b as c is to d."""

    name: str
    questions: list[tuple[str, str, str, str]] = field(default_factory=list)


def kind_of(path: Path) -> Literal["pairs", "analogies"]:
    """Return what a file asks: analogies have sections, or four words a line. Raises ``DataError`` for an empty one."""
    lines = [line for _, line in islice(_content_lines(path), 2)]  # the first may be a header
    if not lines:
        raise DataError("no questions in this file", where=str(path))
    judged = any(_is_number(text) for line in lines for text in _fields(line)[2:])
    return "analogies" if lines[0].startswith(":") or (len(lines[-1].split()) == 4 and not judged) else "pairs"


def read_pairs(path: Path) -> list[WordPair]:
    """Return the pairs of a file: two words, then the first column that holds numbers.

    Lines that start with ``#`` are comments; a first line without a number is a header.

    Raises ``DataError``: a line that is not a pair, or no pairs at all.
    """
    pairs: list[WordPair] = []
    column = 0
    for row, (number, line) in enumerate(_content_lines(path)):
        fields = _fields(line)
        if not column:
            column = next((i for i, text in enumerate(fields) if i >= 2 and _is_number(text)), 0)
            if not row and not column:
                continue
        if not 2 <= column < len(fields) or not _is_number(fields[column]) or not (fields[0] and fields[1]):
            raise DataError("this line is not two words and a number", where=f"{path}:{number}", help=_PAIRS)
        pairs.append(WordPair(fields[0], fields[1], float(fields[column])))
    if not pairs:
        raise DataError("no pairs of words in this file", where=str(path), help=_PAIRS)
    return pairs


def read_analogies(path: Path) -> list[Section]:
    """Return the sections of a file of analogies. Raises ``DataError``: a line that is none, or no analogies at all."""
    sections: list[Section] = []
    for number, line in _content_lines(path):
        if line.startswith(":"):
            sections.append(Section(line[1:].strip()))
            continue
        words = line.split()
        if len(words) != 4:
            raise DataError("this line is not an analogy", where=f"{path}:{number}", help=_ANALOGIES)
        if not sections:
            sections.append(Section("all"))
        sections[-1].questions.append((words[0], words[1], words[2], words[3]))
    if not any(section.questions for section in sections):
        raise DataError("no analogies in this file", where=str(path), help=_ANALOGIES)
    return sections


def _content_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither blank nor comments, with their numbers."""
    for number, line in enumerate(read_lines(path), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line


def _fields(line: str) -> list[str]:
    delimiter = next((sign for sign in ("\t", ",", ";") if line.count(sign) >= 2), None)
    if delimiter is None:
        return re.split(r"\s+", line.strip())
    return [text.strip().strip('"') for text in line.split(delimiter)]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


Method = Literal["add", "mul"]
_BATCH = 256  # questions at a time
_SMALL = np.float32(1e-6)


@dataclass(frozen=True)
class PairScores:
    """Correlation of cosines with judgements; None for fewer than two known pairs or constant values."""

    spearman: float | None
    pearson: float | None
    known: int  #: pairs that are scored: both words have a vector
    composed: int  #: pairs with a word whose vector is composed of n-grams alone
    unknown: int  #: pairs that are left out


@dataclass(frozen=True)
class SectionScores:
    """Analogies of one section."""

    name: str
    right: int
    known: int  #: questions that are asked: all four words have a vector
    composed: int  #: questions with a word outside the vocabulary, composed from n-grams
    unknown: int  #: questions that are left out

    @property
    def accuracy(self) -> float | None:
        """Share of the known ones that are solved."""
        return self.right / self.known if self.known else None


@dataclass(frozen=True)
class AnalogyScores:
    """Analogies of a file."""

    total: SectionScores
    groups: tuple[SectionScores, ...]  #: semantic and syntactic ones, where sections are named as in questions-words
    sections: tuple[SectionScores, ...]


@dataclass(frozen=True)
class Known:
    """Which words have a vector."""

    top: int | None = None  #: number of words that count, from the first on; None: all
    fold: bool = True  #: ignore case, as gensim does
    compose: bool = False  #: also compose vectors of unseen words from n-grams


def score_pairs(vectors: Vectors, pairs: Sequence[WordPair], known: Known = Known()) -> PairScores:
    """Score pairs of words that have vectors; errors as ``Vectors.unit``."""
    view = VocabularyView(vectors, known)
    found = [(a, b, pair.score) for pair in pairs if (a := view[pair.a]) >= 0 and (b := view[pair.b]) >= 0]
    counts = len(found), sum(max(a, b) >= view.n_words for a, b, _ in found), len(pairs) - len(found)
    if len(found) < 2:
        return PairScores(None, None, *counts)
    first, second, scores = zip(*found, strict=True)
    cosines = (view.unit(np.array(first)).astype(np.float64) * view.unit(np.array(second))).sum(1)
    correlations = [correlate(cosines, scores) for correlate in (spearman, pearson)]
    by_rank, by_value = (None if np.isnan(value) else value for value in correlations)
    return PairScores(by_rank, by_value, *counts)


def score_analogies(
    vectors: Vectors, sections: Sequence[Section], known: Known = Known(), method: Method = "add"
) -> AnalogyScores:
    """Answer analogies by 3CosAdd or 3CosMul, by words that have a row; errors as ``Vectors.unit``."""
    view = VocabularyView(vectors, known)
    asked = [[(*(view[word] for word in q[:3]), view.row(q[3])) for q in section.questions] for section in sections]
    unit = view.unit(np.arange(view.n_words + len(view.composed)))
    scores = []
    for section, questions in zip(sections, asked, strict=True):
        parts = np.array([question for question in questions if min(question) >= 0], np.int64).reshape(-1, 4)
        batches = (parts[start : start + _BATCH] for start in range(0, len(parts), _BATCH))
        right = sum(int((_answers(unit, part[:, :3], view.first, method) == part[:, 3]).sum()) for part in batches)
        composed = int((parts >= view.n_words).any(1).sum())
        scores.append(SectionScores(section.name, right, len(parts), composed, len(questions) - len(parts)))
    # Sections about grammar have names that start so in the questions-words file.
    syntactic = [score for score in scores if score.name.startswith("gram")]
    semantic = [score for score in scores if not score.name.startswith("gram")]
    groups = (_sum("semantic", semantic), _sum("syntactic", syntactic)) if semantic and syntactic else ()
    return AnalogyScores(_sum("all", scores), groups, tuple(scores))


def _sum(name: str, scores: Sequence[SectionScores]) -> SectionScores:
    keys = "right", "known", "composed", "unknown"
    return SectionScores(name, *(sum(getattr(score, key) for score in scores) for key in keys))


class VocabularyView:
    """The numbers of words: their rows, then those whose vectors are composed.

    Of words that differ only in case the most frequent counts, where case does not.
    """

    def __init__(self, vectors: Vectors, known: Known) -> None:
        words = vectors.index_to_key[: known.top or None]
        self.n_words = len(words)
        self.composed: list[Floats] = []  #: vectors of the words from ``n_words`` on
        self._vectors = vectors
        self._spell = str.lower if known.fold else str
        self._compose = vectors.unseen if known.compose else None
        self._numbers: dict[str, int] = {}
        rows = [self._numbers.setdefault(self._spell(word), row) for row, word in enumerate(words)]
        self.first = np.array(rows, np.int64)  #: (n_words,) the first row of the same word

    def row(self, word: str) -> int:
        """Return the row of a word, -1 where it has none."""
        number = self._numbers.get(self._spell(word), -1)
        return number if number < self.n_words else -1

    def __getitem__(self, word: str) -> int:
        """Return the number of a word, -1 where it has no vector."""
        form = self._spell(word)
        if form not in self._numbers and self._compose is not None:
            # One that is not among the first words may have a row all the same.
            vector = self._vectors[form] if form in self._vectors else self._compose(form)
            if vector is not None:
                self._numbers[form] = self.n_words + len(self.composed)
                self.composed.append(unit_vector(vector))
        return self._numbers.get(form, -1)

    def unit(self, numbers: NDArray[np.int64]) -> Floats:
        """Return the vectors (n, D) of some words, of length 1."""
        own = numbers < self.n_words
        found = np.empty((len(numbers), self._vectors.vector_size), np.float32)
        found[own] = self._vectors.unit(numbers[own])
        if not own.all():
            found[~own] = np.stack(self.composed)[numbers[~own] - self.n_words]
        return found


def _answers(unit: Floats, asked: NDArray[np.int64], first: NDArray[np.int64], method: Method) -> NDArray[np.int64]:
    """Return the rows (n,) that answer questions (n, 3): of no word of the question."""
    answers = unit[: len(first)]
    a, b, c = asked.T
    if method == "add":
        scores = (unit[b] - unit[a] + unit[c]) @ answers.T
    else:
        near = [(1 + unit[column] @ answers.T) / 2 for column in (b, c, a)]
        scores = near[0] * near[1] / (near[2] + _SMALL)
    which, words = np.nonzero(asked < len(first))
    scores[which, asked[which, words]] = -np.inf
    others = np.flatnonzero(first != np.arange(len(first)))  # rows of the same words in another case
    for column in asked.T if len(others) else ():
        which, places = np.nonzero(column[:, None] == first[others])
        scores[which, others[places]] = -np.inf
    return np.asarray(first[scores.argmax(1)])
