"""Packed documents as rows for training: masked tokens to guess (BERT), or the next token at every place (GPT).

Letters: B rows, T tokens of a row, N tokens to predict.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnkit.data.config import MaskingConfig
from attnkit.data.loader import TensorBatch
from attnkit.data.masking import Masking, MaskVocabulary
from attnkit.data.packed_batches import PackedBatch, PackedCorpora, PackedDataset
from attnkit.data.permutation import Bools, Ids
from attnkit.protocols import BOS_ID, PAD_ID
from attnkit.text.offsets import WordBoundaries


@dataclass(frozen=True)
class LanguageModelBatch(TensorBatch):
    """A batch of rows."""

    ids: Tensor  #: (B, T) int64 what the model reads
    n_unmixed: int  #: the first rows are one passage each, without padding
    passages: Tensor | None
    """(B, T) int64 the passage of each token, counted in each row; padding is one too. None if all rows are whole."""
    chosen: Tensor  #: (N,) int64 places in the flattened rows that are predicted, ascending
    targets: Tensor  #: (N,) int64 the tokens to predict there
    numbers: Ids  #: (B,) the number of each row of the batch
    segments: Tensor | None = None  #: (B, T) int64 the segment of each token of a pair, None without pairs
    follows: Tensor | None = None
    """(B,) int64, 0 where the second segment of a pair follows the first in its text, else 1."""
    bounds: Tensor | None = None
    """(P + 1,) int32, where each passage begins in the flattened rows, and where the last one ends; None if all rows
    are whole."""


@dataclass(frozen=True)
class MlmMasking:
    """Masking of packed rows."""

    config: MaskingConfig
    words: MaskVocabulary
    boundaries: WordBoundaries

    def batch(self, packed: PackedBatch, seed: int, epoch: int) -> LanguageModelBatch:
        """Return rows with the tokens masked that this epoch chooses."""
        masking, free, starts = self._rows(packed, seed, epoch)
        masked = masking.apply(packed.ids, free, starts, packed.numbers)
        return make_batch(packed, masked.ids, masked.chosen, masked.targets)

    def count(self, packed: PackedBatch, seed: int, epoch: int) -> int:
        """Return the number of masked tokens, at least 1: the divisor of the loss."""
        masking, free, starts = self._rows(packed, seed, epoch)
        return max(1, int(masking.choose(free, starts, packed.numbers).sum()))

    def _rows(self, packed: PackedBatch, seed: int, epoch: int) -> tuple[Masking, Bools, Bools | None]:
        """Return the masking, and (B, T) where tokens may be chosen and where words start, if these are the units."""
        unknown = self.words.unknown
        free = packed.maskable if unknown is None else packed.maskable & (packed.ids != unknown)
        starts = None if self.config.mask_unit == "tokens" else self.boundaries.word_starts(packed.ids)
        return Masking(self.config, self.words, seed, epoch), free, starts


class MlmDataset(PackedDataset):
    """Rows of ``[CLS] … [SEP]`` with masked tokens; satisfies ``loader.Dataset``."""

    def __init__(self, corpora: PackedCorpora, masking: MlmMasking) -> None:
        super().__init__(corpora, ends=2)
        self.masking = masking

    def batch(self, indices: Ids, seed: int, epoch: int) -> LanguageModelBatch:
        """Return the rows at ``indices`` as this epoch masks their tokens, whole rows first."""
        return self.masking.batch(self.collate(indices), seed, epoch)

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        """Return how many tokens of these rows this epoch masks, at least 1."""
        config, words = self.masking.config, self.masking.words
        if config.mask_unit == "tokens" and words.unknown is None:  # known without reading the rows
            n_chosen = Masking(config, words, seed, epoch).counts(indices, self.n_free(indices)).sum()
            return {"nll": max(1, int(n_chosen))}
        return {"nll": self.masking.count(self.collate(indices), seed, epoch)}


class ClmDataset(PackedDataset):
    """Rows whose every token is predicted from those before it in its document; satisfies ``loader.Dataset``.

    Documents hold their end symbol. A piece reads the begin symbol first, or, where it continues with a document, the
    token before it.
    """

    def __init__(self, corpora: PackedCorpora) -> None:
        super().__init__(corpora, ends=0)
        self.fingerprint = hashlib.sha256(b"next:" + corpora.fingerprint.encode()).hexdigest()

    def batch(self, indices: Ids, seed: int = 0, epoch: int = 0) -> LanguageModelBatch:
        """Return the rows at ``indices``, whole rows first; they are the same in every epoch."""
        packed = self.collate(indices)
        chosen = np.flatnonzero(packed.maskable)
        read = np.full(packed.ids.shape, PAD_ID, np.int64)
        read[:, 1:] = packed.ids[:, :-1]
        first = np.ones(packed.ids.shape, np.bool_)
        first[:, 1:] = packed.pieces[:, 1:] != packed.pieces[:, :-1]
        rows, columns = np.nonzero(first & packed.maskable)
        read[rows, columns] = self._before(packed, rows, columns)
        read[~packed.maskable] = PAD_ID
        return make_batch(packed, read, chosen, packed.ids.reshape(-1)[chosen])

    def counts(self, indices: Ids, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return how many tokens these rows have."""
        return {"nll": int(self.n_free(indices).sum())}

    def _before(self, packed: PackedBatch, rows: Ids, columns: Ids) -> Ids:
        """Return the token before each piece that begins at these positions."""
        piece = self.packing.row_starts[self.mixture.rows(packed.numbers[rows])] + packed.pieces[rows, columns]
        skip = self.packing.offsets[piece]
        before = np.full(len(piece), BOS_ID, np.int64)
        inside = skip > 0  # pieces that continue a document
        documents = self.packing.documents[piece[inside]].astype(np.int64)
        before[inside] = self.store.gather_parts(documents, skip[inside] - 1, np.ones(len(documents), np.int64))
        return before


def make_batch(packed: PackedBatch, ids: Ids, chosen: Ids, targets: Ids) -> LanguageModelBatch:
    """Return a batch of packed rows: inputs and targets."""
    read, passages, places, words = (torch.from_numpy(part) for part in (ids, packed.passages, chosen, targets))
    if packed.n_unmixed == len(ids):
        return LanguageModelBatch(read, packed.n_unmixed, None, places, words, packed.numbers)
    begins = np.ones(packed.passages.shape, np.bool_)
    begins[:, 1:] = packed.passages[:, 1:] != packed.passages[:, :-1]
    bounds = torch.from_numpy(np.append(np.flatnonzero(begins), begins.size).astype(np.int32))
    return LanguageModelBatch(read, packed.n_unmixed, passages, places, words, packed.numbers, bounds=bounds)
