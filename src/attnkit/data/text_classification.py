"""Labeled texts and pairs of texts as rows for an encoder: ``[CLS] text [SEP]`` or ``[CLS] text [SEP] text2 [SEP]``,
with one more ``[SEP]`` between the two for RoBERTa.

A row is stored as it is read, its symbols included; where the first text ends tells the second one's segment. Its label
is a row of one id. Letters: B rows, T tokens of a row.
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
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID

Integers = npt.NDArray[np.int64]
Row = tuple[list[int], int]


@dataclass(frozen=True)
class TextBatch:
    """Rows of texts, padded behind."""

    ids: Tensor
    """(B, T) int64."""
    real: Tensor
    """(B, T) bool, True at tokens."""
    segments: Tensor
    """(B, T) int64, 1 at the tokens of a second text and the symbol behind it."""
    labels: Tensor
    """(B,) int64; empty where there are none."""

    def to(self, device: torch.device | str) -> TextBatch:
        """Return the batch on another device."""
        return TextBatch(*(part.to(device, non_blocking=True) for part in (*self.inputs, self.labels)))

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What a classifier takes."""
        return self.ids, self.real, self.segments


class TextClassificationDataset:
    """Texts and their labels; satisfies ``loader.Dataset``."""

    def __init__(self, texts: Store, labels: Store, separators: int = 1) -> None:
        if len(texts) != len(labels):
            raise ValueError(f"{len(texts)} texts for {len(labels)} labels")
        self.texts = texts
        self.labels = labels
        self.separators = separators

    @classmethod
    def open(cls, folder: Path, separators: int = 1) -> TextClassificationDataset:
        """Open what ``write_texts`` wrote. Raises ``RunError`` naming the file that is wrong."""
        texts, labels = Store.open(folder / "texts"), Store.open(folder / "labels")
        if len(texts) != len(labels) or labels.lengths.tolist() != [1] * len(labels):
            raise RunError("the stored texts are damaged: there is not one label for each", where=str(folder))
        return cls(texts, labels, separators)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def fingerprint(self) -> str:
        """Changes with any id, any border and any label."""
        return hashlib.sha256((self.texts.fingerprint + self.labels.fingerprint).encode()).hexdigest()

    @functools.cached_property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """(n,) tokens of each row, and nothing more."""
        return self.texts.lengths, np.zeros(len(self), np.int32)

    def batch(self, indices: Integers, seed: int = 0, epoch: int = 0) -> TextBatch:
        """Return the rows at ``indices``, in their order; they are the same in every epoch."""
        ids, lengths = self.texts.gather(indices)
        return _collate(ids, lengths, self.labels.gather(indices)[0], self.separators)

    def counts(self, indices: Integers, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return how many rows these are."""
        return {"nll": len(indices)}

    def label_counts(self, n_labels: int) -> list[int]:
        """Return how often each label occurs."""
        found: list[int] = np.bincount(self.labels.ids, minlength=n_labels).tolist()
        return found


def write_texts(folder: Path, rows: Iterable[Row], vocab_size: int, n_labels: int) -> None:
    """Write rows and their labels into a new folder."""
    for name in ("texts", "labels"):
        atomic.make_dirs(folder / name)
    with store_writer(folder / "texts", vocab_size) as texts, store_writer(folder / "labels", n_labels) as labels:
        for ids, label in rows:
            texts.add([ids])
            labels.add([[label]])


def join(text: Sequence[int], text2: Sequence[int] | None, longest: int, separators: int = 1) -> tuple[list[int], bool]:
    """Return the row of a text, or of two, and whether the end of any was left out so that the row fits.

    Of two texts the longer one is cut first, as in Devlin et al.'s code; ``separators`` ends stand between them.

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
    """Return the batch of rows of ``join``, at least one, that nobody has labeled."""
    ids = np.array([id for row in rows for id in row], np.int64)
    return _collate(ids, np.array([len(row) for row in rows], np.int64), np.empty(0, np.int64), separators)


def _collate(ids: Integers, lengths: Integers, labels: Integers, separators: int) -> TextBatch:
    real = np.arange(int(lengths.max())) < lengths[:, None]
    rows = np.full(real.shape, PAD_ID, np.int64)
    rows[real] = ids
    ends = rows == EOS_ID
    ended = np.cumsum(ends, axis=1) - ends >= separators  # behind what stands between the texts
    arrays = rows, real, (ended & real).astype(np.int64), labels
    return TextBatch(*(torch.from_numpy(array) for array in arrays))
