"""Batches of packed documents from one corpus or a mixture of corpora."""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnkit.data.packing import join_packings, pack
from attnkit.data.permutation import Bools, FeistelPermutation, Ids, Sizes, Words, subset
from attnkit.data.store import Store, ranges
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID


def sampling_probabilities(sizes: Sequence[int], alpha: float) -> list[float]:
    """Return normalized shares p**alpha of corpora (Conneau and Lample 2019, eq. 1).

    >>> sampling_probabilities([900, 100], 0.5)
    [0.75, 0.25]
    """
    raised = [(size / sum(sizes)) ** alpha for size in sizes]
    return [power / sum(raised) for power in raised]


class CorpusMixture:
    """Rows of several corpora, possibly with several occurrences per epoch.

    Occurrences are numbered: first every row once, then all further occurrences, corpus by corpus. Random draws are
    keyed by this number, so occurrences of the same row are masked differently.
    """

    def __init__(self, n_rows: Sequence[int], weights: Sequence[float]) -> None:
        """Mix corpora of ``n_rows`` rows, each used ``weights`` times per epoch."""
        self.n_rows, self.weights = list(n_rows), list(weights)
        self.n = sum(n_rows)
        first = np.cumsum([0, *n_rows])[:-1]
        repeats = [(c, weight) for c, weight in enumerate(weights) for _ in range(1, int(np.ceil(weight)))]
        self._starts = np.cumsum([self.n, *(n_rows[c] for c, _ in repeats)])
        self._first = np.array([first[c] for c, _ in repeats], np.int64)
        self._blocks: list[list[int]] = [[int(first[c])] for c in range(len(n_rows))]
        for (c, _), start in zip(repeats, self._starts, strict=False):
            self._blocks[c].append(int(start))

    def __len__(self) -> int:
        """Return the number of occurrences."""
        return int(self._starts[-1])

    def rows(self, numbers: Ids) -> Ids:
        """Return the row of each occurrence number."""
        if not len(self._first):
            return numbers
        block = np.searchsorted(self._starts, numbers, side="right") - 1
        again = block >= 0
        rows = numbers.copy()
        rows[again] += self._first[block[again]] - self._starts[block[again]]
        return rows

    def corpus(self, numbers: Ids) -> Ids:
        """Return the corpus of each occurrence number."""
        return np.searchsorted(np.cumsum(self.n_rows), self.rows(numbers), side="right")

    def spread(self, lengths: Sizes) -> Sizes:
        """Return the length of each occurrence, given the lengths of the rows."""
        return lengths if not len(self._first) else lengths[self.rows(np.arange(len(self)))]

    def draw(self, seed: int, epoch: int) -> Words | None:
        """Return the occurrence numbers of an epoch, unordered; None: every row once."""
        if all(weight == 1 for weight in self.weights):
            return None
        drawn = []
        for corpus, (n, weight) in enumerate(zip(self.n_rows, self.weights, strict=True)):
            whole = int(weight)
            for copy, start in enumerate(self._blocks[corpus]):
                if copy < whole:
                    drawn.append(np.arange(start, start + n, dtype=np.uint32))
                elif part := round((weight - whole) * n):
                    chosen = subset(n, part, FeistelPermutation("mixture", seed, epoch, corpus))
                    drawn.append(chosen + np.uint32(start))
        return np.concatenate(drawn)


@dataclass(frozen=True)
class PackedCorpora:
    """Encoded documents of one or more corpora, and settings for packing them."""

    store: Store  #: one row per document, corpus after corpus
    row_length: int  #: tokens per row
    n_documents: tuple[int, ...] = ()  #: documents of each corpus; empty for one corpus
    alpha: float = 1.0  #: exponent of ``sampling_probabilities``
    isolate_documents: bool = True
    """Whether attention between documents in a row is masked; otherwise a row is one passage, its padding another."""

    def __post_init__(self) -> None:
        if self.n_documents and sum(self.n_documents) != len(self.store):
            raise ValueError(f"{sum(self.n_documents)} documents in the corpora, {len(self.store)} in the store")

    @property
    def fingerprint(self) -> str:
        """Hash of all ids, document boundaries and corpus boundaries."""
        text = f"{self.store.fingerprint}:{','.join(map(str, self.n_documents))}"
        return hashlib.sha256(text.encode()).hexdigest() if self.n_documents[1:] else self.store.fingerprint

    @functools.cached_property
    def spans(self) -> list[slice]:
        """Return the range of documents of each corpus."""
        ends = np.cumsum(self.n_documents or (len(self.store),)).tolist()
        return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]

    def weights(self, sizes: list[int]) -> list[float]:
        """Return the passes per epoch over each corpus, given its number of tokens."""
        if self.alpha == 1 or len(sizes) == 1:
            return [1.0] * len(sizes)  # exactly 1, so that draw() can return None
        shares = sampling_probabilities(sizes, self.alpha)
        return [share * sum(sizes) / size for share, size in zip(shares, sizes, strict=True)]


@dataclass(frozen=True)
class PackedBatch:
    """Rows of document pieces, grouped into passages that attend only to themselves."""

    ids: Ids  #: (B, T) pieces with special tokens, if any, and padding
    maskable: Bools  #: (B, T) True at tokens of the documents
    pieces: Ids  #: (B, T) piece of each position within its row; padding counts as one more
    passages: Ids  #: (B, T) passage of each position within its row; padding counts as one more
    numbers: Ids  #: (B,) occurrence numbers of the rows, single-passage rows first
    n_unmixed: int  #: number of rows at the front that are a single passage without padding; they need no mask


class PackedDataset:
    """Packed rows of corpora, indexed by occurrence numbers (``CorpusMixture``)."""

    def __init__(self, corpora: PackedCorpora, ends: int) -> None:
        """Pack corpora with ``ends`` special tokens per piece: 2 ([CLS], [SEP]) or 0."""
        self.corpora, self.store, self._ends = corpora, corpora.store, ends
        self.fingerprint = corpora.fingerprint
        """Hash of all ids, document boundaries and corpus boundaries."""
        lengths = self.store.lengths
        packed = [pack(lengths[span], corpora.row_length, ends) for span in corpora.spans]
        sizes = [int(lengths[span].sum(dtype=np.int64)) for span in corpora.spans]
        self.packing = join_packings(packed, [span.start for span in corpora.spans])
        self.mixture = CorpusMixture([len(one) for one in packed], corpora.weights(sizes))

    def __len__(self) -> int:
        return len(self.mixture)

    @functools.cached_property
    def sizes(self) -> Sizes:
        """Return the number of tokens per row, (n,), special tokens included."""
        if not len(self.packing):
            return np.empty(0, np.int32)
        starts = self.packing.row_starts[:-1]
        return np.add.reduceat(self.packing.lengths + np.int32(self._ends), starts).astype(np.int32)

    @functools.cached_property
    def lengths(self) -> tuple[Sizes, Sizes]:
        """Return row lengths minus 1, and ones, (n,): plans count a length of 0 as 1."""
        return self.mixture.spread(self.sizes - np.int32(1)), np.ones(len(self), np.int32)

    def n_free(self, numbers: Ids) -> Ids:
        """Return the number of maskable tokens per row, (B,)."""
        rows, starts = self.mixture.rows(numbers), self.packing.row_starts
        return self.sizes[rows].astype(np.int64) - self._ends * (starts[rows + 1] - starts[rows])

    def collate(self, numbers: Ids) -> PackedBatch:
        """Build the batch of the given rows, single-passage rows first."""
        packing, ends = self.packing, self._ends
        rows = self.mixture.rows(numbers)
        n_pieces = packing.row_starts[rows + 1] - packing.row_starts[rows]
        sizes = self.sizes[rows].astype(np.int64)
        length = int(sizes.max())
        whole = (sizes == length) & (n_pieces == 1) if self.corpora.isolate_documents else sizes == length
        order = np.concatenate([np.flatnonzero(whole), np.flatnonzero(~whole)])
        starts, n_pieces, sizes = packing.row_starts[rows[order]], n_pieces[order], sizes[order]
        # Per piece of the batch, (p,): its row, its number in the row, and its index in the packing.
        row = np.repeat(np.arange(len(order)), n_pieces)
        number = ranges(np.zeros_like(n_pieces), n_pieces)
        piece = np.repeat(starts, n_pieces) + number
        lengths = packing.lengths[piece].astype(np.int64)
        places = lengths + ends
        behind = np.cumsum(places) - places
        at = row * length + behind - np.repeat(np.cumsum(sizes) - sizes, n_pieces)  # start of each piece
        pieces = np.repeat(n_pieces, length)
        pieces[ranges(at, places)] = np.repeat(number, places)
        ids = np.full(len(order) * length, PAD_ID, np.int64)
        tokens = ranges(at + (ends > 0), lengths)
        documents = packing.documents[piece].astype(np.int64)
        ids[tokens] = self.store.gather_parts(documents, packing.offsets[piece], lengths)
        if ends:
            ids[at], ids[at + places - 1] = BOS_ID, EOS_ID
        free = np.zeros(len(ids), np.bool_)
        free[tokens] = True
        isolated = self.corpora.isolate_documents
        passages = pieces if isolated else (pieces == np.repeat(n_pieces, length)).astype(np.int64)
        shape = len(order), length  # (B, T)
        arrays = ids.reshape(shape), free.reshape(shape), pieces.reshape(shape), passages.reshape(shape)
        return PackedBatch(*arrays, numbers[order], int(whole.sum()))
