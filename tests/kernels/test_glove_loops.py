"""GloVe's steps against AdaGrad written out number by number, in double precision; numba against numpy."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from attnkit.kernels import glove
from attnkit.kernels.glove import Cooccurrences, GloveSettings, Parameters, train_pairs
from attnkit.kernels.word2vec_backend import rows

V, D, P = 9, 5, 16
KNOBS = GloveSettings(0.05, 3.0, 0.75)


@pytest.fixture(params=["numba", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        monkeypatch.setattr(glove, "compiled_loop", lambda: None)
        monkeypatch.setattr(glove, "_TOGETHER", 7)
    return str(request.param)


def some_pairs() -> Cooccurrences:
    draw = np.random.default_rng(3)
    both = [(i, j) for i in range(V) for j in range(i, V)]
    draw.shuffle(both)
    low, high = np.array(both, np.uint32).T
    return Cooccurrences(low.copy(), high.copy(), draw.exponential(3, len(both)).astype(np.float32) + np.float32(0.1))


def begun(n_words: int = V, dim: int = D) -> Parameters:
    draw = np.random.default_rng(4)
    found = Parameters(*(rows(n_words, P) for _ in range(8)))
    for matrix, width in ((found[0], dim), (found[1], dim), (found[4], 1), (found[5], 1)):
        matrix[:, :width] = draw.normal(0, 0.4, (n_words, width))
    return found


def naive(parameters: Parameters, pairs: Cooccurrences, epochs: int) -> tuple[list[NDArray[np.float64]], float, int]:
    """Return w, c, b and b' after steps on f(X)/2 (w·c + b + b' - log X)^2, and the first epoch's Σ f(X) (...)^2."""
    w, c = (parameters[n][:, :D].astype(np.float64) for n in (0, 1))
    b, d = (parameters[n][:, :1].astype(np.float64) for n in (4, 5))
    squares = {name: np.ones_like(values) for name, values in (("w", w), ("c", c), ("b", b), ("d", d))}
    losses: list[float] = []
    terms = 0
    for _ in range(epochs):
        loss = 0.0
        for low, high, x in zip(*(part.tolist() for part in pairs), strict=True):
            for i, j in [(low, high), (high, low)] if low != high else [(low, low)]:
                f = min(1.0, (x / KNOBS.x_max) ** KNOBS.exponent)
                off = sum(w[i, k] * c[j, k] for k in range(D)) + b[i, 0] + d[j, 0] - math.log(x)
                loss += f * off**2
                terms += 1
                of_w, of_c = KNOBS.alpha * f * off * c[j], KNOBS.alpha * f * off * w[i]
                for name, values, row, step in (
                    *(("w", w, i, of_w), ("c", c, j, of_c)),
                    *(("b", b, i, KNOBS.alpha * f * off), ("d", d, j, KNOBS.alpha * f * off)),
                ):
                    values[row] -= step / np.sqrt(squares[name][row])
                    squares[name][row] += step**2
        losses.append(loss)
    return [w, c, b, d], losses[0], terms


def test_equals_naive_steps(way: str) -> None:
    parameters, pairs = begun(), some_pairs()
    (w, c, b, d), loss, terms = naive(parameters, pairs, 3)
    n, first = len(pairs.low), []
    for _ in range(3):
        parts = [train_pairs(parameters, pairs, span, KNOBS) for span in ((0, 11), (11, 12), (12, n))]
        first.append(tuple(map(sum, zip(*parts, strict=True))))
    np.testing.assert_allclose(first[0][0], loss, rtol=1e-5)
    assert sum(terms for _, terms in first) == terms == 3 * V * V
    for ours, theirs in ((parameters.words, w), (parameters.contexts, c)):
        np.testing.assert_allclose(ours[:, :D], theirs, rtol=2e-4, atol=2e-6)
        assert not ours[:, D:].any()
    np.testing.assert_allclose(parameters.word_bias[:, :1], b, rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(parameters.context_bias[:, :1], d, rtol=2e-4, atol=2e-6)


def test_learns_the_logarithms(way: str) -> None:
    """Counts that a product of three numbers can say are learnt, whoever computes."""
    draw = np.random.default_rng(1)
    vectors = draw.normal(0, 0.7, (V, 3))
    low, high = np.triu_indices(V)
    counts = np.exp(np.einsum("nd,nd->n", vectors[low], vectors[high])).astype(np.float32)
    pairs, parameters = Cooccurrences(low.astype(np.uint32), high.astype(np.uint32), counts), begun()
    losses = [train_pairs(parameters, pairs, (0, len(low)), GloveSettings(0.3, 2.0, 0.75))[0] for _ in range(300)]
    assert losses[-1] < 1e-3 * losses[0]


def test_threads_may_share() -> None:
    """Each of two threads takes half of the pairs; some steps may be lost, but what is learnt is learnt."""
    assert glove.compiled_loop() is not None
    low, high = np.triu_indices(40)
    draw = np.random.default_rng(1)
    vectors = draw.normal(0, 0.7, (40, 3))
    counts = np.exp(np.einsum("nd,nd->n", vectors[low], vectors[high])).astype(np.float32)
    order = draw.permutation(len(low))
    pairs = Cooccurrences(low[order].astype(np.uint32), high[order].astype(np.uint32), counts[order])
    parameters, n, found = begun(40), len(low), []

    together = threading.Barrier(2)  # on a busy machine one thread could else be done before the other begins

    def work(span: tuple[int, int]) -> None:
        for _ in range(150):
            together.wait()
            found.append(train_pairs(parameters, pairs, span, GloveSettings(0.3, 2.0, 0.75))[0])

    threads = [threading.Thread(target=work, args=(span,)) for span in ((0, n // 2), (n // 2, n))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert train_pairs(parameters, pairs, (0, n), KNOBS)[0] < 0.01 * (found[0] * 2)


def test_numpy_takes_pairs_apart_in_their_order() -> None:
    draw = np.random.default_rng(2)
    i, j = draw.integers(0, 6, 200), draw.integers(0, 6, 200)
    parts = glove._apart(i, j)
    for part in parts:
        assert len({*i[part]}) == len({*j[part]}) == len(part)
    order = np.concatenate(parts)
    assert sorted(order) == list(range(200))
    for side in (i, j):
        for word in range(6):
            assert (np.diff(order[side[order] == word]) > 0).all()
