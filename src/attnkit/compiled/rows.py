"""Rows of compiled loops: tokens of texts, and the steps of a search.

Letters: B texts, T tokens or steps, K beams.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attnkit.compiled.packed_layers import PackedLayers
from attnkit.compiled.search import token_positions
from attnkit.kernels.layout import Sentences, States
from attnkit.kernels.simd import packing

FIRST_STEPS = 64  #: steps that a cache has room for at first; few translations are longer


def make_sentences(ids: Tensor, lengths: NDArray[np.int64], vocab_size: int) -> Sentences:
    """Return the first ``lengths`` ids of each row (B, S), checked."""
    rows = ids.numpy()
    real = np.arange(rows.shape[1]) < lengths[:, None]
    flat = rows[real]
    if not len(rows) or lengths.min() < 1:
        raise ValueError("a row must have 1 or more tokens")
    check_ids(flat, vocab_size)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    return Sentences(flat.astype(np.int32), token_positions(begins), begins, np.arange(len(rows)), np.ones(1, np.int64))


def check_ids(ids: NDArray[np.int64], vocab_size: int) -> None:
    """Raise ``ValueError`` for an id outside the vocabulary: loops read by address."""
    if len(ids) and (ids.min() < 0 or ids.max() >= vocab_size):
        raise ValueError(f"ids must be between 0 and {vocab_size - 1}")


def number_of_tokens(ids: Tensor, mask: Tensor | None) -> NDArray[np.int64]:
    """Return the number of tokens of each row (B, S), padded on the right."""
    if mask is None:
        return np.full(len(ids), ids.shape[1], np.int64)
    return np.asarray(mask.sum(1).numpy(), np.int64)


def part_of(states: States, first: int, last: int) -> States:
    """Return some rows of a step."""
    return States(*(column[first:last] for column in states))


class KeyValueCache:
    """Keys and values of the past tokens of B texts; it grows with them.

    Compiled loops read and write it by address: (2 L, places, A') of each text's slot.
    """

    def __init__(self, packed: PackedLayers, n_layers: int, n_texts: int, n_places: int) -> None:
        """Make room for ``n_places`` tokens of each text."""
        self.slots = np.arange(n_texts)
        self.n_places = 0
        self._rows, self._row_bytes = 2 * n_layers, packed.d_kept * packed.kept_bytes
        self._bytes = np.zeros(0, np.uint8)
        self.make_room(n_places)

    def make_room(self, n_places: int) -> None:
        """Make room for ``n_places`` tokens, if there is less.

        The slots of texts that were dropped are given up.
        """
        if n_places <= self.n_places:
            return
        size = len(self.slots) * self._rows * n_places * self._row_bytes
        # Scores are made of four keys: three may be read behind the last one.
        grown = packing.allocate(size + 3 * self._row_bytes)
        if self.n_places:
            old = self._bytes[: -3 * self._row_bytes].reshape(-1, self._rows, self.n_places, self._row_bytes)
            new = grown[:size].reshape(-1, self._rows, n_places, self._row_bytes)
            for text, slot in enumerate(self.slots):
                new[text, :, : self.n_places] = old[slot]
        self._bytes, self.n_places, self.slots = grown, n_places, np.arange(len(self.slots))

    def addresses(self) -> NDArray[np.int64]:
        """Return the address of each text's part (B,)."""
        begin: int = self._bytes.ctypes.data
        return begin + self.slots * self._rows * self.n_places * self._row_bytes


class PastTokens:
    """Cached keys and values of B texts, and the ancestors of each of their K beams."""

    def __init__(self, packed: PackedLayers, n_layers: int, n_rows: int, n_beams: int, max_length: int) -> None:
        self.n_beams, self.max_length = n_beams, max_length
        self.n_steps = 0
        self.cache = KeyValueCache(packed, n_layers, n_rows, min(max_length, FIRST_STEPS) * n_beams)
        # Scores are made of four keys.
        self.places = np.zeros((n_rows, n_beams, -(-max_length // 4) * 4), np.int32)

    def reorder_beams(self, parents: Tensor) -> None:
        """Continue beam k of text b from its old beam parents[b, k]."""
        chosen, t = parents.numpy(), self.n_steps
        self.places[:, : chosen.shape[1], :t] = np.take_along_axis(self.places[:, :, :t], chosen[:, :, None], 1)

    def select_rows(self, rows: NDArray[np.int64]) -> None:
        """Keep only the given texts."""
        self.cache.slots, self.places = self.cache.slots[rows], self.places[rows]

    def next_rows(self, words: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Count a step; return fields of ``States`` for its words (B, K)."""
        n_texts, n_beams = words.shape
        t, beams = self.n_steps, np.arange(n_beams)
        if t >= self.max_length:
            raise ValueError(f"this state has room for {self.max_length} steps")
        if (t + 1) * self.n_beams > self.cache.n_places:
            self.cache.make_room(min(2 * t, self.max_length) * self.n_beams)
        self.places[:, :n_beams, t] = t * self.n_beams + beams
        self.n_steps += 1
        size = n_texts * n_beams
        row_bytes = 4 * self.places.shape[2]
        first = self.places.ctypes.data + row_bytes * self.n_beams * np.arange(n_texts)
        return {
            "word": words.reshape(-1).astype(np.int64),
            "position": np.full(size, t),
            "new_place": np.tile(t * self.n_beams + beams, n_texts),
            "cache": np.repeat(self.cache.addresses(), n_beams),
            "n_places": np.full(size, t + 1),
            "places": (first[:, None] + row_bytes * beams).reshape(-1),
        }
