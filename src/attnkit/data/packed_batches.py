"""Packed documents of one corpus or of several in turn, laid out for a batch."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attnkit.data.packing import Packing, pack
from attnkit.data.permutation import FeistelPermutation, Words, subset
from attnkit.data.permutation import Words as Numbers
from attnkit.data.store import Store
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID

Integers = npt.NDArray[np.integer[Any]]


def sampling_probabilities(sizes: Sequence[int], alpha: float) -> list[float]:
    """Return the share of an epoch that each corpus gets.

    >>> shares([900, 100], 0.5)
    [0.75, 0.25]
    """
    raised = [(size / sum(sizes)) ** alpha for size in sizes]
    return [one / sum(raised) for one in raised]


class CorpusMixture:
    """Rows of several corpora, some of which come more than once in an epoch.

    Each coming has a number of its own: first all rows as they are, then further comings of corpus after corpus. So
    whatever is drawn for a row by its number is drawn anew each time it comes.
    """

    def __init__(self, n_rows: Sequence[int], weights: Sequence[float]) -> None:
        """Take the rows of each corpus, laid end to end, and how often an epoch uses each of them."""
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
        """Return how many comings there are in all."""
        return int(self._starts[-1])

    @property
    def plain(self) -> bool:
        """Whether an epoch is each row once."""
        return all(weight == 1 for weight in self.weights)

    def rows(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows that come under some numbers."""
        if not len(self._first):
            return numbers
        block = np.searchsorted(self._starts, numbers, side="right") - 1
        again = block >= 0
        found = numbers.copy()
        found[again] += self._first[block[again]] - self._starts[block[again]]
        return found

    def spread(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the length of each coming, from those of the rows."""
        return lengths if not len(self._first) else lengths[self.rows(np.arange(len(self)))]

    def draw(self, seed: int, epoch: int) -> Words | None:
        """Return the numbers that come in an epoch, in no particular order; None where these are all."""
        if self.plain:
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


Ids = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Sizes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class PackedCorpora:
    """Encoded documents of one corpus or several, and how they become rows."""

    store: Store
    """A row for each document, corpus after corpus."""
    row_length: int
    """Tokens of a row."""
    n_documents: tuple[int, ...] = ()
    """Of each corpus; empty where all are one."""
    alpha: float = 1.0
    """The exponent of the corpora's shares; see ``mixing``."""
    isolate_documents: bool = True
    """Whether passages that share a row are apart; otherwise a row is one passage, its padding another."""

    def __post_init__(self) -> None:
        if self.n_documents and sum(self.n_documents) != len(self.store):
            raise ValueError(f"{sum(self.n_documents)} documents of corpora, {len(self.store)} in the store")

    @property
    def fingerprint(self) -> str:
        """Changes with any id, and with any border of documents and corpora."""
        text = f"{self.store.fingerprint}:{','.join(map(str, self.n_documents))}"
        return hashlib.sha256(text.encode()).hexdigest() if self.n_documents[1:] else self.store.fingerprint

    @functools.cached_property
    def spans(self) -> list[slice]:
        """The documents of each corpus."""
        ends = np.cumsum(self.n_documents or (len(self.store),)).tolist()
        return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]

    def weights(self, sizes: list[int]) -> list[float]:
        """Return how often an epoch uses each document of each corpus, from the corpora's tokens."""
        if self.alpha == 1 or len(sizes) == 1:
            return [1.0] * len(sizes)
        return [
            share * sum(sizes) / size
            for share, size in zip(sampling_probabilities(sizes, self.alpha), sizes, strict=True)
        ]


@dataclass(frozen=True)
class PackedBatch:
    """Pieces laid out in rows."""

    ids: Ids
    """(B, T) with the first and last token of each piece where it has them, PAD elsewhere."""
    maskable: Bools
    """(B, T) True at tokens of the documents."""
    pieces: Ids
    """(B, T) the piece of each place, counted in each row; the rest of a row is one more."""
    passages: Ids
    """(B, T) the same by what may see each other."""
    numbers: Ids
    """(B,) the numbers of the rows, in the order they were laid in: whole ones first."""
    n_unmixed: int


class PackedDataset:
    """Corpora packed into rows. Rows go by the numbers of their comings (``mixing.CorpusMixture``)."""

    def __init__(self, corpora: PackedCorpora, ends: int) -> None:
        """Take what to pack, and how many tokens are added to each piece: two for its first and its last, or none."""
        self.corpora, self.store, self._ends = corpora, corpora.store, ends
        lengths = self.store.lengths
        packed = [pack(lengths[span], corpora.row_length, ends) for span in corpora.spans]
        sizes = [int(lengths[span].sum(dtype=np.int64)) for span in corpora.spans]
        self.packing = _joined(packed, [span.start for span in corpora.spans])
        self.mixture = CorpusMixture([len(one) for one in packed], corpora.weights(sizes))

    def __len__(self) -> int:
        return len(self.mixture)

    @functools.cached_property
    def sizes(self) -> Sizes:
        """(n,) tokens of each row, the ends of its pieces included."""
        if not len(self.packing):
            return np.empty(0, np.int32)
        starts = self.packing.row_starts[:-1]
        return np.add.reduceat(self.packing.lengths + np.int32(self._ends), starts).astype(np.int32)

    @functools.cached_property
    def lengths(self) -> tuple[Sizes, Sizes]:
        """(n,) tokens of each coming but for one, and that one: a length of none would be planned as one."""
        return self.mixture.spread(self.sizes - np.int32(1)), np.ones(len(self), np.int32)

    @property
    def padding(self) -> float:
        """Share of all places that hold no token."""
        return 1 - float(self.sizes.sum(dtype=np.int64)) / max(1, self.corpora.row_length * len(self.packing))

    def corpus(self, numbers: Ids) -> Ids:
        """Return the corpus of each row."""
        return np.searchsorted(np.cumsum(self.mixture.n_rows), self.mixture.rows(numbers), side="right")

    def n_free(self, numbers: Ids) -> Ids:
        """Return (B,) the tokens of documents in each row."""
        rows, starts = self.mixture.rows(numbers), self.packing.row_starts
        return self.sizes[rows].astype(np.int64) - self._ends * (starts[rows + 1] - starts[rows])

    def draw(self, seed: int, epoch: int) -> Numbers | None:
        """Return the numbers that come in an epoch; None where these are all."""
        return self.mixture.draw(seed, epoch)

    def collate(self, numbers: Ids) -> PackedBatch:
        """Lay out rows."""
        packing, ends = self.packing, self._ends
        rows = self.mixture.rows(numbers)
        n_pieces = packing.row_starts[rows + 1] - packing.row_starts[rows]
        sizes = self.sizes[rows].astype(np.int64)
        length = int(sizes.max())
        whole = (sizes == length) & (n_pieces == 1) if self.corpora.isolate_documents else sizes == length
        order = np.concatenate([np.flatnonzero(whole), np.flatnonzero(~whole)])
        starts, n_pieces, sizes = packing.row_starts[rows[order]], n_pieces[order], sizes[order]
        row = np.repeat(np.arange(len(order)), n_pieces)
        number = np.arange(len(row)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
        piece = np.repeat(starts, n_pieces) + number
        lengths = packing.lengths[piece].astype(np.int64)
        places = lengths + ends
        behind = np.cumsum(places) - places
        at = row * length + behind - np.repeat(np.cumsum(sizes) - sizes, n_pieces)  # where each piece begins
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
        passages = (
            pieces if self.corpora.isolate_documents else (pieces == np.repeat(n_pieces, length)).astype(np.int64)
        )
        shape = -1, length
        return PackedBatch(
            ids.reshape(shape),
            free.reshape(shape),
            pieces.reshape(shape),
            passages.reshape(shape),
            numbers[order],
            int(whole.sum()),
        )


def ranges(starts: Ids, lengths: Ids) -> Ids:
    """Return the places from each start on, as many as each length says, end to end."""
    behind = np.cumsum(lengths) - lengths
    return np.repeat(starts - behind, lengths) + np.arange(int(lengths.sum()))


def _joined(packed: list[Packing], first_documents: list[int]) -> Packing:
    if len(packed) == 1:
        return packed[0]
    n_pieces = np.cumsum([0, *(len(one.lengths) for one in packed)])
    starts = [one.row_starts[:-1] + n for one, n in zip(packed, n_pieces, strict=False)]
    documents = [one.documents + np.uint32(first) for one, first in zip(packed, first_documents, strict=True)]
    return Packing(
        row_starts=np.concatenate([*starts, n_pieces[-1:]]),
        documents=np.concatenate(documents),
        offsets=np.concatenate([one.offsets for one in packed]),
        lengths=np.concatenate([one.lengths for one in packed]),
    )
