"""Segment pairs for next-sentence prediction (Devlin et al. 2019, section 3.1).

Pairs are resampled every epoch. A row is a piece of one document, split at a sentence end: ``[CLS] A [SEP] B [SEP]``.
In half of the rows, B comes from another document in the same corpus; it starts at a sentence there, too.

Letters: B rows, T tokens per row.
"""

import copy
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from attnkit.data.language_modeling import LanguageModelBatch, MlmMasking
from attnkit.data.packed_batches import CorpusMixture, PackedBatch, PackedCorpora
from attnkit.data.packing import Packing, join_packings
from attnkit.data.permutation import Bools, FeistelPermutation, Ids, Sizes
from attnkit.data.store import ranges
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID

ENDS = 3  #: special tokens added to a pair
_LEAST = 2  # minimum tokens of a document that can be split
_TRIES = 8  #: draws of another document before a row keeps its own, e.g. if it is the only one


def segment_spans(lengths: Sizes, most: int) -> Packing:
    """Split documents into near-equal pieces of at most ``most`` tokens, one per row.

    Documents of one token are dropped.
    """
    kept = np.flatnonzero(lengths >= _LEAST)
    sizes = lengths[kept].astype(np.int64)
    n_pieces = -(-sizes // most)
    owner = np.repeat(np.arange(len(kept)), n_pieces)
    within = ranges(np.zeros_like(n_pieces), n_pieces)  # index of each piece in its document
    begins, ends = (number * sizes[owner] // n_pieces[owner] for number in (within, within + 1))
    documents = kept[owner].astype(np.uint32)
    return Packing(np.arange(len(owner) + 1), documents, begins, (ends - begins).astype(np.int32))


class NspDataset:
    """Masked segment pairs, resampled every epoch; satisfies ``loader.Dataset``."""

    def __init__(self, corpora: PackedCorpora, masking: MlmMasking, sentence_ends: Bools) -> None:
        """Split documents into pieces; ``sentence_ends`` (V,) marks sentence-final ids."""
        self.corpora, self.store, self.masking, self.sentence_ends = corpora, corpora.store, masking, sentence_ends
        lengths = self.store.lengths
        cut = [segment_spans(lengths[span], corpora.row_length - ENDS) for span in corpora.spans]
        self.pieces = join_packings(cut, [span.start for span in corpora.spans])
        self.fingerprint = hashlib.sha256(b"pairs:" + corpora.fingerprint.encode()).hexdigest()
        """Hash of all ids, document boundaries and corpus boundaries."""
        self._document_lengths = lengths
        self._first = np.cumsum([0, *map(len, cut)])
        n_tokens = [int(one.lengths.sum()) for one in cut]
        self.mixture = CorpusMixture([len(one) for one in cut], corpora.weights(n_tokens))

    def __len__(self) -> int:
        return len(self.mixture)

    @functools.cached_property
    def lengths(self) -> tuple[Sizes, Sizes]:
        """Return maximum row lengths minus 1, and ones, (n,); see ``PackedDataset``."""
        return self.mixture.spread(self.pieces.lengths + np.int32(ENDS - 1)), np.ones(len(self), np.int32)

    def at(self, progress: float) -> "NspDataset":
        """Return the pairs as they are masked after a share of the run in [0, 1]."""
        rows = copy.copy(self)
        rows.masking = self.masking.at(progress)
        return rows

    def batch(self, indices: Ids, seed: int, epoch: int) -> LanguageModelBatch:
        """Return this epoch's masked pairs at ``indices``, unpadded rows first."""
        packed, segments, follows = self._collate(indices, seed, epoch)
        batch = self.masking.batch(packed, seed, epoch)
        return replace(batch, segments=torch.from_numpy(segments), follows=torch.from_numpy(follows))

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        """Return the number of masked tokens (at least 1) and of rows, the loss divisors."""
        packed, _, _ = self._collate(indices, seed, epoch)
        return {"nll": self.masking.count(packed, seed, epoch), "next": len(indices)}

    def _cuts(self, pieces: Ids, numbers: Ids, seed: int, epoch: int) -> Ids:
        """Return random split points, moved to the nearest sentence end if there is one."""
        lengths = self.pieces.lengths[pieces].astype(np.int64)
        drawn = 1 + (FeistelPermutation("next cut", seed, epoch).uniform(numbers) * (lengths - 1)).astype(np.int64)
        ids = self._gather(pieces, self.pieces.offsets[pieces], lengths)
        places = np.arange(1, int(lengths.max()) + 1)
        may = np.zeros((len(pieces), len(places)), np.bool_)
        may[places <= lengths[:, None]] = self.sentence_ends[ids]
        may &= places < lengths[:, None]
        distance = np.where(may, np.abs(places - drawn[:, None]), len(places) + 1)
        return np.where(may.any(1), places[distance.argmin(1)], drawn)

    def _others(self, pieces: Ids, numbers: Ids, seed: int, epoch: int) -> Ids:
        """Return the piece that provides B: the row's own, or another document's."""
        others, corpus = pieces.copy(), self.mixture.corpus(numbers)
        first = self._first[corpus]
        n = self._first[corpus + 1] - first
        waiting = FeistelPermutation("next follows", seed, epoch).uniform(numbers) < 0.5
        for attempt in range(_TRIES):
            drawn = FeistelPermutation(f"next other {attempt}", seed, epoch).uniform(numbers)
            other = first + (drawn * n).astype(np.int64)
            good = waiting & (self.pieces.documents[other] != self.pieces.documents[pieces])
            others[good] = other[good]
            waiting &= ~good
        return others

    def _collate(self, numbers: Ids, seed: int, epoch: int) -> tuple[PackedBatch, Ids, Ids]:
        """Return pairs, unpadded rows first, with segments (B, T) and NSP labels (B,)."""
        pieces = self.mixture.rows(numbers)
        cuts = self._cuts(pieces, numbers, seed, epoch)  # (B,) tokens of A
        others = self._others(pieces, numbers, seed, epoch)  # (B,) the piece of B
        # Number of tokens before B in its document: B starts at the split point of its own piece.
        skips = self.pieces.offsets[others] + np.where(others == pieces, cuts, self._cuts(others, numbers, seed, epoch))
        left = self._document_lengths[self.pieces.documents[others]] - skips
        lengths = np.minimum(self.pieces.lengths[pieces].astype(np.int64) - cuts, left)  # (B,) tokens of B
        sizes = cuts + lengths + ENDS
        length = int(sizes.max())
        # Unpadded rows first, since they need no attention mask.
        order = np.argsort(sizes < length, kind="stable")
        parts = pieces, cuts, others, skips, lengths, sizes
        pieces, cuts, others, skips, lengths, sizes = (part[order] for part in parts)
        at = np.arange(len(order)) * length
        ids = np.full(len(order) * length, PAD_ID, np.int64)
        free, segments = np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.int64)
        first, second = ranges(at + 1, cuts), ranges(at + cuts + 2, lengths)
        ids[first] = self._gather(pieces, self.pieces.offsets[pieces], cuts)
        ids[second] = self._gather(others, skips, lengths)
        ids[at], ids[at + cuts + 1], ids[at + sizes - 1] = BOS_ID, EOS_ID, EOS_ID
        free[first] = free[second] = True
        segments[ranges(at + cuts + 2, lengths + 1)] = 1
        padding = (np.arange(length) >= sizes[:, None]).astype(np.int64)
        shape = len(order), length
        n_whole = int((sizes == length).sum())
        batch = PackedBatch(ids.reshape(shape), free.reshape(shape), padding, padding, numbers[order], n_whole)
        return batch, segments.reshape(shape), (others != pieces).astype(np.int64)

    def _gather(self, pieces: Ids, skips: Ids, lengths: Ids) -> Ids:
        return self.store.gather_parts(self.pieces.documents[pieces].astype(np.int64), skips, lengths)
