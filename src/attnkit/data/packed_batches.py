"""Documents of one corpus or several, packed into rows and laid out for a batch. Knows nothing of what is predicted.

A passage is a piece of one document in a row. In a batch the rows that are one passage from end to end come first, so
that they can be computed without a mask. Letters: B rows, T tokens of a row, P pieces.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attnkit.data.best_fit import Packing, pack
from attnkit.data.language_sampling import CorpusMixture, sampling_probabilities
from attnkit.data.permutation import Words as Numbers
from attnkit.data.store import Store
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID

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
