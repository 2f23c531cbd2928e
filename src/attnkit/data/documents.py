"""Labeled documents on disk, and the batches made of them.

A document is a row of a store: the ids of its sentences, each closed by the end symbol. Its label is a row of one id.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from attnkit.data.store import Store, store_writer
from attnkit.errors import RunError
from attnkit.io import atomic
from attnkit.protocols import EOS_ID, PAD_ID

Integers = npt.NDArray[np.int64]
Sentences = Sequence[Sequence[int]]


@dataclass(frozen=True)
class DocumentBatch:
    """A batch of documents: B of them, S sentences the longest, N sentences all together, W words the longest one."""

    words: Tensor
    """(N, W) int64, the sentences of all documents, one after another."""
    word_mask: Tensor
    """(N, W) bool, True where a word is real."""
    places: Tensor
    """(B, S) int64, the sentence at each place of each document; 0 where none is."""
    sentence_mask: Tensor
    """(B, S) bool, True where a sentence is."""
    labels: Tensor
    """(B,) int64; empty where there are none."""

    def to(self, device: torch.device | str) -> DocumentBatch:
        """Return the batch on another device."""
        return DocumentBatch(*(part.to(device, non_blocking=True) for part in (*self.inputs, self.labels)))

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What a document model takes."""
        return self.words, self.word_mask, self.places, self.sentence_mask


class DocumentDataset:
    """Documents and their labels; satisfies ``loader.Dataset``."""

    def __init__(self, documents: Store, labels: Store) -> None:
        if len(documents) != len(labels):
            raise ValueError(f"{len(documents)} documents for {len(labels)} labels")
        self.documents = documents
        self.labels = labels

    @classmethod
    def open(cls, folder: Path) -> DocumentDataset:
        """Open what ``write_documents`` wrote. Raises ``RunError`` naming the file that is wrong."""
        documents, labels = Store.open(folder / "documents"), Store.open(folder / "labels")
        if len(documents) != len(labels) or labels.lengths.tolist() != [1] * len(labels):
            raise RunError("the stored documents are damaged: there is not one label for each", where=str(folder))
        return cls(documents, labels)

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def fingerprint(self) -> str:
        """Changes with any id, any border and any label."""
        return hashlib.sha256((self.documents.fingerprint + self.labels.fingerprint).encode()).hexdigest()

    @functools.cached_property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """(n,) words of each document with the ends of its sentences; and 1 each, for its label."""
        return self.documents.lengths, np.ones(len(self), np.int32)

    def batch(self, indices: Integers, seed: int = 0, epoch: int = 0) -> DocumentBatch:
        """Return the documents at ``indices``, in their order; they are the same in every epoch."""
        ids, lengths = self.documents.gather(indices)
        return _collate(ids, lengths, self.labels.gather(indices)[0])

    def counts(self, indices: Integers, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return how many documents these are."""
        return {"nll": len(indices)}


def write_documents(folder: Path, documents: Iterable[tuple[Sentences, int]], vocab_size: int, n_labels: int) -> None:
    """Write encoded documents and their labels into a new folder."""
    for name in ("documents", "labels"):
        atomic.make_dirs(folder / name)
    with store_writer(folder / "documents", vocab_size) as rows, store_writer(folder / "labels", n_labels) as labels:
        for sentences, label in documents:
            rows.add([flatten(sentences)])
            labels.add([[label]])


def batch_of(documents: Sequence[Sentences]) -> DocumentBatch:
    """Return the batch of documents that nobody has labeled; one may have no sentences at all."""
    rows = [flatten(sentences) for sentences in documents]
    ids = np.array([id for row in rows for id in row], np.int64)
    return _collate(ids, np.array([len(row) for row in rows], np.int64), np.empty(0, np.int64))


def flatten(sentences: Sentences) -> list[int]:
    """Return the ids of sentences end to end, each closed by the end symbol."""
    return [id for sentence in sentences for id in (*sentence, EOS_ID)]


def _collate(ids: Integers, lengths: Integers, labels: Integers) -> DocumentBatch:
    ends = np.flatnonzero(ids == EOS_ID)
    sizes = np.diff(ends, prepend=-1) - 1  # words of each sentence
    n_sentences = np.diff(np.searchsorted(ends, np.cumsum(lengths)), prepend=0)
    columns = np.arange(max(1, int(sizes.max(initial=0))))
    word_mask = columns < sizes[:, None]
    words = np.full(word_mask.shape, PAD_ID, np.int64)
    words[word_mask] = ids[ids != EOS_ID]
    if not len(words):  # no document has a sentence
        words, word_mask = np.full((1, 1), PAD_ID, np.int64), np.zeros((1, 1), np.bool_)
    sentence_mask = np.arange(max(1, int(n_sentences.max()))) < n_sentences[:, None]
    places = np.zeros(sentence_mask.shape, np.int64)
    places[sentence_mask] = np.arange(len(ends))
    arrays = words, word_mask, places, sentence_mask, labels
    return DocumentBatch(*(torch.from_numpy(array) for array in arrays))
