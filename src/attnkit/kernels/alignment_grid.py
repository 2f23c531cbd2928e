"""Pairs of lines as arrays of word numbers, the cells of their grids, and the pairs of words that meet in them.

A cell is a target word beside a source word of the same pair of lines, or beside NULL, the empty word that is at the
start of every source line. Knows no text. Letters: N pairs of lines, S and T words of a line, P pairs of words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CELLS = 1 << 18
"""Cells that are worked on together: some 150 bytes each in numpy. One pair of lines may have more."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class AlignmentCorpus:
    """Pairs of lines. A pair of which a side is empty has no cells."""

    src: NDArray[np.int32]
    """The words of all source lines, one line after the other: numbers from 0 on."""
    src_starts: Ints
    """(N + 1,): where each line begins, and the end of the last."""
    tgt: NDArray[np.int32]
    tgt_starts: Ints
    n_src: int
    """Every source word is below this."""
    n_tgt: int

    def turned(self) -> AlignmentCorpus:
        """Return the corpus with the sides changed over; the arrays are the same ones."""
        return AlignmentCorpus(self.tgt, self.tgt_starts, self.src, self.src_starts, self.n_tgt, self.n_src)

    @property
    def n_pairs(self) -> int:
        """Pairs of lines."""
        return len(self.src_starts) - 1

    def sizes(self, begin: int, end: int) -> tuple[Ints, Ints]:
        """Return the numbers of words S and T (end - begin,) of some pairs; both 0 where one of them is."""
        # (end - begin,) words per line
        n_src = np.diff(self.src_starts[begin : end + 1])
        n_tgt = np.diff(self.tgt_starts[begin : end + 1])
        # A pair with an empty side has no cells, not even NULL's.
        both = (n_src > 0) & (n_tgt > 0)
        return n_src * both, n_tgt * both


def spans(corpus: AlignmentCorpus) -> Iterator[tuple[int, int]]:
    """Cut a corpus into runs of pairs (begin, end) of at most ``CELLS`` cells each, or of one pair."""
    n_src, n_tgt = corpus.sizes(0, corpus.n_pairs)
    # Cells per pair: every target word meets every source word and NULL.
    ends = np.cumsum((n_src + 1) * n_tgt)
    begin, done = 0, 0
    while begin < len(ends):
        end = max(begin + 1, int(np.searchsorted(ends, done + CELLS, side="right")))
        yield begin, end
        begin, done = end, int(ends[end - 1])


@dataclass(frozen=True)
class LinkCandidates:
    """The cells of a run of pairs: pair by pair, target word by target word, first NULL, then the source words."""

    source: Ints
    """The place in the source line, 0 for NULL, else from 1 on."""
    target: Ints
    """The place among the target words of the whole corpus."""
    lengths: Ints
    """S of the cell's pair of lines."""
    keys: Ints
    """row * n_tgt + target word, where row is 0 for NULL, else the source word + 1."""


def link_candidates(corpus: AlignmentCorpus, begin: int, end: int) -> LinkCandidates:
    """Return the cells of some pairs of lines."""
    n_src, n_tgt = corpus.sizes(begin, end)
    n_cells = (n_src + 1) * n_tgt
    pair = np.repeat(np.arange(end - begin), n_cells)  # (cells,), which pair of lines
    # Within its pair: target word by target word, S + 1 cells each.
    offset = np.arange(len(pair)) - (np.cumsum(n_cells) - n_cells)[pair]
    # (cells,) each from here on
    lengths = n_src[pair]
    place = offset // (lengths + 1)
    source = offset - place * (lengths + 1)
    target = place + corpus.tgt_starts[begin:end][pair]
    # NULL has no word: maximum() keeps its index valid, where() puts row 0.
    rows = corpus.src[corpus.src_starts[begin:end][pair] + np.maximum(source - 1, 0)].astype(np.int64) + 1
    keys = np.where(source == 0, np.int64(0), rows) * corpus.n_tgt + corpus.tgt[target]
    return LinkCandidates(source, target, lengths, keys)


def cooccurring_pairs(corpus: AlignmentCorpus, most: int) -> tuple[Ints, int]:
    """Return the keys of all pairs of words that meet in some cell, ascending, and how often pairs were given up.

    NULL meets every target word. Of the others at most ``most`` are kept: whenever there are more, the half that has
    met most often stays, the lower key among equals. Takes some 100 bytes for each pair that is kept.
    """
    known, counts, n_lost = np.empty(0, np.int64), np.empty(0, np.int64), 0
    waiting: list[tuple[Ints, Ints]] = []
    n_waiting = 0
    for begin, end in spans(corpus):
        keys = link_candidates(corpus, begin, end).keys
        # Keys below n_tgt are NULL's row, which is complete anyway.
        waiting.append(np.unique(keys[keys >= corpus.n_tgt], return_counts=True))
        n_waiting += len(waiting[-1][0])
        if n_waiting > max(CELLS, len(known)):  # so that each is sorted a few times at most
            known, counts, n_now = _merge([(known, counts), *waiting], most)
            waiting, n_waiting, n_lost = [], 0, n_lost + n_now
    known, _, n_now = _merge([(known, counts), *waiting], most)
    return np.concatenate([np.arange(corpus.n_tgt, dtype=np.int64), known]), n_lost + n_now


def _merge(parts: list[tuple[Ints, Ints]], most: int) -> tuple[Ints, Ints, int]:
    """Add up counted keys, forget the rarest if they are too many, and say how many were forgotten."""
    keys, counts = (np.concatenate([part[i] for part in parts]) for i in range(2))
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    if not len(first):
        return keys, counts, 0
    keys, counts = keys[first], np.add.reduceat(counts, first)  # one entry per distinct key
    if len(keys) <= most:
        return keys, counts, 0
    # Half of `most`, so that pruning is rare; stable: the lower key among equals.
    kept = np.sort(np.argsort(-counts, kind="stable")[: -(-most // 2)])
    return keys[kept], counts[kept], len(keys) - len(kept)
