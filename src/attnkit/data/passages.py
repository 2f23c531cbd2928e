"""Packed documents as rows for training: hidden tokens to guess (BERT), or the next token at every place (GPT).

A passage is a piece of one document in a row. In a batch the rows that are one passage from end to end come first, so
that they can be computed without a mask. Letters: B rows, T tokens of a row, N tokens to predict, P pieces.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from attnkit.data.masking import Bools, Ids, Masking, Words
from attnkit.data.masking_config import MaskingConfig
from attnkit.data.packing import Packing, pack
from attnkit.data.store import Store
from attnkit.text.tokenizer import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class PassageBatch:
    """A batch of rows."""

    ids: Tensor
    """(B, T) int64 what the model reads."""
    n_whole: int
    """The first rows are one passage each, without padding."""
    passages: Tensor | None
    """(B, T) int64 the passage of each token, counted in each row; padding is one too. None if all rows are whole."""
    chosen: Tensor
    """(N,) int64 places in the flattened rows that are predicted, ascending."""
    targets: Tensor
    """(N,) int64 the tokens to predict there."""
    segments: Tensor | None = None
    """(B, T) int64 the segment of each token of a pair, None where there are no pairs."""
    follows: Tensor | None = None
    """(B,) int64, 0 where the second segment of a pair follows the first in its text, else 1."""

    def to(self, device: torch.device | str) -> PassageBatch:
        """Return the batch on another device."""
        parts = (self.ids, self.passages, self.chosen, self.targets, self.segments, self.follows)
        moved = [None if part is None else part.to(device, non_blocking=True) for part in parts]
        ids, passages, chosen, targets, segments, follows = moved
        assert ids is not None and chosen is not None and targets is not None
        return PassageBatch(ids, self.n_whole, passages, chosen, targets, segments, follows)


@dataclass(frozen=True)
class _Laid:
    """Pieces laid out in rows."""

    ids: Ids
    """(B, T) with the first and last token of each passage where it has them, PAD elsewhere."""
    free: Bools
    """(B, T) True at tokens of the documents."""
    passages: Ids
    """(B, T) the passage of each place, counted in each row; the rest of a row is one more."""
    rows: Ids
    """(B,) the numbers of the rows, in the order they were laid in: whole ones first."""
    n_whole: int


class _PackedRows:
    """What both kinds of rows have: documents packed into rows of ``room`` tokens."""

    def __init__(self, store: Store, room: int, ends: int) -> None:
        self.store, self.room, self._ends = store, room, ends
        self.packing: Packing = pack(store.lengths, room, ends)

    def __len__(self) -> int:
        return len(self.packing)

    @functools.cached_property
    def sizes(self) -> npt.NDArray[np.int32]:
        """(n,) tokens of each row, the ends of its passages included."""
        if not len(self):
            return np.empty(0, np.int32)
        return np.add.reduceat(self.packing.lengths + np.int32(self._ends), self.packing.row_starts[:-1]).astype(
            np.int32
        )

    @property
    def padding(self) -> float:
        """Share of all places that hold no token."""
        return 1 - float(self.sizes.sum(dtype=np.int64)) / max(1, self.room * len(self))

    def lay(self, indices: Ids) -> _Laid:
        """Lay out the rows at ``indices``."""
        packing = self.packing
        starts = packing.row_starts[indices]
        n_pieces = packing.row_starts[indices + 1] - starts
        sizes = self.sizes[indices].astype(np.int64)
        length = int(sizes.max())
        whole = (n_pieces == 1) & (sizes == length)
        order = np.concatenate([np.flatnonzero(whole), np.flatnonzero(~whole)])
        starts, n_pieces, sizes = starts[order], n_pieces[order], sizes[order]
        row = np.repeat(np.arange(len(order)), n_pieces)
        number = np.arange(len(row)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
        piece = np.repeat(starts, n_pieces) + number
        lengths = packing.lengths[piece].astype(np.int64)
        places = lengths + self._ends
        behind = np.cumsum(places) - places
        at = row * length + behind - np.repeat(np.cumsum(sizes) - sizes, n_pieces)  # where each passage begins
        ids = np.full(len(order) * length, PAD_ID, np.int64)
        passages = np.repeat(n_pieces, length)
        inside = np.repeat(at, places) + np.arange(int(places.sum())) - np.repeat(behind, places)
        passages[inside] = np.repeat(number, places)
        tokens = (
            np.repeat(at + (self._ends > 0), lengths)
            + np.arange(int(lengths.sum()))
            - np.repeat(np.cumsum(lengths) - lengths, lengths)
        )
        documents = packing.documents[piece].astype(np.int64)
        ids[tokens] = self.store.gather_parts(documents, packing.offsets[piece], lengths)
        if self._ends:
            ids[at], ids[at + places - 1] = BOS_ID, EOS_ID
        free = np.zeros(len(ids), np.bool_)
        free[tokens] = True
        shape = len(order), length
        return _Laid(ids.reshape(shape), free.reshape(shape), passages.reshape(shape), indices[order], int(whole.sum()))

    def n_free(self, indices: Ids) -> Ids:
        """Return (B,) the tokens of documents in each row."""
        packing = self.packing
        n_pieces = packing.row_starts[indices + 1] - packing.row_starts[indices]
        return self.sizes[indices].astype(np.int64) - self._ends * n_pieces


class MaskedRows(_PackedRows):
    """Rows of ``[CLS] … [SEP]`` with hidden tokens; satisfies ``rows.Rows``."""

    def __init__(self, store: Store, room: int, masking: MaskingConfig, words: Words, begins: Bools) -> None:
        """Take the documents, tokens of a row, how to mask, the vocabulary's words, and which ids begin a word (V,)."""
        super().__init__(store, room, ends=2)
        self.masking, self.words, self.begins = masking, words, begins

    @property
    def fingerprint(self) -> str:
        """Changes with any id and any border of documents."""
        return self.store.fingerprint

    @functools.cached_property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """(n,) tokens of each row, and nothing more."""
        return self.sizes, np.zeros(len(self), np.int32)

    def batch(self, indices: Ids, seed: int, epoch: int) -> PassageBatch:
        """Return the rows at ``indices`` as this epoch hides their tokens, whole rows first."""
        laid = self.lay(indices)
        masked = Masking(self.masking, self.words, seed, epoch).apply(
            laid.ids, laid.free, self.begins[laid.ids], laid.rows
        )
        return make_batch(laid.n_whole, masked.ids, laid.passages, masked.chosen, masked.targets)

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        """Return how many tokens of these rows this epoch hides; 1 if none, since sums are divided by it."""
        masking = Masking(self.masking, self.words, seed, epoch)
        if self.masking.units == "tokens":
            n_chosen = int(masking.counts(indices, self.n_free(indices)).sum())
        else:
            laid = self.lay(indices)
            n_chosen = int(masking.choose(laid.free, self.begins[laid.ids], laid.rows).sum())
        return {"nll": max(1, n_chosen)}


class NextRows(_PackedRows):
    """Rows whose every token is predicted from those before it in its document; satisfies ``rows.Rows``.

    Documents hold their end symbol. A passage reads the begin symbol first, or, where it goes on with a document, the
    token before it.
    """

    def __init__(self, store: Store, room: int) -> None:
        super().__init__(store, room, ends=0)

    @property
    def fingerprint(self) -> str:
        """Changes with any id and any border of documents."""
        return hashlib.sha256(b"next:" + self.store.fingerprint.encode()).hexdigest()

    @functools.cached_property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """(n,) tokens of each row, and nothing more."""
        return self.sizes, np.zeros(len(self), np.int32)

    def batch(self, indices: Ids, seed: int = 0, epoch: int = 0) -> PassageBatch:
        """Return the rows at ``indices``, whole rows first; they are the same in every epoch."""
        laid = self.lay(indices)
        chosen = np.flatnonzero(laid.free)
        read = np.full(laid.ids.shape, PAD_ID, np.int64)
        read[:, 1:] = laid.ids[:, :-1]
        first = np.ones(laid.ids.shape, np.bool_)
        first[:, 1:] = laid.passages[:, 1:] != laid.passages[:, :-1]
        rows, columns = np.nonzero(first & laid.free)
        read[rows, columns] = self._before(laid, rows, columns)
        read[~laid.free] = PAD_ID
        return make_batch(laid.n_whole, read, laid.passages, chosen, laid.ids.reshape(-1)[chosen])

    def counts(self, indices: Ids, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return how many tokens these rows have."""
        return {"nll": int(self.sizes[indices].sum())}

    def _before(self, laid: _Laid, rows: Ids, columns: Ids) -> Ids:
        """Return what stands before the passages that begin at these places."""
        piece = self.packing.row_starts[laid.rows[rows]] + laid.passages[rows, columns]
        skip = self.packing.offsets[piece]
        found = np.full(len(piece), BOS_ID, np.int64)
        going_on = skip > 0
        documents = self.packing.documents[piece[going_on]].astype(np.int64)
        found[going_on] = self.store.gather_parts(documents, skip[going_on] - 1, np.ones(len(documents), np.int64))
        return found


def make_batch(n_whole: int, ids: Ids, passages: Ids, chosen: Ids, targets: Ids) -> PassageBatch:
    """Return a batch of arrays."""
    parts = (torch.from_numpy(part) for part in (ids, passages, chosen, targets))
    read, numbers, places, words = parts
    return PassageBatch(read, n_whole, None if n_whole == len(ids) else numbers, places, words)
