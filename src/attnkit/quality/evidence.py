"""Evidence that two lines belong together, learnt from the corpus itself.

A pair is described by a few numbers: how well the words translate each other, how the lengths agree, which numbers,
names and marks they share. A logistic regression learns to tell pairs that are presumably right from pairs of the same
lines a few lines apart; its logit is the log of the likelihood ratio of "belongs together" and "does not". If nothing
tells them apart, as in some artificial tasks, the evidence is small and no conclusion follows from it.

Letters: N pairs, F features.
"""

from __future__ import annotations

import numpy as np

from attnkit.quality.lexicon import Lexicon
from attnkit.quality.lines import Floats, Ints, Side

MAX_EVIDENCE = 6.0  #: maximum absolute evidence of a pair in nats: a single odd pair proves nothing
SAMPLE = 12_000  #: pairs that teach each of the two lexicons, and the regression
MAX_OFFSET = 64  #: distance in lines of wrong pairs
_BLOCK = 32  # lines that are together in one half of the corpus
_ROWS = 1024  # pairs compared at once


class Evidence:
    """Log likelihood ratios of pairs of lines, learnt from presumably right pairs."""

    def __init__(self, src: Side, tgt: Side, pairs: tuple[Ints, Ints], seed: int = 0) -> None:
        """Learn from pairs of line numbers.

        Two lexicons are learnt, each from one half of the corpus, and score the other half: a lexicon knows the pairs
        that it was learnt from too well.
        """
        self.src, self.tgt = src, tgt
        random = np.random.default_rng(seed)
        half = (pairs[0] // _BLOCK) % 2
        self.lexicons = []
        for parity in (1, 0):
            chosen = np.flatnonzero(half == parity)
            chosen = np.sort(random.permutation(chosen)[:SAMPLE])
            self.lexicons.append(Lexicon(src, tgt, (pairs[0][chosen], pairs[1][chosen])))
        # The usual target length: a line fitted to the logarithms of right pairs.
        x, y = src.lengths[pairs[0]], tgt.lengths[pairs[1]]
        spread = max(float(x.var()), 1e-6)
        self._slope = float(np.cov(x, y, bias=True)[0, 1]) / spread
        self._offset = float(y.mean() - self._slope * x.mean())
        self._deviation = max(float((y - self._slope * x - self._offset).std()), 0.02)
        chosen = np.sort(random.permutation(len(pairs[0]))[:SAMPLE])
        right = pairs[0][chosen], pairs[1][chosen]
        away = random.integers(1, MAX_OFFSET + 1, len(chosen)) * random.choice([-1, 1], len(chosen))
        other = right[1] + away
        inside = (other >= 0) & (other < len(tgt))
        wrong = right[0][inside], other[inside]
        described = self._describe(*right), self._describe(*wrong)
        features = np.concatenate([one[0] for one in described])
        self._usual_share = float(np.median(described[0][1]))
        labels = np.repeat([1.0, 0.0], [len(right[0]), len(wrong[0])])
        self._mean, self._scale = features.mean(0), features.std(0) + 1e-9
        self._weights = fit_logistic_regression((features - self._mean) / self._scale, labels)
        scores = self.of(*right), self.of(*wrong)
        self.separation = float(scores[0].mean() - scores[1].mean())
        """Mean evidence of right pairs minus that of wrong ones, in nats."""

    def of(self, src_lines: Ints, tgt_lines: Ints) -> Floats:
        """Return the evidence (N,) in nats, positive for likely pairs."""
        features, share = self._describe(src_lines, tgt_lines)
        features = (features - self._mean) / self._scale
        logits: Floats = features @ self._weights[1:] + self._weights[0]
        # Where the lexicon knows hardly a word, as in another language, nothing speaks for a pair.
        strange = share < 0.25 * self._usual_share
        logits[strange] = np.minimum(logits[strange], 0.0)
        # Blank lines and copies are findings of their own and say nothing about alignment.
        logits[self.src.blank[src_lines] | self.tgt.blank[tgt_lines]] = 0.0
        logits[self.src.hashes[src_lines] == self.tgt.hashes[tgt_lines]] = 0.0
        clipped: Floats = np.clip(logits, -MAX_EVIDENCE, MAX_EVIDENCE)
        return clipped

    def _describe(self, src_lines: Ints, tgt_lines: Ints) -> tuple[Floats, Floats]:
        """Return features (N, F) of pairs, and shares (N,) of known target words."""
        src, tgt = self.src, self.tgt
        sums, counts = np.zeros(len(src_lines)), np.zeros(len(src_lines))
        half = (src_lines // _BLOCK) % 2
        for parity, lexicon in enumerate(self.lexicons):
            own = np.flatnonzero(half == parity)
            if len(own):
                sums[own], counts[own] = lexicon.score(src_lines[own], tgt_lines[own])
        residual = np.abs(tgt.lengths[tgt_lines] - self._slope * src.lengths[src_lines] - self._offset)
        residual = np.minimum(residual / self._deviation, 6.0)
        marks = src.marks(src_lines).astype(np.float64), tgt.marks(tgt_lines).astype(np.float64)  # (N, 3) each
        differences = np.minimum(np.abs(marks[0] - marks[1]), 4.0)
        numbers, pauses, ends = differences[:, 0], differences[:, 1], (differences[:, 2] > 0).astype(np.float64)
        shared, unshared = self._shared(src_lines, tgt_lines)
        columns = (
            np.clip(sums, -30, 30), np.clip(sums / np.maximum(counts, 1), -3, 5), residual, residual**2, numbers,
            pauses, ends, np.minimum(shared, 4.0), np.minimum(unshared, 4.0),
        )  # fmt: skip
        n_words = (tgt.ids(tgt_lines) > 0).sum(1)
        return np.stack(columns, axis=1), counts / np.maximum(n_words, 1)

    def _shared(self, src_lines: Ints, tgt_lines: Ints) -> tuple[Floats, Floats]:
        """Return the numbers of shared telling words and of unshared numbers."""
        shared, unshared = np.zeros(len(src_lines)), np.zeros(len(src_lines))
        for begin in range(0, len(src_lines), _ROWS):
            part = slice(begin, begin + _ROWS)
            src, tgt = self.src.ids(src_lines[part]), self.tgt.ids(tgt_lines[part])  # (N, S), (N, T)
            words = self.src.words
            # WordNumbers on one side only get a number that the other side does not have.
            has = (np.where(words.is_telling[tgt], tgt, -1)[:, None] == src[:, :, None]).any(2)  # (N, S)
            shared[part] = has.sum(1)
            numbers = words.is_number[src] & ~has
            back = (np.where(words.is_number[src], src, -1)[:, None] == tgt[:, :, None]).any(2)  # (N, T)
            unshared[part] = numbers.sum(1) + (words.is_number[tgt] & ~back).sum(1)
        return shared, unshared


def fit_logistic_regression(features: Floats, labels: Floats) -> Floats:
    """Return weights (1 + F,) of a logistic regression, the bias first.

    Newton's method minimizes the negative log-likelihood plus half the squared norm of the weights.
    """
    x = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    weights = np.zeros(x.shape[1])
    ridge = np.ones(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        gradient = x.T @ (labels - p) - ridge * weights
        curvature = (x * (p * (1 - p))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-6:
            break
    return weights
