"""Labeled rows: texts and pairs for encoders, documents for hierarchical models.

A text row is ``[CLS] text [SEP]`` or ``[CLS] text [SEP] text2 [SEP]``, with two ``[SEP]`` between texts for RoBERTa;
it is stored with these special tokens. A document row contains the ids of its sentences, each followed by EOS. Labels
are in a second store, one id per row. Letters: B rows or documents, T tokens per row.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from attnkit.data.loader import TensorBatch
from attnkit.data.store import Store
from attnkit.errors import RunError
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID

Integers = npt.NDArray[np.int64]
Sentences = Sequence[Sequence[int]]
Collate = Callable[[Integers, Integers, Integers], TensorBatch]  #: (ids, lengths, labels) of rows -> batch


class LabeledRows:
    """Stores of rows and of one label per row; satisfies ``loader.Dataset``."""

    def __init__(self, folder: Path, name: str, collate: Collate, n_targets: int = 0) -> None:
        """Open the stores ``name`` and ``labels``; raise ``RunError`` if damaged."""
        self.rows, self.labels = Store.open(folder / name), Store.open(folder / "labels")
        self._collate, self._n_targets = collate, n_targets
        if len(self.rows) != len(self.labels) or self.labels.lengths.tolist() != [1] * len(self.labels):
            raise RunError("the stored texts are damaged: not exactly one label per text", where=str(folder))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fingerprint(self) -> str:
        """Hash of all ids, row boundaries and labels."""
        return hashlib.sha256((self.rows.fingerprint + self.labels.fingerprint).encode()).hexdigest()

    @functools.cached_property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the tokens and the targets of each row, (n,) each."""
        return self.rows.lengths, np.full(len(self), self._n_targets, np.int32)

    def batch(self, indices: Integers, seed: int = 0, epoch: int = 0) -> TensorBatch:
        """Return the rows at ``indices``, in order; seed and epoch are ignored."""
        return self._collate(*self.rows.gather(indices), self.labels.gather(indices)[0])

    def counts(self, indices: Integers, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return the number of rows at ``indices``."""
        return {"nll": len(indices)}

    def label_counts(self, n_labels: int) -> list[int]:
        """Return the number of rows per label."""
        return list(map(int, np.bincount(self.labels.ids, minlength=n_labels)))


class LabeledBatch:
    """Base class of batches whose last field contains the labels."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Arguments of a classifier: all tensors except the labels."""
        return tuple(vars(self).values())[:-1]


@dataclass(frozen=True)
class TextBatch(LabeledBatch, TensorBatch):
    """Rows of texts or text pairs, padded at the end."""

    ids: Tensor  #: (B, T) int64
    real: Tensor  #: (B, T) bool, True at tokens
    segments: Tensor  #: (B, T) int64, 1 at the tokens of a second text and its final separator
    labels: Tensor  #: (B,) int64; empty if unknown


def text_rows(folder: Path, separators: int = 1) -> LabeledRows:
    """Open stored texts and their labels."""
    return LabeledRows(folder, "texts", partial(_collate_texts, separators=separators))


def join(text: Sequence[int], text2: Sequence[int] | None, longest: int, separators: int = 1) -> tuple[list[int], bool]:
    """Return the row of one or two texts, and whether a text was truncated.

    The longer of two texts is truncated first (code of Devlin et al.); ``separators`` EOS tokens separate the texts.

    >>> join([7, 7, 7, 7], [8], longest=7)
    ([1, 7, 7, 7, 2, 8, 2], True)
    >>> join([7, 7], [8], longest=7, separators=2)
    ([1, 7, 7, 2, 2, 8, 2], False)
    """
    if text2 is None:
        n = min(len(text), longest - 2)
        return [BOS_ID, *text[:n], EOS_ID], n < len(text)
    room = longest - 2 - separators
    n = min(len(text), max(room - len(text2), (room + 1) // 2))
    n2 = min(len(text2), room - n)
    between = [EOS_ID] * separators
    return [BOS_ID, *text[:n], *between, *text2[:n2], EOS_ID], n < len(text) or n2 < len(text2)


def text_batch(rows: Sequence[Sequence[int]], separators: int = 1) -> TextBatch:
    """Build a batch from unlabeled rows of ``join``, at least one."""
    return _collate_texts(*_ragged(rows), np.empty(0, np.int64), separators)


def _ragged(rows: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    return np.array([id for row in rows for id in row], np.int64), np.array([len(row) for row in rows], np.int64)


def _collate_texts(ids: Integers, lengths: Integers, labels: Integers, separators: int) -> TextBatch:
    real = np.arange(int(lengths.max())) < lengths[:, None]  # (B, T)
    rows = np.full(real.shape, PAD_ID, np.int64)
    rows[real] = ids
    ends = rows == EOS_ID
    # The second segment starts after the last separator.
    segments = (np.cumsum(ends, axis=1) - ends >= separators) & real
    return TextBatch(*(torch.from_numpy(array) for array in (rows, real, segments.astype(np.int64), labels)))


@dataclass(frozen=True)
class DocumentBatch(LabeledBatch, TensorBatch):
    """B documents of at most S sentences; N sentences in total, of at most W words."""

    words: Tensor  #: (N, W) int64, sentences of all documents in order
    word_mask: Tensor  #: (N, W) bool, True at words
    places: Tensor  #: (B, S) int64, row in ``words`` of each sentence, 0 at padding
    sentence_mask: Tensor  #: (B, S) bool, True at sentences
    labels: Tensor  #: (B,) int64; empty if unknown


def document_rows(folder: Path) -> LabeledRows:
    """Open stored documents; inputs are words and sentence ends, targets are labels."""
    return LabeledRows(folder, "documents", _collate_documents, n_targets=1)


def flatten(sentences: Sentences) -> list[int]:
    """Return the stored row of a document: its sentences, each followed by EOS."""
    return [id for sentence in sentences for id in (*sentence, EOS_ID)]


def document_batch(documents: Sequence[Sentences]) -> DocumentBatch:
    """Build a batch from unlabeled documents; a document may have no sentences."""
    return _collate_documents(*_ragged([flatten(sentences) for sentences in documents]), np.empty(0, np.int64))


def _collate_documents(ids: Integers, lengths: Integers, labels: Integers) -> DocumentBatch:
    ends = np.flatnonzero(ids == EOS_ID)  # (N,)
    sizes = np.diff(ends, prepend=-1) - 1  # (N,) words of each sentence
    n_sentences = np.diff(np.searchsorted(ends, np.cumsum(lengths)), prepend=0)  # (B,)
    columns = np.arange(max(1, int(sizes.max(initial=0))))
    word_mask = columns < sizes[:, None]  # (N, W)
    words = np.full(word_mask.shape, PAD_ID, np.int64)
    words[word_mask] = ids[ids != EOS_ID]
    if not len(words):  # no document has a sentence
        words, word_mask = np.full((1, 1), PAD_ID, np.int64), np.zeros((1, 1), np.bool_)
    sentence_mask = np.arange(max(1, int(n_sentences.max()))) < n_sentences[:, None]  # (B, S)
    places = np.zeros(sentence_mask.shape, np.int64)
    places[sentence_mask] = np.arange(len(ends))
    arrays = words, word_mask, places, sentence_mask, labels
    return DocumentBatch(*(torch.from_numpy(array) for array in arrays))
