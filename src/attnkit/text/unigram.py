"""Training of unigram language models over subwords (Kudo 2018).

"Subword Regularization", arXiv:1804.10959, section 3.2: every frequent substring is a seed, expectation-maximization
fits probabilities, and each round prunes the pieces whose loss costs the likelihood least. All words are processed at
once, one column of their lattices at a time. The trainer of ``tokenizers`` is not used: it sums in the order of a
randomly seeded hash map, so two runs on the same file give different vocabularies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_PIECE_LENGTH = 24
MAX_WORD_LENGTH = 48  #: bytes; longer words are cut, so that probabilities do not underflow
MAX_WORDS = 150_000  #: number of most frequent distinct words that are used, which bounds memory to about 500 MB
SEEDS_PER_PIECE = 16
MIN_SEEDS = 50_000
SHRINK = 0.75  #: fraction of the pieces, excluding single bytes, kept per round
FLOOR = 1e-6  #: minimum probability of a single byte
MIN_COUNT = 0.05  #: minimum expected count of a piece; exp(digamma(0.05)) is 2e-9, never 0

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Piece(NamedTuple):
    """A piece and its log-probability."""

    text: bytes
    score: float


def train_unigram(counts: Mapping[bytes, int], n_pieces: int, min_frequency: int = 2) -> list[Piece]:
    """Return the 256 bytes and at most ``n_pieces - 256`` others, likeliest first."""
    corpus = _Corpus(counts)
    seeds = _find_seeds(corpus, max(MIN_SEEDS, SEEDS_PER_PIECE * n_pieces), min_frequency)
    words = _lattice(seeds, corpus.start[:-1], np.diff(corpus.start), words=True)
    within = _lattice(seeds, seeds.occurrence, seeds.length, words=False)
    is_byte = seeds.length == 1
    alive = np.ones(len(is_byte), dtype=np.bool_)
    probability = _reestimate(seeds.frequency, alive, is_byte)
    while True:
        for _ in range(2):
            expected = words.expect(probability, corpus.count)
            probability = _reestimate(expected, alive, is_byte)
        n_alive = int(alive.sum())
        if n_alive <= n_pieces:
            break
        # The drop in log-likelihood when a piece is replaced by its best segmentation.
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.nan_to_num(expected * (np.log(probability) - np.log(within.best(probability))), nan=-np.inf)
        loss[is_byte], loss[~alive] = np.inf, -np.inf
        alive[np.argsort(-loss, kind="stable")[max(n_pieces, 256 + int(SHRINK * (n_alive - 256))) :]] = False
        words, within, probability = words.keep(alive), within.keep(alive), np.where(alive, probability, 0.0)
    chosen = np.argsort(-probability, kind="stable")[:n_alive]
    return [Piece(corpus.substring(seeds, int(i)), float(np.log(probability[i]))) for i in chosen]


class _Corpus:
    """Distinct words joined into one array of bytes."""

    def __init__(self, counts: Mapping[bytes, int]) -> None:
        parts: Counter[bytes] = Counter()
        for word, count in counts.items():
            for begin in range(0, len(word), MAX_WORD_LENGTH):
                parts[word[begin : begin + MAX_WORD_LENGTH]] += count
        chosen = sorted(parts.items(), key=lambda item: (-item[1], item[0]))[:MAX_WORDS]
        lengths = np.array([len(word) for word, _ in chosen], dtype=np.int64)
        self.text = np.frombuffer(b"".join(word for word, _ in chosen), dtype=np.uint8)
        self.word = np.repeat(np.arange(len(chosen)), lengths)  # index of the word of each byte
        self.start: Ints = np.cumsum([0, *lengths], dtype=np.int64)  # offset of each word, and the end of the last
        self.count = np.array([count for _, count in chosen], dtype=np.float64)

    def substring(self, seeds: _Seeds, i: int) -> bytes:
        if seeds.length[i] == 1:
            return bytes([i])
        return self.text[seeds.occurrence[i] : seeds.occurrence[i] + seeds.length[i]].tobytes()


@dataclass(frozen=True)
class _Seeds:
    """Candidate substrings and their occurrences; the first 256 are the single bytes."""

    length: Ints
    frequency: Floats
    occurrence: Ints  #: offset of one occurrence of each substring (0 for an absent byte)
    at: Ints  #: offset of each occurrence, ascending
    piece: Ints  #: index of the substring of each occurrence


def _find_seeds(corpus: _Corpus, most: int, min_frequency: int) -> _Seeds:
    """Return all single bytes, and the substrings with the highest frequency x length."""
    weight = corpus.count[corpus.word]
    piece = corpus.text.astype(np.int64)
    at = np.arange(len(piece))
    levels = [(at, piece, _sums(piece, weight, 256))]  # occurrences, pieces and frequencies per length
    for n in range(2, MAX_PIECE_LENGTH + 1):
        # A frequent substring of n bytes consists of two overlapping frequent ones of n - 1 bytes.
        piece_at = np.full(len(corpus.text) + 1, -1, dtype=np.int64)
        piece_at[at] = piece
        at = at[piece_at[at + 1] >= 0]
        at = at[at + n <= corpus.start[1:][corpus.word[at]]]
        keys, inverse = np.unique(piece_at[at] << 32 | piece_at[at + 1], return_inverse=True)
        frequency = _sums(inverse, weight[at], len(keys))
        frequent = frequency >= max(2, min_frequency)
        if not frequent.any():
            break
        piece = np.where(frequent, np.cumsum(frequent) - 1, -1)[inverse]
        at, piece = at[piece >= 0], piece[piece >= 0]
        levels.append((at, piece, frequency[frequent]))
    length = np.concatenate([np.full(len(frequency), n) for n, (_, _, frequency) in enumerate(levels, 1)])
    frequency = np.concatenate([frequency for _, _, frequency in levels])
    worth = np.where(length == 1, np.inf, frequency * length)
    chosen = np.sort(np.argsort(-worth, kind="stable")[:most])
    renumbered = np.full(len(length), -1, dtype=np.int64)
    renumbered[chosen] = np.arange(len(chosen))
    offsets = np.cumsum([0, *(len(frequency) for _, _, frequency in levels)])
    at = np.concatenate([at for at, _, _ in levels])
    pieces = (piece + offset for (_, piece, _), offset in zip(levels, offsets, strict=False))
    piece = renumbered[np.concatenate(list(pieces))]
    at, piece = at[piece >= 0], piece[piece >= 0]
    order = np.argsort(at, kind="stable")
    occurrence = np.zeros(len(chosen), dtype=np.int64)
    occurrence[piece[order]] = at[order]
    return _Seeds(length[chosen], frequency[chosen], occurrence, at[order], piece[order])


def _sorted_edges(source: Ints, goal: Ints, piece: Ints, column: Ints) -> Ints:
    """Return edges (4, E) sorted by column, then by goal."""
    order = np.lexsort((goal, column))  # column: distance of the goal from the first node of its lattice
    edges = np.empty((4, len(order)), np.int64)
    for row, values in zip(edges, (source, goal, piece, column), strict=True):
        np.take(values, order, out=row, mode="clip")  # the default mode would buffer a row
    return edges


@dataclass(frozen=True)
class _Lattice:
    """All segmentations of many texts; a text of n bytes has n + 1 nodes."""

    first: Ints
    last: Ints
    forward: Ints
    backward: Ints | None  #: the same edges, sorted for the other direction of the dynamic program

    def keep(self, alive: NDArray[np.bool_]) -> _Lattice:
        """Return the lattice without the edges of pruned pieces."""
        backward = None if self.backward is None else self.backward[:, alive[self.backward[2]]]
        return _Lattice(self.first, self.last, self.forward[:, alive[self.forward[2]]], backward)

    def sweep(self, edges: Ints, begin: Ints, probability: Floats, combine: np.ufunc) -> Floats:
        """Return the sum (or maximum) of the probabilities of all paths to each node."""
        source, goal, piece, column = edges
        reached = np.zeros(int(self.last[-1]) + 1)
        reached[begin] = 1.0
        for start, end in pairwise(np.flatnonzero(np.diff(column, prepend=-1, append=-1))):
            goals = goal[start:end]
            begins = np.flatnonzero(np.diff(goals, prepend=-1))
            arriving = reached[source[start:end]] * probability[piece[start:end]]
            reached[goals[begins]] = combine.reduceat(arriving, begins)
        return reached

    def best(self, probability: Floats) -> Floats:
        """Return the probability of the best path through each text, 0 without a path."""
        return self.sweep(self.forward, self.first, probability, np.maximum)[self.last]

    def expect(self, probability: Floats, count: Floats) -> Floats:
        """Return expected piece counts (forward-backward) for text frequencies ``count``."""
        assert self.backward is not None
        alpha = self.sweep(self.forward, self.first, probability, np.add)
        beta = self.sweep(self.backward, self.last, probability, np.add)
        scale = np.repeat(count / alpha[self.last], np.diff(self.first, append=len(alpha)))
        source, goal, piece, _ = self.forward
        weight = alpha[source] * probability[piece] * beta[goal] * scale[source]
        return _sums(piece, weight, len(probability))


def _lattice(seeds: _Seeds, begin: Ints, length: Ints, *, words: bool) -> _Lattice:
    """Build the lattice of all words, or of all seeds, each without itself as a piece."""
    low, high = np.searchsorted(seeds.at, (begin, begin + length))
    size = high - low if words else np.where(length > 1, high - low, 0)
    owner = np.repeat(np.arange(len(size)), size)
    edge = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size) + low[owner]
    offset, piece = seeds.at[edge] - begin[owner], seeds.piece[edge]
    del edge
    if not words:  # in words, no piece extends past the end
        inside = (offset + seeds.length[piece] <= length[owner]) & (piece != owner)
        owner, offset, piece = owner[inside], offset[inside], piece[inside]
    first = np.cumsum(length + 1) - (length + 1)  # a text of n bytes has n + 1 nodes
    source, end = first[owner] + offset, offset + seeds.length[piece]
    goal = first[owner] + end
    from_end = length[owner] - offset
    del owner, offset  # before the edges are sorted, where memory use peaks
    backward = _sorted_edges(goal, source, piece, from_end) if words else None
    return _Lattice(first, first + length, _sorted_edges(source, goal, piece, end), backward)


def _reestimate(expected: Floats, alive: NDArray[np.bool_], is_byte: NDArray[np.bool_]) -> Floats:
    """Return probabilities by variational Bayes (Liang and Klein 2009)."""
    counts = np.maximum(expected, MIN_COUNT)
    probability = np.exp(_digamma(counts) - np.log(max(1.0, expected.sum())))  # penalizes rare pieces
    return np.where(alive, np.where(is_byte, np.maximum(probability, FLOOR), probability), 0.0)


def _sums(index: Ints, weight: Floats, n: int) -> Floats:
    """Return the sum of the weights per index below n, added in a fixed order."""
    return np.bincount(index, weight, n).astype(np.float64)


def _digamma(x: Floats) -> Floats:
    """Return digamma(x), x > 0: recurrence, then Abramowitz and Stegun 6.3.18."""
    with np.errstate(divide="ignore"):
        shift: Floats = (1.0 / (x[:, None] + np.arange(6))).sum(axis=1)
    y = x + 6.0
    value: Floats = np.log(y) - shift - 0.5 / y - 1 / (12 * y**2) + 1 / (120 * y**4) - 1 / (252 * y**6)
    return value
