"""Attention number by number, from the lecture notes' Table 2 and the papers' definitions: the reference of the tests.

Plain Python numbers; of the modules it reads nothing but their weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from attnkit.models.attention.config import AttentionOptions

Vector = Sequence[float]
Matrix = Sequence[Vector]

ACT: dict[str, Callable[[float], float]] = {
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)),
}


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def times(matrix: Matrix, vector: Vector) -> list[float]:
    return [dot(row, vector) for row in matrix]


def plus(*vectors: Vector) -> list[float]:
    return [math.fsum(numbers) for numbers in zip(*vectors, strict=True)]


def matrix(linear: Any, head: int) -> Matrix:
    """Return a head's weight of a linear map."""
    weight = linear.weight.detach()
    return (weight if weight.dim() == 2 else weight[head]).tolist()


def vector(flat: Tensor, head: int, n_heads: int) -> Vector:
    """Return a head's part of a vector."""
    return flat.detach().view(n_heads, -1)[head].tolist()


def sinusoid(position: int, width: int) -> list[float]:
    angles = [position / 10000 ** (2 * (j // 2) / width) for j in range(width)]
    return [math.cos(angle) if j % 2 else math.sin(angle) for j, angle in enumerate(angles)]


class Formula:
    """One head of an alignment function: a(k_i, q)."""

    def __init__(self, name: str, align: nn.Module, options: AttentionOptions, head: int, n_heads: int) -> None:
        self.name, self.align, self.options, self.head, self.n_heads = name, align, options, head, n_heads
        self.act = ACT[options.activation]

    def of(self, attribute: str) -> Vector:
        return vector(getattr(self.align, attribute), self.head, self.n_heads)

    def map(self, attribute: str) -> Matrix:
        return matrix(getattr(self.align, attribute), self.head)

    def bias(self, attribute: str) -> Vector:
        return vector(getattr(self.align, attribute).bias, self.head, self.n_heads)

    def __call__(self, q: Vector, k: Vector, i: int) -> float:
        return float(getattr(self, self.name)(q, k, i))

    def similarity(self, q: Vector, k: Vector, i: int) -> float:
        kind, d = self.options.similarity, len(q)
        if kind == "pearson":
            q, k = ([x - sum(v) / d for x in v] for v in (q, k))
        if kind in ("cosine", "pearson"):
            return self.options.strength * dot(q, k) / math.sqrt(dot(q, q) * dot(k, k))
        square = sum((a - b) ** 2 for a, b in zip(q, k, strict=True))
        value = -math.sqrt(square) if kind == "euclidean" else math.exp(-square / (2 * math.sqrt(d)))
        return self.options.strength * value

    def dot(self, q: Vector, k: Vector, i: int) -> float:
        return dot(q, k)

    def scaled_dot(self, q: Vector, k: Vector, i: int) -> float:
        return dot(q, k) / math.sqrt(len(k))

    def general(self, q: Vector, k: Vector, i: int) -> float:
        return dot(q, times(self.map("keys"), k))

    def biased_general(self, q: Vector, k: Vector, i: int) -> float:
        return dot(k, plus(times(self.map("query"), q), self.bias("query")))

    def activated_general(self, q: Vector, k: Vector, i: int) -> float:
        return self.act(dot(q, times(self.map("keys"), k)) + self.of("bias")[0])

    def kernel(self, q: Vector, k: Vector, i: int) -> float:
        if self.options.feature_map == "elu":
            q, k = ([x + 1 if x > 0 else math.exp(x) for x in v] for v in (q, k))
            return dot(q, k)
        directions = self.align.feature_map.directions.double().tolist()
        q, k = ([x / len(v) ** 0.25 for x in v] for v in (q, k))
        features = [[math.exp(dot(omega, v) - dot(v, v) / 2) for omega in directions] for v in (q, k)]
        return dot(*features) / len(directions)

    def concat(self, q: Vector, k: Vector, i: int) -> float:
        inner = plus(times(self.map("both"), [*q, *k]), self.bias("both"))
        return dot(self.of("weight"), [self.act(x) for x in inner])

    def additive(self, q: Vector, k: Vector, i: int) -> float:
        inner = plus(times(self.map("query"), q), times(self.map("keys"), k), self.bias("keys"))
        return dot(self.of("weight"), [self.act(x) for x in inner])

    def deep(self, q: Vector, k: Vector, i: int) -> float:
        inner = plus(times(self.map("keys"), k), times(self.map("query"), q))
        e = plus([self.act(x) for x in inner], self.of("first_bias"))
        for layer in self.align.layers:
            bias = vector(layer.bias, self.head, self.n_heads)
            e = [self.act(x) for x in plus(times(matrix(layer, self.head), e), bias)]
        return dot(self.of("weight"), e) + self.of("bias")[0]

    def location(self, q: Vector, k: Vector, i: int) -> float:
        return dot(self.align.table[self.head, i].tolist(), q)

    def feature(self, q: Vector, k: Vector, i: int) -> float:
        phi = {"identity": list(k), "position": sinusoid(i, len(k)), "square": [x * x for x in k]}
        first, second = phi[self.options.first_feature], phi[self.options.second_feature]
        inner = plus(times(self.map("first"), first), times(self.map("second"), second), self.bias("second"))
        return dot(self.of("weight"), [self.act(x) for x in inner])


def softmax(scores: Vector) -> list[float]:
    powers = [math.exp(s - max(scores)) for s in scores]
    return [p / math.fsum(powers) for p in powers]


def bisect(mass: Callable[[float], float], low: float, high: float) -> float:
    """Return where a falling mass(τ) is 1."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if mass(middle) > 1 else (low, middle)
    return (low + high) / 2


def weigh(name: str, scores: Vector, q: Vector, distribute: Any, head: int, n_heads: int) -> list[float]:
    """Return the weights of the keys that a query may see, whose scores are given in the order of their positions."""
    if not scores:
        return []
    if name == "softmax":
        return softmax(scores)
    if name == "normalize":
        return [s / math.fsum(scores) for s in scores]
    if name == "hard":
        return [float(i == scores.index(max(scores))) for i in range(len(scores))]
    if name == "sigmoid":
        return [1 / (1 + math.exp(-s)) for s in scores]
    if name == "sparsemax":
        threshold = bisect(lambda t: math.fsum(max(s - t, 0) for s in scores), max(scores) - 1, max(scores))
        return [max(s - threshold, 0.0) for s in scores]
    if name == "entmax15":
        halves = [s / 2 for s in scores]
        threshold = bisect(lambda t: math.fsum(max(s - t, 0) ** 2 for s in halves), max(halves) - 1, max(halves))
        return [max(s - threshold, 0.0) ** 2 for s in halves]
    assert name == "local"
    inner = [math.tanh(x) for x in times(matrix(distribute.query, head), q)]
    centre = len(scores) / (1 + math.exp(-dot(vector(distribute.weight, head, n_heads), inner)))
    window = distribute.window
    near = [s for s in range(len(scores)) if abs(s - centre) <= window]
    parts = dict(zip(near, softmax([scores[s] for s in near]), strict=True)) if near else {}
    sigma = window / 2
    return [parts.get(s, 0.0) * math.exp(-((s - centre) ** 2) / (2 * sigma**2)) for s in range(len(scores))]


def cover(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return one pair per first name, with the second names that were chosen least so far: all of them occur."""
    chosen: list[tuple[str, str]] = []
    for first in dict.fromkeys(first for first, _ in pairs):
        counts = Counter(second for _, second in chosen)
        chosen.append((first, min((second for name, second in pairs if name == first), key=lambda name: counts[name])))
    assert {second for _, second in chosen} == {second for _, second in pairs}
    return chosen
