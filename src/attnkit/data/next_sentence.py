"""Pairs of segments for next-sentence prediction (Devlin et al. 2019, section 3.1), drawn anew in each epoch.

A row is a stretch of one document, cut in two where a sentence ends: ``[CLS] A [SEP] B [SEP]``. In half of the rows
a part of another document of the same corpus replaces B. It starts where a sentence starts, too: only the words tell.

Letters: B rows, T tokens of a row.
"""

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

ENDS = 3  #: tokens that are added to a pair
_LEAST = 2  # tokens of a document that has two parts
_TRIES = 8  #: draws of another document before a row keeps its own, as where there is but one


def segment_spans(lengths: Sizes, most: int) -> Packing:
    """Cut documents into pieces of near-equal lengths of at most ``most`` tokens, one per row.

    Documents of one token are left out.
    """
    kept = np.flatnonzero(lengths >= _LEAST)
    sizes = lengths[kept].astype(np.int64)
    n_pieces = -(-sizes // most)
    owner = np.repeat(np.arange(len(kept)), n_pieces)
    within = ranges(np.zeros_like(n_pieces), n_pieces)  # number of each piece in its document
    begins, ends = (number * sizes[owner] // n_pieces[owner] for number in (within, within + 1))
    documents = kept[owner].astype(np.uint32)
    return Packing(np.arange(len(owner) + 1), documents, begins, (ends - begins).astype(np.int32))


class NspDataset:
    """Rows of two segments, drawn anew in each epoch, with masked tokens; satisfies ``loader.Dataset``."""

    def __init__(self, corpora: PackedCorpora, masking: MlmMasking, sentence_ends: Bools) -> None:
        """Take documents, how their tokens are masked, and which ids end a sentence (V,)."""
        self.corpora, self.store, self.masking, self.sentence_ends = corpora, corpora.store, masking, sentence_ends
        lengths = self.store.lengths
        cut = [segment_spans(lengths[span], corpora.row_length - ENDS) for span in corpora.spans]
        self.pieces = join_packings(cut, [span.start for span in corpora.spans])
        self.fingerprint = hashlib.sha256(b"pairs:" + corpora.fingerprint.encode()).hexdigest()
        """Hash that changes with any id, and with any border of documents and corpora."""
        self._document_lengths = lengths
        self._first = np.cumsum([0, *map(len, cut)])
        n_tokens = [int(one.lengths.sum()) for one in cut]
        self.mixture = CorpusMixture([len(one) for one in cut], corpora.weights(n_tokens))

    def __len__(self) -> int:
        return len(self.mixture)

    @functools.cached_property
    def lengths(self) -> tuple[Sizes, Sizes]:
        """(n,) most tokens of each coming but for one, and that one, as ``PackedDataset`` has them."""
        return self.mixture.spread(self.pieces.lengths + np.int32(ENDS - 1)), np.ones(len(self), np.int32)

    def batch(self, indices: Ids, seed: int, epoch: int) -> LanguageModelBatch:
        """Return the rows at ``indices`` as this epoch pairs them and masks their tokens, whole rows first."""
        packed, segments, follows = self._collate(indices, seed, epoch)
        batch = self.masking.batch(packed, seed, epoch)
        return replace(batch, segments=torch.from_numpy(segments), follows=torch.from_numpy(follows))

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        """Return the number of masked tokens (at least 1) and of rows, the divisors of the losses."""
        packed, _, _ = self._collate(indices, seed, epoch)
        return {"nll": self.masking.count(packed, seed, epoch), "next": len(indices)}

    def _cuts(self, pieces: Ids, numbers: Ids, seed: int, epoch: int) -> Ids:
        """Return the split points of segments: the sentence end nearest to a random position, or that position."""
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
        """Return which piece the second part of each comes from: itself, or one of another document of its corpus."""
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
        """Build the batch of some pairs, whole rows first; return also the segments (B, T) and what follows (B,)."""
        pieces = self.mixture.rows(numbers)
        cuts = self._cuts(pieces, numbers, seed, epoch)  # (B,) tokens of A
        others = self._others(pieces, numbers, seed, epoch)  # (B,) the piece of B
        # Tokens of the document of B before B: B starts at the cut of its own piece.
        skips = self.pieces.offsets[others] + np.where(others == pieces, cuts, self._cuts(others, numbers, seed, epoch))
        left = self._document_lengths[self.pieces.documents[others]] - skips
        lengths = np.minimum(self.pieces.lengths[pieces].astype(np.int64) - cuts, left)  # (B,) tokens of B
        sizes = cuts + lengths + ENDS
        length = int(sizes.max())
        # Whole rows first, so that they can be computed without a mask.
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
