"""Sentences whose words have tags, as rows for a model that tags tokens.

A row is ``[CLS] piece [SEP]``, a piece being a sentence, or a part of one that is longer than a row. Parts overlap, and
each word is tagged in the one that shows the most context of its first token, so every word is tagged once.
Letters: W rows of pieces, B rows of a batch, T tokens of a row, N words of a batch.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from attnkit.data.loader import TensorBatch
from attnkit.data.question_answering import Longs, Texts, cut_windows
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attnkit.text.offsets import NONE, EncodedWords

UNKNOWN = -1
"""The tag of a word that has none, or one that the model does not know."""
_INSIDE, _FIRST = 0, 1  # marks of tokens; the first one of a word with the tag t has the mark _FIRST + 1 + t
_AT_ONCE = 1 << 14  # rows


@dataclass(frozen=True)
class TagBatch(TensorBatch):
    """Rows of pieces, padded at the end."""

    ids: Tensor
    """(B, T) int64."""
    real: Tensor
    """(B, T) bool, True at tokens."""
    firsts: Tensor
    """(N,) int64 places, in ``ids`` laid flat, of the first tokens of the words that these rows are the best for."""
    labels: Tensor
    """(N,) int64 tags of these words, ``UNKNOWN`` if a tag is not known."""


class TokenClassificationDataset:
    """Pieces of sentences with the tags of their words; satisfies ``loader.Dataset``."""

    def __init__(self, texts: Texts, marks: Texts, longest: int) -> None:
        """Take n sentences.

        Args:
            texts: their tokens.
            marks: what ``first_subword_mask`` says of each token.
            longest: most tokens of a row, the two symbols around the piece included. Parts of a sentence that is longer
                have half of it in common with the part before, or more.
        """
        self._texts, self._marks = texts, marks
        lengths = texts.lengths.astype(np.int64)
        room = longest - 2
        self.windows = cut_windows(lengths, np.full_like(lengths, room), max(1, room // 2))
        self.sentences: Longs = self.windows.contexts
        """(W,) the sentence of each row. The rows of one follow each other, and so do the words that they tag."""

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def fingerprint(self) -> str:
        """Hash that changes with any token, any tag, any border and any piece."""
        borders = np.concatenate([self.windows.begins, self.windows.ends, self.windows.best_ends])
        texts = (self._texts.fingerprint + self._marks.fingerprint).encode()
        return hashlib.sha256(texts + borders.astype(np.int64).tobytes()).hexdigest()

    @functools.cached_property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """(W,) tokens of each row, and zeros."""
        sizes = 2 + self.windows.ends - self.windows.begins
        return sizes.astype(np.int32), np.zeros(len(self), np.int32)

    @functools.cached_property
    def n_words(self) -> Longs:
        """(W,) words that each row is the best for and whose tag is known."""
        found = np.zeros(len(self), np.int64)
        for rows, marks, owners in self._marked():
            found[rows] = np.bincount(owners[marks > _FIRST], minlength=len(rows))
        return found

    def count_words(self) -> list[int]:
        """Return the number of words per sentence, whether or not their tags are known."""
        found = np.zeros(len(self._texts.lengths), np.int64)
        for rows, marks, owners in self._marked():
            np.add.at(found, self.sentences[rows][owners[marks >= _FIRST]], 1)
        counts: list[int] = found.tolist()
        return counts

    def label_counts(self, n_tags: int) -> list[int]:
        """Return the number of words per tag."""
        totals = np.zeros(n_marks(n_tags), np.int64)
        for _, marks, _ in self._marked():
            totals += np.bincount(marks, minlength=len(totals))
        counts: list[int] = totals[_FIRST + 1 :].tolist()
        return counts

    def _marked(self) -> Iterator[tuple[Longs, Longs, Longs]]:
        """Yield rows, the marks of the tokens that they are the best for, and which of these rows each token is in."""
        for start in range(0, len(self), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(self)))
            begins = self.windows.best_begins[rows]
            sizes = self.windows.best_ends[rows] - begins
            yield rows, self._marks.gather_parts(self.sentences[rows], begins, sizes), np.repeat(rows - start, sizes)

    def batch(self, indices: Longs, seed: int = 0, epoch: int = 0) -> TagBatch:
        """Return the rows at ``indices``, in their order; they are the same in every epoch."""
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
        """Return the number of words tagged in these rows."""
        return {"nll": int(self.n_words[indices].sum())}


def first_subword_mask(words: EncodedWords, tags: Sequence[int] | None = None) -> Longs:
    """Return what there is to know of each token of a sentence: whether it is a word's first one, and the word's tag.

    Args:
        words: each of which has a token, as ``with_tokens`` sees to it.
        tags: of the words, ``UNKNOWN`` where it is not known; None: no tag is.
    """
    marks = np.full(len(words.ids), _INSIDE, np.int64)
    marks[words.firsts] = _FIRST - UNKNOWN + (UNKNOWN if tags is None else np.array(tags, np.int64))
    return marks


def n_marks(n_tags: int) -> int:
    """Return how many marks there are."""
    return _FIRST + 1 + n_tags


def with_tokens(words: EncodedWords) -> EncodedWords:
    """Return the sentence with a token for every word: one of which a vocabulary makes nothing is read as unknown."""
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
