"""Overlapping windows over paragraphs with questions and over tagged sentences.

A row is ``[CLS] question [SEP] window [SEP]``, with two ``[SEP]`` in between for RoBERTa, or ``[CLS] piece [SEP]`` with
a piece of a sentence. Each token has one best window, which shows the most context around it; its word is tagged there.
Letters: n texts, W windows, B rows, T tokens per row, N words per batch.
"""

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from attnkit.data.config import WindowSizes
from attnkit.data.loader import TensorBatch
from attnkit.data.store import Store, ranges
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attnkit.text.offsets import NONE, EncodedWords

Longs = npt.NDArray[np.int64]
NO_ANSWER = (-1, -1)  #: first and last token of a missing answer


class InMemoryTokens:
    """Rows of ids in memory."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.lengths = np.array([len(row) for row in rows], np.int32)
        self._ids = np.array([id for row in rows for id in row], np.int64)
        self._starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths
        self.fingerprint = hashlib.sha256(self._ids.tobytes() + self.lengths.tobytes()).hexdigest()

    def gather_parts(self, rows: Longs, skip: Longs, lengths: Longs) -> Longs:
        """Return ``lengths`` ids per row from ``skip`` on, concatenated."""
        return self._ids[ranges(self._starts[rows] + skip, lengths)]


Texts: TypeAlias = Store | InMemoryTokens  #: rows of ids, on disk or in memory


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows in the order of their contexts, (W,) each; ends are exclusive."""

    contexts: Longs
    begins: Longs
    ends: Longs
    best_begins: Longs
    best_ends: Longs  #: with ``best_begins``, range of the tokens for which this window is best


def cut_windows(lengths: Longs, rooms: Longs, stride: int | Longs) -> Windows:
    """Cut contexts of ``lengths`` (n,) into windows of at most ``rooms`` (n,) tokens.

    Windows start ``stride`` tokens apart, an integer or (n,). The last window is moved back so that it is full. The
    best window of a token is the one whose nearer boundary is farthest away; the earlier one wins a tie. An empty
    context has one empty window. Raises ``ValueError`` if a stride exceeds the room, which would skip tokens.
    """
    strides = np.broadcast_to(np.asarray(stride, np.int64), lengths.shape)
    if (strides < 1).any() or (rooms < strides).any():
        raise ValueError(f"windows of {rooms.min(initial=0)} tokens with stride {strides.max()} skip tokens")
    n_windows = 1 + np.maximum(0, -((rooms - lengths) // strides))
    contexts = np.repeat(np.arange(len(lengths)), n_windows)
    numbers = ranges(np.zeros_like(n_windows), n_windows)
    length, room = lengths[contexts], rooms[contexts]
    begins = np.minimum(numbers * strides[contexts], np.maximum(0, length - room))
    ends = np.minimum(begins + room, length)
    best_begins, best_ends = np.zeros_like(begins), length.copy()
    follows = np.flatnonzero(contexts[1:] == contexts[:-1])
    borders = (ends[follows] - 1 + begins[follows + 1]) // 2 + 1
    best_ends[follows] = best_begins[follows + 1] = borders
    return Windows(contexts, begins, ends, best_begins, best_ends)


@dataclass(frozen=True)
class WindowBatch(TensorBatch):
    """Rows of question-window pairs, padded at the end."""

    ids: Tensor  #: (B, T) int64
    real: Tensor  #: (B, T) bool, True at tokens
    segments: Tensor  #: (B, T) int64, 1 at the tokens of the window and its final separator
    context: Tensor  #: (B, T) bool, True at the tokens of the window
    best: Tensor  #: (B, T) bool, True at the tokens for which this window is best
    firsts: Tensor  #: (B,) int64 position of the answer's first token; 0 ([CLS]) if the window lacks part of the answer
    lasts: Tensor  #: (B,) int64 position of the answer's last token, likewise


class StridedContextDataset:
    """Questions with windows over their contexts; satisfies ``loader.Dataset``."""

    def __init__(
        self, questions: Texts, contexts: Texts, context_of: Longs, sizes: WindowSizes, answers: Longs | None = None
    ) -> None:
        """Build the windows of n questions; ``context_of`` (n,) indexes their contexts.

        Questions are truncated to ``sizes.max_question_length``. ``answers`` (n, 2) contains each answer's first
        and last token, or ``NO_ANSWER``.
        """
        self._questions, self._contexts, self._context_of = questions, contexts, context_of
        self._separators, self._n_symbols = sizes.separators, sizes.n_symbols
        self._sizes = np.minimum(questions.lengths, sizes.max_question_length).astype(np.int64)
        rooms = sizes.max_length - sizes.n_symbols - self._sizes
        # An answer belongs to the best window of its first token, which must contain its last token, too. Best windows
        # change in the middle of an overlap, so an overlap must have the length of two answers.
        shared = np.maximum(rooms - 2 * sizes.max_answer_length, -(-rooms // 4))
        strides = np.full_like(rooms, sizes.stride) if sizes.fixed else np.minimum(sizes.stride, shared)
        self.windows = cut_windows(contexts.lengths[context_of].astype(np.int64), rooms, strides)
        self.questions: Longs = self.windows.contexts  #: (W,) question of each row
        self._answers = np.full((len(context_of), 2), NO_ANSWER) if answers is None else answers

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def fingerprint(self) -> str:
        """Hash of all ids, text boundaries, windows and answers."""
        parts = [self._context_of, self.questions, self.windows.begins, self.windows.ends, self._answers]
        texts = (self._questions.fingerprint + self._contexts.fingerprint).encode()
        return hashlib.sha256(texts + b"".join(part.astype(np.int64).tobytes() for part in parts)).hexdigest()

    @functools.cached_property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the number of tokens per row, and zeros, (W,) each."""
        sizes = self._n_symbols + self._sizes[self.questions] + self.windows.ends - self.windows.begins
        return sizes.astype(np.int32), np.zeros(len(self), np.int32)

    @functools.cached_property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Return whether each window contains the whole answer to its question, (W,)."""
        first, last = self._answers[self.questions].T
        found: npt.NDArray[np.bool_] = (first >= self.windows.begins) & (last < self.windows.ends)
        return found

    def batch(self, indices: Longs, seed: int = 0, epoch: int = 0) -> WindowBatch:
        """Return the rows at ``indices``, in order; seed and epoch are ignored."""
        windows, question = self.windows, self.questions[indices]
        begins, n_question = windows.begins[indices], self._sizes[question]
        n_context = windows.ends[indices] - begins
        at = 1 + n_question + self._separators  # start of the window in its row
        columns = np.arange(int((at + n_context).max()) + 1)
        ids = np.full((len(indices), len(columns)), PAD_ID, np.int64)
        asked = (columns >= 1) & (columns < 1 + n_question[:, None])
        between = (columns > n_question[:, None]) & (columns < at[:, None])
        context = (columns >= at[:, None]) & (columns < (at + n_context)[:, None])
        ids[asked] = self._questions.gather_parts(question, np.zeros_like(question), n_question)
        ids[context] = self._contexts.gather_parts(self._context_of[question], begins, n_context)
        ids[:, 0] = BOS_ID
        rows = np.arange(len(indices))
        ids[between] = ids[rows, at + n_context] = EOS_ID
        shift = at - begins  # from positions in the context to positions in the row
        best_begins, best_ends = windows.best_begins[indices] + shift, windows.best_ends[indices] + shift
        best = (columns >= best_begins[:, None]) & (columns < best_ends[:, None])
        real = columns <= (at + n_context)[:, None]
        segments = (real & (columns >= at[:, None])).astype(np.int64)
        answers = np.where(self.answered[indices, None], self._answers[question] + shift[:, None], 0)
        parts = (ids, real, segments, context, best, answers[:, 0], answers[:, 1])
        return WindowBatch(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))

    def counts(self, indices: Longs, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return the number of rows at ``indices``."""
        return {"nll": len(indices)}

    def in_context(self, row: int, first: int, last: int) -> tuple[int, int]:
        """Convert positions ``first`` to ``last`` of a row to a half-open context range."""
        shift = int(self.windows.begins[row]) - 1 - self._separators - int(self._sizes[self.questions[row]])
        return first + shift, last + shift + 1


UNKNOWN = -1  #: tag of a word without a tag, or with one unknown to the model
_INSIDE, _FIRST = 0, 1  # marks of tokens; the first token of a word with tag t has mark _FIRST + 1 + t
_AT_ONCE = 1 << 14  # rows at a time


@dataclass(frozen=True)
class TagBatch(TensorBatch):
    """Rows of sentence pieces, padded at the end."""

    ids: Tensor  #: (B, T) int64
    real: Tensor  #: (B, T) bool, True at tokens
    firsts: Tensor  #: (N,) int64 positions in the flat ``ids`` of the first tokens of words tagged in these rows
    labels: Tensor  #: (N,) int64 tags of these words, or ``UNKNOWN``


class TokenClassificationDataset:
    """Pieces of tagged sentences; satisfies ``loader.Dataset``."""

    def __init__(self, texts: Texts, marks: Texts, longest: int) -> None:
        """Cut n sentences and their marks (``first_subword_mask``) into pieces.

        Rows have at most ``longest`` tokens, two of them special. Pieces of a long sentence overlap by half or more.
        """
        self._texts, self._marks = texts, marks
        lengths = texts.lengths.astype(np.int64)
        room = longest - 2
        self.windows = cut_windows(lengths, np.full_like(lengths, room), max(1, room // 2))
        self.sentences: Longs = self.windows.contexts
        """(W,) sentence of each row. The rows of a sentence, and the words tagged in them, are in order."""

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def fingerprint(self) -> str:
        """Hash of all tokens, tags, sentence boundaries and windows."""
        borders = np.concatenate([self.windows.begins, self.windows.ends, self.windows.best_ends])
        texts = (self._texts.fingerprint + self._marks.fingerprint).encode()
        return hashlib.sha256(texts + borders.astype(np.int64).tobytes()).hexdigest()

    @functools.cached_property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the number of tokens per row, and zeros, (W,) each."""
        sizes = 2 + self.windows.ends - self.windows.begins
        return sizes.astype(np.int32), np.zeros(len(self), np.int32)

    @functools.cached_property
    def n_words(self) -> Longs:
        """Return the number of words with known tags that each row tags, (W,)."""
        found = np.zeros(len(self), np.int64)
        for rows, marks, owners in self._marked():
            found[rows] = np.bincount(owners[marks > _FIRST], minlength=len(rows))
        return found

    def count_words(self) -> list[int]:
        """Return the number of words per sentence, whether or not their tags are known."""
        found = np.zeros(len(self._texts.lengths), np.int64)
        for rows, marks, owners in self._marked():
            np.add.at(found, self.sentences[rows][owners[marks >= _FIRST]], 1)
        return list(map(int, found))

    def label_counts(self, n_tags: int) -> list[int]:
        """Return the number of words per tag."""
        totals = np.zeros(n_marks(n_tags), np.int64)
        for _, marks, _ in self._marked():
            totals += np.bincount(marks, minlength=len(totals))
        return list(map(int, totals[_FIRST + 1 :]))

    def _marked(self) -> Iterator[tuple[Longs, Longs, Longs]]:
        """Yield chunks of rows, the marks of their best tokens, and each token's row."""
        for start in range(0, len(self), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(self)))
            begins = self.windows.best_begins[rows]
            sizes = self.windows.best_ends[rows] - begins
            yield rows, self._marks.gather_parts(self.sentences[rows], begins, sizes), np.repeat(rows - start, sizes)

    def batch(self, indices: Longs, seed: int = 0, epoch: int = 0) -> TagBatch:
        """Return the rows at ``indices``, in order; seed and epoch are ignored."""
        sentences, begins = self.sentences[indices], self.windows.begins[indices]
        sizes = self.windows.ends[indices] - begins
        columns = np.arange(int(sizes.max()) + 2)
        ids = np.full((len(indices), len(columns)), PAD_ID, np.int64)
        marks = np.full_like(ids, _INSIDE)
        inside = (columns >= 1) & (columns <= sizes[:, None])
        ids[inside] = self._texts.gather_parts(sentences, begins, sizes)
        marks[inside] = self._marks.gather_parts(sentences, begins, sizes)
        ids[:, 0] = BOS_ID
        ids[np.arange(len(indices)), sizes + 1] = EOS_ID
        low, high = (best[indices] - begins + 1 for best in (self.windows.best_begins, self.windows.best_ends))
        best = (marks >= _FIRST) & (columns >= low[:, None]) & (columns < high[:, None])
        parts = (ids, columns <= sizes[:, None] + 1, np.flatnonzero(best), marks[best] - _FIRST + UNKNOWN)
        return TagBatch(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))

    def counts(self, indices: Longs, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return the number of words tagged in the rows at ``indices``."""
        return {"nll": int(self.n_words[indices].sum())}


def first_subword_mask(words: EncodedWords, tags: Sequence[int] | None = None) -> Longs:
    """Return the mark of each token: whether it starts a word, and the word's tag.

    Every word must have a token (see ``with_tokens``). Tags may be ``UNKNOWN``; None: all are.
    """
    marks = np.full(len(words.ids), _INSIDE, np.int64)
    marks[words.firsts] = _FIRST - UNKNOWN + (UNKNOWN if tags is None else np.array(tags, np.int64))
    return marks


def n_marks(n_tags: int) -> int:
    """Return the number of different marks."""
    return _FIRST + 1 + n_tags


def with_tokens(words: EncodedWords) -> EncodedWords:
    """Return the sentence with an unknown token for each word that has no token."""
    if (words.firsts != NONE).all():
        return words
    behind = [*words.firsts.tolist(), len(words.ids)]
    for number in range(len(words.firsts) - 1, -1, -1):
        if behind[number] == NONE:
            behind[number] = behind[number + 1]  # before the token of the next word
    missing = np.flatnonzero(words.firsts == NONE)
    ids = np.insert(words.ids, [behind[number] for number in missing], UNK_ID)
    before = np.cumsum(words.firsts == NONE) - (words.firsts == NONE)
    return EncodedWords(ids, np.array(behind[:-1], np.int64) + before)
