"""Training loops of GloVe (Pennington, Socher and Manning 2014).

For a pair with co-occurrence count X, the loss is f(X) (w·c + b + b' - log X)^2, f(X) = min(1, (X / x_max)^exponent)
(equation 8 of the paper). Each pair takes an AdaGrad step (Duchi et al. 2011), as in the authors' program: the gradient
of half the loss, times the learning rate, divided by the square root of 1 plus the sum of all earlier squared products.

Letters: V words, D vector width, P floats per row (D padded with zeros), N pairs.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled, read_only

Floats = NDArray[np.float32]
Span = tuple[int, int]  #: begin and end
_TOGETHER = 1 << 14  # pairs that numpy splits into batches at a time


class Parameters(NamedTuple):
    """Trained parameters and AdaGrad sums; all but the vectors may start at 0."""

    words: Floats  #: (V, P) word vectors w
    contexts: Floats  #: (V, P) context vectors c
    word_squares: Floats  #: (V, P) sums of the squared products of rate and gradient of w; the others likewise
    context_squares: Floats
    word_bias: Floats  #: (V, any) b in the first column; the others likewise
    context_bias: Floats
    word_bias_squares: Floats
    context_bias_squares: Floats


class Cooccurrences(NamedTuple):
    """Distinct co-occurring word pairs; arrays may be memory-mapped."""

    low: NDArray[np.uint32]  #: (N,) lower word id
    high: NDArray[np.uint32]
    counts: Floats  #: (N,) X > 0


class GloveSettings(NamedTuple):
    """Hyperparameters of the GloVe loss and its step."""

    alpha: float  #: learning rate
    x_max: float
    exponent: float


def train_pairs(parameters: Parameters, pairs: Cooccurrences, span: Span, settings: GloveSettings) -> tuple[float, int]:
    """Train in place on the pairs [span[0], span[1]), each in both directions.

    Returns the sum of the losses, each before its step, and their number. Threads may train the same parameters at
    once: conflicting updates may be lost, as in the authors' program.
    """
    loop: Callable[..., Any] = compiled_loop() or in_numpy
    plain, numbers = Cooccurrences(*map(read_only, pairs)), GloveSettings(*map(np.float64, settings))
    loss, terms = loop(parameters, plain, (np.int64(span[0]), np.int64(span[1])), numbers)
    return float(loss), int(terms)


def _descend_loop(parameters: Any, pairs: Any, span: Any, settings: Any) -> Any:
    words, contexts, word_squares, context_squares, b, c, b_squares, c_squares = parameters
    low, high, counts = pairs
    alpha, x_max, exponent = settings
    loss, terms = 0.0, 0
    for n in range(span[0], span[1]):
        x = np.float64(counts[n])
        # f(X), equation 9 of the paper.
        target, weight = np.log(x), 1.0 if x >= x_max else (x / x_max) ** exponent
        # (i, j) and (j, i): the matrix is symmetric and stored once.
        for side in range(2):
            i, j = np.int64(low[n]), np.int64(high[n])
            if side == 1:
                i, j = j, i
            w, v, ww, vv = words[i], contexts[j], word_squares[i], context_squares[j]
            # w·c
            product = np.float32(0.0)
            for d in range(len(w)):
                product += w[d] * v[d]
            difference = np.float64(product) + b[i, 0] + c[j, 0] - target
            loss += weight * difference * difference
            terms += 1
            # alpha f(X) (w·c + b + b' - log X): common to all four gradients.
            step = np.float32(alpha * weight * difference)
            for d in range(len(w)):
                # Both gradients before either vector changes; AdaGrad divides by the sum before this step.
                of_word, of_context = step * v[d], step * w[d]
                w[d] -= of_word / np.sqrt(np.float32(1.0) + ww[d])
                v[d] -= of_context / np.sqrt(np.float32(1.0) + vv[d])
                ww[d] += of_word * of_word
                vv[d] += of_context * of_context
            b[i, 0] -= step / np.sqrt(np.float32(1.0) + b_squares[i, 0])
            c[j, 0] -= step / np.sqrt(np.float32(1.0) + c_squares[j, 0])
            b_squares[i, 0] += step * step
            c_squares[j, 0] += step * step
            # On the diagonal both sides are the same pair.
            if i == j:
                break
    return loss, terms


@cache
def compiled_loop() -> Any:
    """Return the compiled loop, or None without numba."""
    row, words = np.zeros((1, 16), np.float32), np.empty(0, np.uint32)
    nothing = Cooccurrences(*map(read_only, (words, words.copy(), np.empty(0, np.float32))))
    span, settings = (np.int64(0), np.int64(0)), GloveSettings(*map(np.float64, (0, 1, 1)))
    arguments = (Parameters(*(row,) * 8), nothing, span, settings)
    return compiled(_descend_loop, arguments, ("glove", "compiled_loop"))


def in_numpy(parameters: Parameters, pairs: Cooccurrences, span: Span, settings: GloveSettings) -> tuple[float, int]:
    """Train as the compiled loop does, in batches of pairs that share no row."""
    loss, terms, p = 0.0, 0, parameters
    for begin in range(span[0], span[1], _TOGETHER):
        part = slice(begin, min(begin + _TOGETHER, span[1]))
        low, high = pairs.low[part].astype(np.int64), pairs.high[part].astype(np.int64)
        # (n, 2), one column per direction; a word paired with itself counts once.
        both = np.stack([low, high], 1)
        kept = np.stack([np.ones(len(low), bool), low != high], 1)
        words, contexts = both[kept], both[:, ::-1][kept]
        counts = np.repeat(pairs.counts[part].astype(np.float64), 2).reshape(-1, 2)[kept]
        for places in _apart(words, contexts):
            i, j, x = words[places], contexts[places], counts[places]
            w, v = p.words[i], p.contexts[j]  # (n, P) each
            product = np.einsum("nd,nd->n", w, v)  # (n,)
            difference = product.astype(np.float64) + p.word_bias[i, 0] + p.context_bias[j, 0] - np.log(x)
            weight = np.minimum(1.0, (x / settings.x_max) ** settings.exponent)
            step = (settings.alpha * weight * difference).astype(np.float32)
            _move(p.words, p.word_squares, i, step[:, None] * v)
            _move(p.contexts, p.context_squares, j, step[:, None] * w)
            _move(p.word_bias[:, :1], p.word_bias_squares[:, :1], i, step[:, None])
            _move(p.context_bias[:, :1], p.context_bias_squares[:, :1], j, step[:, None])
            loss += float((weight * difference * difference).sum())
        terms += len(words)
    return loss, terms


def _apart(i: NDArray[np.int64], j: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split pairs into ordered batches without a repeated i or a repeated j."""
    # Row -> first batch that is free for it; batched updates equal sequential ones.
    next_word: dict[int, int] = {}
    next_context: dict[int, int] = {}
    levels = []
    for word, context in zip(i.tolist(), j.tolist(), strict=True):
        # A pair waits for the last earlier pair with its word row or its context row.
        level = max(next_word.get(word, 0), next_context.get(context, 0))
        next_word[word] = next_context[context] = level + 1
        levels.append(level)
    order = np.argsort(levels, kind="stable")
    ends = np.cumsum(np.bincount(levels)) if levels else np.empty(0, np.int64)
    return [order[a:e] for a, e in pairwise([0, *ends.tolist()])]


def _move(values: Floats, squares: Floats, rows: NDArray[np.int64], steps: Floats) -> None:
    before = squares[rows]
    values[rows] -= steps / np.sqrt(np.float32(1.0) + before)
    squares[rows] = before + steps * steps
