"""A lexicon learnt from a sample of the corpus, and its scores of line pairs.

Letters: N pairs, S and T words of the longest source and target line, V known words of a side, C channels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.ibm1 import AlignmentCorpus, em_step, fastest, init_table
from attnkit.quality.lines import Floats, Ids, Ints, Side

ITERATIONS = 4
SMOOTHING = 0.1  #: share of the words' own frequencies in a translation probability
MAX_VOCABULARY = 4095  #: most frequent words per side that the lexicon knows
_ROWS = 4096  # pairs scored at once


class Lexicon:
    """Translation probabilities of frequent words, by IBM Model 1.

    Brown et al. 1993, section 4.1.
    """

    def __init__(self, src: Side, tgt: Side, pairs: tuple[Ints, Ints]) -> None:
        """Learn from pairs of lines, given as line numbers of both sides."""
        min_count = 2 if len(pairs[0]) < 5000 else 3
        self._sides = src, tgt
        rows = [side.ids(lines) for side, lines in zip(self._sides, pairs, strict=True)]
        # Word number -> number in this lexicon, 0 for words that are not known.
        self._known = [_most_frequent(side, len(src.words), min_count) for side in rows]
        rows = [known[side] for known, side in zip(self._known, rows, strict=True)]
        words = [side[side > 0] for side in rows]
        starts = [np.concatenate([[0], np.cumsum((side > 0).sum(1))]).astype(np.int64) for side in rows]
        sizes = [int(known.max(initial=0)) + 1 for known in self._known]
        corpus = AlignmentCorpus(words[0], starts[0], words[1], starts[1], *sizes)
        table, loops = init_table(corpus), fastest()
        for _ in range(ITERATIONS):
            em_step(table, corpus, loops)
        # Row 0 is NULL. Row 1 belongs to padding and unknown words, which never occur: it stays 0.
        self._probs = np.zeros((sizes[0] + 1, sizes[1]), np.float32)
        self._probs.reshape(-1)[table.keys] = table.probs
        counts = np.bincount(words[1], minlength=sizes[1]) + 0.5
        self._unigram = (counts / counts.sum()).astype(np.float32)

    def _encode(self, side: int, lines: Ints) -> Ids:
        ids = self._sides[side].ids(lines)
        known = self._known[side]
        return np.where(ids < len(known), known[np.minimum(ids, len(known) - 1)], 0)

    def score(self, src_lines: Ints, tgt_lines: Ints) -> tuple[Floats, Floats]:
        """Return log p(target | source) / p(target) (N,) and the known words (N,).

        The logarithm is summed over the known words of the target.
        """
        sums, counts = np.zeros(len(src_lines)), np.zeros(len(src_lines))
        for begin in range(0, len(src_lines), _ROWS):
            part = slice(begin, begin + _ROWS)
            src, tgt = self._encode(0, src_lines[part]), self._encode(1, tgt_lines[part])  # (N, S), (N, T)
            n_src = (src > 0).sum(1, keepdims=True)  # (N, 1)
            total = self._probs[0][tgt]  # (N, T), NULL's share
            flat, width = self._probs.reshape(-1), self._probs.shape[1]
            for column in src.T:  # word by word: (N, S, T) at once would not fit the caches
                total += flat[(column[:, None] + 1) * width + tgt]
            ratio = np.log(SMOOTHING + (1 - SMOOTHING) * total / (n_src + 1) / self._unigram[tgt])
            known = (tgt > 0) & (n_src > 0)
            sums[part], counts[part] = (ratio * known).sum(1), known.sum(1)
        return sums, counts

    def channels(self, n_channels: int, seed: int = 0) -> tuple[Floats, Floats]:
        """Return features (C, N) of both sides that correlate for translations.

        Every target word has a random vector, longer for rarer words; a source word has the mean vector of its
        translations. Sums over a line are random projections of its words.
        """
        random = np.random.default_rng(seed)
        vectors = random.standard_normal((len(self._unigram), n_channels)).astype(np.float32)
        vectors *= np.maximum(0, -np.log(self._unigram) - 3)[:, None]
        vectors[0] = 0
        both = np.vstack([self._probs[1:] @ vectors]), vectors  # (V, C)
        found = []
        for side, table in enumerate(both):
            rows = [
                table[self._encode(side, np.arange(begin, min(begin + _ROWS, len(self._sides[side]))))].sum(1)
                for begin in range(0, len(self._sides[side]), _ROWS)
            ]
            found.append(np.concatenate(rows).T.astype(np.float64))
        return found[0], found[1]


def _most_frequent(rows: Ids, n_words: int, min_count: int) -> Ids:
    """Return a number from 1 for each of the most frequent words, 0 for others."""
    counts = np.bincount(rows.reshape(-1), minlength=n_words)
    counts[0] = 0
    best = np.argsort(-counts, kind="stable")[:MAX_VOCABULARY]
    best = best[counts[best] >= min_count]
    known: NDArray[np.int32] = np.zeros(n_words, np.int32)
    known[best] = np.arange(1, len(best) + 1)
    return known
