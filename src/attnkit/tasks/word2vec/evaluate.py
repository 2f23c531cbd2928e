"""Evaluation of word vectors on human similarity judgements and analogies."""

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
from attnkit.io.plain_data import PlainResult
from attnkit.metrics.similarity import pearson, spearman
from attnkit.tasks.word2vec.vectors import Vectors, unit_vector
from attnkit.text.lines import read_lines

_PAIRS = "expected per line: two words and a number, separated by tabs, commas or spaces"
_ANALOGIES = "expected per line: four words, or a colon and a section name"


class WordPair(NamedTuple):
    """Two words and a human similarity score."""

    a: str
    b: str
    score: float


@dataclass(frozen=True)
class Section:
    """A section of analogies: a is to b as c is to d."""

    name: str
    questions: list[tuple[str, str, str, str]] = field(default_factory=list)


def kind_of(path: Path) -> Literal["pairs", "analogies"]:
    """Return the kind of a test file; raise ``DataError`` if it has no questions."""
    lines = [line for _, line in islice(_content_lines(path), 2)]  # the first may be a header
    if not lines:
        raise DataError("no questions in this file", where=str(path))
    judged = any(_is_number(text) for line in lines for text in _fields(line)[2:])
    return "analogies" if lines[0].startswith(":") or (len(lines[-1].split()) == 4 and not judged) else "pairs"


def read_pairs(path: Path) -> list[WordPair]:
    """Return the word pairs of a file, scored by its first numeric column.

    Lines that start with ``#`` are comments; a first line without a number is a header. Raises ``DataError`` for a line
    that is not a scored pair, and for a file without pairs.
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
    """Return the sections of an analogy file; raise ``DataError`` if invalid or empty."""
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
    """Yield (number, line) for lines that are neither blank nor comments."""
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
_BATCH = 256  # questions answered at a time
_SMALL = np.float32(1e-6)


@dataclass(frozen=True)
class PairScores(PlainResult):
    """Correlation of cosines with human scores, None if it is undefined."""

    spearman: float | None  #: rank correlation; None for fewer than two known pairs or constant values
    pearson: float | None
    known: int  #: number of scored pairs: both words have a vector
    composed: int  #: scored pairs with a word outside the vocabulary, composed from n-grams
    unknown: int  #: number of skipped pairs


@dataclass(frozen=True)
class SectionScores:
    """Results for the analogies of one section."""

    name: str
    right: int
    known: int  #: number of scored questions: all four words have a vector
    composed: int  #: scored questions with a word outside the vocabulary, composed from n-grams
    unknown: int  #: number of skipped questions

    @property
    def accuracy(self) -> float | None:
        """Share of the known questions answered correctly; None if ``known`` is 0."""
        return self.right / self.known if self.known else None


@dataclass(frozen=True)
class AnalogyScores(PlainResult):
    """Results for an analogy file: in total, by group and by section."""

    total: SectionScores
    groups: tuple[SectionScores, ...]  #: semantic and syntactic, if sections are named as in questions-words
    sections: tuple[SectionScores, ...]


@dataclass(frozen=True)
class Known:
    """Rules that decide which words count as known."""

    top: int | None = None  #: use only the first ``top`` words; None: all
    fold: bool = True  #: ignore case, as gensim does
    compose: bool = False  #: also compose vectors of unseen words from n-grams


def score_pairs(vectors: Vectors, pairs: Sequence[WordPair], known: Known = Known()) -> PairScores:
    """Correlate cosines with human scores; errors as in ``Vectors.unit``."""
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
    """Score analogies by 3CosAdd or 3CosMul; errors as in ``Vectors.unit``."""
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
    # In questions-words, the names of syntactic sections start with 'gram'.
    syntactic = [score for score in scores if score.name.startswith("gram")]
    semantic = [score for score in scores if not score.name.startswith("gram")]
    groups = (_sum("semantic", semantic), _sum("syntactic", syntactic)) if semantic and syntactic else ()
    return AnalogyScores(_sum("all", scores), groups, tuple(scores))


def _sum(name: str, scores: Sequence[SectionScores]) -> SectionScores:
    keys = "right", "known", "composed", "unknown"
    return SectionScores(name, *(sum(getattr(score, key) for score in scores) for key in keys))


class VocabularyView:
    """Numbering of words: vocabulary rows first, then words composed from n-grams.

    If case is ignored, the most frequent of the words that differ only in case is used.
    """

    def __init__(self, vectors: Vectors, known: Known) -> None:
        words = vectors.index_to_key[: known.top or None]
        self.n_words = len(words)
        self.composed: list[Floats] = []  #: unit vectors of the words numbered from ``n_words`` on
        self._vectors = vectors
        self._spell = str.lower if known.fold else str
        self._compose = vectors.unseen if known.compose else None
        self._numbers: dict[str, int] = {}
        rows = [self._numbers.setdefault(self._spell(word), row) for row, word in enumerate(words)]
        self.first = np.array(rows, np.int64)  #: (n_words,) first row of the same word, for each row

    def row(self, word: str) -> int:
        """Return the row of a word, -1 if it has no row."""
        number = self._numbers.get(self._spell(word), -1)
        return number if number < self.n_words else -1

    def __getitem__(self, word: str) -> int:
        """Return the number of a word, -1 if it has no vector."""
        form = self._spell(word)
        if form not in self._numbers and self._compose is not None:
            # A word that is not among the first ``top`` words may still have a row.
            vector = self._vectors[form] if form in self._vectors else self._compose(form)
            if vector is not None:
                self._numbers[form] = self.n_words + len(self.composed)
                self.composed.append(unit_vector(vector))
        return self._numbers.get(form, -1)

    def unit(self, numbers: NDArray[np.int64]) -> Floats:
        """Return the unit vectors (n, D) of the words with these numbers."""
        own = numbers < self.n_words
        found = np.empty((len(numbers), self._vectors.vector_size), np.float32)
        found[own] = self._vectors.unit(numbers[own])
        if not own.all():
            found[~own] = np.stack(self.composed)[numbers[~own] - self.n_words]
        return found


def _answers(unit: Floats, asked: NDArray[np.int64], first: NDArray[np.int64], method: Method) -> NDArray[np.int64]:
    """Return predicted rows (n,) for questions (n, 3), excluding the question's words."""
    answers = unit[: len(first)]
    a, b, c = asked.T
    if method == "add":
        scores = (unit[b] - unit[a] + unit[c]) @ answers.T
    else:
        near = [(1 + unit[column] @ answers.T) / 2 for column in (b, c, a)]
        scores = near[0] * near[1] / (near[2] + _SMALL)
    which, words = np.nonzero(asked < len(first))
    scores[which, asked[which, words]] = -np.inf
    others = np.flatnonzero(first != np.arange(len(first)))  # rows whose word also has an earlier row
    for column in asked.T if len(others) else ():
        which, places = np.nonzero(column[:, None] == first[others])
        scores[which, others[places]] = -np.inf
    return np.asarray(first[scores.argmax(1)])
