"""Batches of packed documents for masked (BERT) and causal (GPT) language models.

Letters: B rows, T tokens per row, N tokens to predict, P passages.
"""

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    """A batch of packed rows with the tokens to predict."""

    ids: Tensor  #: (B, T) int64 input of the model
    n_unmixed: int  #: number of rows at the front that are a single passage without padding
    passages: Tensor | None
    """(B, T) int64 passage of each token within its row, padding counted as one. None if no row is mixed or padded."""
    chosen: Tensor  #: (N,) int64 positions to predict in the flattened rows, ascending
    targets: Tensor  #: (N,) int64 tokens to predict at ``chosen``
    numbers: Ids  #: (B,) occurrence number of each row
    segments: Tensor | None = None  #: (B, T) int64 segment of each token; None without segment pairs
    follows: Tensor | None = None
    """(B,) int64, 0 if the second segment of a pair follows the first in the text, else 1."""
    bounds: Tensor | None = None
    """(P + 1,) int32 start of each passage in the flattened rows, followed by the end of the last one. None if no row
    is mixed or padded."""
    draws: Tensor | None = None
    """(N,) float32 numbers in [0, 1) that determine the replacements at ``chosen``. None if nothing is replaced."""


@dataclass(frozen=True)
class MlmMasking:
    """Token masking of packed rows."""

    config: MaskingConfig
    words: MaskVocabulary
    boundaries: WordBoundaries
    replaces: bool = False  #: whether a generator replaces the masked tokens: batches then have ``draws``

    def at(self, progress: float) -> "MlmMasking":
        """Return the masking after a share of the run in [0, 1]."""
        return replace(self, config=self.config.at(progress))

    def batch(self, packed: PackedBatch, seed: int, epoch: int) -> LanguageModelBatch:
        """Return packed rows with this epoch's masking."""
        masking, free, starts = self._rows(packed, seed, epoch)
        masked = masking.apply(packed.ids, free, starts, packed.numbers)
        batch = make_batch(packed, masked.ids, masked.chosen, masked.targets)
        if not self.replaces:
            return batch
        draws = masking.draws(masked.chosen, packed.numbers, packed.ids.shape[1])
        below_one = np.minimum(draws, 1 - 2**-24).astype(np.float32)  # which rounding might give
        return replace(batch, draws=torch.from_numpy(below_one))

    def count(self, packed: PackedBatch, seed: int, epoch: int) -> int:
        """Return the number of masked tokens (at least 1), the divisor of the loss."""
        masking, free, starts = self._rows(packed, seed, epoch)
        return max(1, int(masking.choose(free, starts, packed.numbers).sum()))

    def _rows(self, packed: PackedBatch, seed: int, epoch: int) -> tuple[Masking, Bools, Bools | None]:
        """Return the masking, and the maskable tokens and any word starts, (B, T) each."""
        unknown = self.words.unknown
        free = packed.maskable if unknown is None else packed.maskable & (packed.ids != unknown)
        starts = None if self.config.mask_unit == "tokens" else self.boundaries.word_starts(packed.ids)
        return Masking(self.config, self.words, seed, epoch), free, starts


class MlmDataset(PackedDataset):
    """Rows of ``[CLS] … [SEP]`` with masked tokens; satisfies ``loader.Dataset``."""

    def __init__(self, corpora: PackedCorpora, masking: MlmMasking) -> None:
        super().__init__(corpora, ends=2)
        self.masking = masking

    def at(self, progress: float) -> "MlmDataset":
        """Return the rows as they are masked after a share of the run in [0, 1].

        Nothing is copied. Of the same row and epoch, a higher rate selects what a lower one does, and more.
        """
        rows = copy.copy(self)
        rows.masking = self.masking.at(progress)
        return rows

    def batch(self, indices: Ids, seed: int, epoch: int) -> LanguageModelBatch:
        """Return this epoch's masked rows at ``indices``, single-passage rows first."""
        return self.masking.batch(self.collate(indices), seed, epoch)

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        """Return the number of masked tokens at ``indices``, at least 1.

        If they are replaced, tokens of both kinds are to be detected: that of all tokens, special ones included.
        """
        counted = {"nll": self._n_masked(indices, seed, epoch)}
        if self.masking.replaces:
            counted["detection"] = int(self.sizes[self.mixture.rows(indices)].sum(dtype=np.int64))
        return counted

    def _n_masked(self, indices: Ids, seed: int, epoch: int) -> int:
        config, words = self.masking.config, self.masking.words
        if config.mask_unit == "tokens" and words.unknown is None:  # known without reading the rows
            n_chosen = Masking(config, words, seed, epoch).counts(indices, self.n_free(indices)).sum()
            return max(1, int(n_chosen))
        return self.masking.count(self.collate(indices), seed, epoch)


class ClmDataset(PackedDataset):
    """Rows for next-token prediction within documents; satisfies ``loader.Dataset``.

    Stored documents include EOS. The first input of a piece is BOS or, if the piece continues a document, the token
    before it.
    """

    def __init__(self, corpora: PackedCorpora) -> None:
        super().__init__(corpora, ends=0)
        self.fingerprint = hashlib.sha256(b"next:" + corpora.fingerprint.encode()).hexdigest()

    def batch(self, indices: Ids, seed: int = 0, epoch: int = 0) -> LanguageModelBatch:
        """Return the rows at ``indices``, single-passage rows first; epoch is ignored."""
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
        """Return the number of tokens at ``indices``."""
        return {"nll": int(self.n_free(indices).sum())}

    def _before(self, packed: PackedBatch, rows: Ids, columns: Ids) -> Ids:
        """Return the token before each piece that starts at these positions, or BOS."""
        piece = self.packing.row_starts[self.mixture.rows(packed.numbers[rows])] + packed.pieces[rows, columns]
        skip = self.packing.offsets[piece]
        before = np.full(len(piece), BOS_ID, np.int64)
        inside = skip > 0  # pieces that continue a document
        documents = self.packing.documents[piece[inside]].astype(np.int64)
        before[inside] = self.store.gather_parts(documents, skip[inside] - 1, np.ones(len(documents), np.int64))
        return before


def make_batch(packed: PackedBatch, ids: Ids, chosen: Ids, targets: Ids) -> LanguageModelBatch:
    """Build a batch from packed rows, their inputs and their targets."""
    read, passages, places, words = (torch.from_numpy(part) for part in (ids, packed.passages, chosen, targets))
    if packed.n_unmixed == len(ids):
        return LanguageModelBatch(read, packed.n_unmixed, None, places, words, packed.numbers)
    begins = np.ones(packed.passages.shape, np.bool_)
    begins[:, 1:] = packed.passages[:, 1:] != packed.passages[:, :-1]
    bounds = torch.from_numpy(np.append(np.flatnonzero(begins), begins.size).astype(np.int32))
    return LanguageModelBatch(read, packed.n_unmixed, passages, places, words, packed.numbers, bounds=bounds)
