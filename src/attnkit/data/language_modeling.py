"""Packed documents as rows for training: masked tokens to guess (BERT), or the next token at every place (GPT).

Letters: B rows, T tokens of a row, N tokens to predict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnkit.data.config import MaskingConfig
from attnkit.data.masking import Masking, MaskVocabulary
from attnkit.data.packed_batches import Bools, Ids, PackedBatch, PackedCorpora, PackedDataset
from attnkit.protocols import BOS_ID, PAD_ID
from attnkit.text.offsets import WordBoundaries


@dataclass(frozen=True)
class LanguageModelBatch:
    """A batch of rows."""

    ids: Tensor
    """(B, T) int64 what the model reads."""
    n_unmixed: int
    """The first rows are one passage each, without padding."""
    passages: Tensor | None
    """(B, T) int64 the passage of each token, counted in each row; padding is one too. None if all rows are whole."""
    chosen: Tensor
    """(N,) int64 places in the flattened rows that are predicted, ascending."""
    targets: Tensor
    """(N,) int64 the tokens to predict there."""
    numbers: Ids
    """(B,) the numbers of the rows, in the order they are laid in."""
    segments: Tensor | None = None
    """(B, T) int64 the segment of each token of a pair, None without pairs."""
    follows: Tensor | None = None
    """(B,) int64, 0 where the second segment of a pair follows the first in its text, else 1."""
    bounds: Tensor | None = None
    """(P + 1,) int32, where each passage begins in the flattened rows, and where the last one ends; None if all rows
    are whole."""

    def to(self, device: torch.device | str) -> LanguageModelBatch:
        """Return the batch on another device."""
        parts = vars(self).items()
        moved: Any = {name: part.to(device, non_blocking=True) for name, part in parts if isinstance(part, Tensor)}
        return replace(self, **moved)


class MlmDataset(PackedDataset):
    """Rows of ``[CLS] … [SEP]`` with masked tokens; satisfies ``loader.Dataset``."""

    def __init__(
        self, corpora: PackedCorpora, masking: MaskingConfig, words: MaskVocabulary, joints: WordBoundaries
    ) -> None:
        """Take the documents, how to mask, the vocabulary's words, and how they join."""
        super().__init__(corpora, ends=2)
        self.masking, self.words, self.joints = masking, words, joints

    @property
    def fingerprint(self) -> str:
        """Hash that changes with any id, and with any border of documents and corpora."""
        return self.corpora.fingerprint

    def batch(self, indices: Ids, seed: int, epoch: int) -> LanguageModelBatch:
        """Return the rows at ``indices`` as this epoch hides their tokens, whole rows first."""
        laid = self.collate(indices)
        masked = self._masking(seed, epoch).apply(laid.ids, self._free(laid), self._begins(laid), laid.numbers)
        return make_batch(laid, masked.ids, masked.chosen, masked.targets)

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        """Return how many tokens of these rows this epoch hides; 1 if none, since sums are divided by it."""
        if self.masking.mask_unit == "tokens" and self.words.unknown is None:
            n_chosen = int(self._masking(seed, epoch).counts(indices, self.n_free(indices)).sum())
        else:
            laid = self.collate(indices)
            n_chosen = self._masking(seed, epoch).choose(self._free(laid), self._begins(laid), laid.numbers).sum()
        return {"nll": max(1, int(n_chosen))}

    def _masking(self, seed: int, epoch: int) -> Masking:
        return Masking(self.masking, self.words, seed, epoch)

    def _begins(self, laid: PackedBatch) -> Bools | None:
        return None if self.masking.mask_unit == "tokens" else self.joints.word_starts(laid.ids)

    def _free(self, laid: PackedBatch) -> Bools:
        return laid.maskable if self.words.unknown is None else laid.maskable & (laid.ids != self.words.unknown)


class ClmDataset(PackedDataset):
    """Rows whose every token is predicted from those before it in its document; satisfies ``loader.Dataset``.

    Documents hold their end symbol. A piece reads the begin symbol first, or, where it continues with a document, the
    token before it.
    """

    def __init__(self, corpora: PackedCorpora) -> None:
        super().__init__(corpora, ends=0)

    @property
    def fingerprint(self) -> str:
        """Hash that changes with any id, and with any border of documents and corpora."""
        return hashlib.sha256(b"next:" + self.corpora.fingerprint.encode()).hexdigest()

    def batch(self, indices: Ids, seed: int = 0, epoch: int = 0) -> LanguageModelBatch:
        """Return the rows at ``indices``, whole rows first; they are the same in every epoch."""
        laid = self.collate(indices)
        chosen = np.flatnonzero(laid.maskable)
        read = np.full(laid.ids.shape, PAD_ID, np.int64)
        read[:, 1:] = laid.ids[:, :-1]
        first = np.ones(laid.ids.shape, np.bool_)
        first[:, 1:] = laid.pieces[:, 1:] != laid.pieces[:, :-1]
        rows, columns = np.nonzero(first & laid.maskable)
        read[rows, columns] = self._before(laid, rows, columns)
        read[~laid.maskable] = PAD_ID
        return make_batch(laid, read, chosen, laid.ids.reshape(-1)[chosen])

    def counts(self, indices: Ids, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return how many tokens these rows have."""
        return {"nll": int(self.n_free(indices).sum())}

    def _before(self, laid: PackedBatch, rows: Ids, columns: Ids) -> Ids:
        """Return the token before each piece that begins at these positions."""
        piece = self.packing.row_starts[self.mixture.rows(laid.numbers[rows])] + laid.pieces[rows, columns]
        skip = self.packing.offsets[piece]
        found = np.full(len(piece), BOS_ID, np.int64)
        inside = skip > 0  # pieces that continue a document
        documents = self.packing.documents[piece[inside]].astype(np.int64)
        found[inside] = self.store.gather_parts(documents, skip[inside] - 1, np.ones(len(documents), np.int64))
        return found


def make_batch(laid: PackedBatch, ids: Ids, chosen: Ids, targets: Ids) -> LanguageModelBatch:
    """Return a batch of rows that were laid out: what is read, and what is predicted."""
    read, numbers, places, words = (torch.from_numpy(part) for part in (ids, laid.passages, chosen, targets))
    if laid.n_unmixed == len(ids):
        return LanguageModelBatch(read, laid.n_unmixed, None, places, words, laid.numbers)
    begins = np.ones(laid.passages.shape, np.bool_)
    begins[:, 1:] = laid.passages[:, 1:] != laid.passages[:, :-1]
    bounds = torch.from_numpy(np.append(np.flatnonzero(begins), begins.size).astype(np.int32))
    return LanguageModelBatch(read, laid.n_unmixed, numbers, places, words, laid.numbers, bounds=bounds)
