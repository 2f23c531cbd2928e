"""Word vectors trained pair by pair, as the papers and programs say it, in float64: what compiled loops must equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.word2vec_backend import LookupTables, LoopSpec, Text, Weights

WHOLE = (1 << 64) - 1
NOISE = 0x6E6F697365
Doubles = NDArray[np.float64]


def number(key: int, counter: int) -> int:
    """SplitMix64, from its paper."""
    x = (key + counter * 0x9E3779B97F4A7C15) & WHOLE
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WHOLE
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WHOLE
    return x ^ (x >> 31)


def chance(f: float) -> float:
    return float(1 / (1 + np.exp(-f)))


@dataclass
class Slow:
    """One piece of work; ``train`` moves copies of the weights."""

    spec: LoopSpec
    tables: LookupTables
    inputs: Doubles
    outputs: Doubles
    limit: float = 6.0
    loss: float = 0.0
    terms: int = 0
    words: int = 0
    alpha: float = field(default=0.0, init=False)

    @classmethod
    def like(cls, spec: LoopSpec, tables: LookupTables, weights: Weights) -> Slow:
        d = spec.dim
        return cls(spec, tables, weights.inputs[:, :d].astype(float), weights.outputs[:, :d].astype(float))

    def train(self, text: Text, span: tuple[int, int], key: int, alphas: tuple[float, float]) -> None:
        centres = list(self.windows(text, span, key))
        held = Held(self, text, [place for at, near in centres for place in (at, *near)])
        for at, near in centres:
            self.words += 1
            self.alpha = alphas[0] + (alphas[1] - alphas[0]) * (at - span[0]) / (span[1] - span[0])
            word, around, noise = int(text.ids[at]), [int(text.ids[j]) for j in near], number(key ^ NOISE, at)
            if self.spec.method == "cbow":
                negatives = self.drawn(noise, range(self.spec.negative))
                if self.spec.subwords and self.spec.output == "negative":
                    held.reach(at)
                    held.bag(word, near, negatives)
                elif near:
                    self.bag(word, around, negatives)
                continue
            for j, other in enumerate(around):
                counters = range(j * self.spec.negative, (j + 1) * self.spec.negative)
                rows = self.rows(word)
                error = self.tell(self.inputs[rows].mean(axis=0), other, self.drawn(noise, counters))
                np.add.at(self.inputs, rows, error)
        held.let_go(list(held.kept))

    def windows(self, text: Text, span: tuple[int, int], key: int) -> Iterator[tuple[int, list[int]]]:
        """Yield the position of each word of the span that stays, and those of the words around it."""
        for begin, end in zip(text.starts[:-1], text.starts[1:], strict=True):
            stayed = [i for i in range(begin, end) if number(key, i) >> 32 <= int(self.tables.keep[text.ids[i]])]
            for k, i in enumerate(stayed):
                if span[0] <= i < span[1]:
                    width = self.spec.window
                    if self.spec.dynamic_window:
                        width = 1 + ((number(key, i) & 0xFFFFFFFF) * width >> 32)
                    yield i, stayed[max(0, k - width) : k] + stayed[k + 1 : k + 1 + width]

    def drawn(self, noise: int, counters: range) -> list[int]:
        prob, alias, found = self.tables.prob, self.tables.alias, []
        for counter in counters if len(prob) else ():
            bits = number(noise, counter)
            word = (bits >> 32) * len(prob) >> 32
            found.append(word if bits & 0xFFFFFFFF < int(prob[word]) else int(alias[word]))
        return found

    def rows(self, word: int) -> list[int]:
        starts = self.tables.subword_starts
        return self.tables.subword_rows[starts[word] : starts[word + 1]].tolist() if len(starts) else [word]

    def bag(self, word: int, around: list[int], negatives: list[int]) -> None:
        rows = [row for other in around for row in self.rows(other)]
        if self.spec.context == "mean":
            np.add.at(self.inputs, rows, self.tell(self.inputs[rows].mean(axis=0), word, negatives))
        else:
            np.add.at(self.inputs, rows, self.tell(self.inputs[rows].sum(axis=0), word, negatives) / len(rows))

    def tell(self, x: Doubles, word: int, negatives: list[int]) -> Doubles:
        """Tell a word from others (or go down its path) and return x's error."""
        if self.spec.output == "hierarchical":
            way = slice(self.tables.path_starts[word], self.tables.path_starts[word + 1])
            rows, labels = self.tables.nodes[way].tolist(), (1 - self.tables.codes[way]).tolist()
        else:
            rows = [word, *(other for other in negatives if other != word)]
            labels = [1] + [0] * (len(rows) - 1)
        scores = [float(self.outputs[row] @ x) for row in rows]  # all of them before any row moves
        error = np.zeros_like(x)
        for row, label, f in zip(rows, labels, scores, strict=True):
            self.loss -= np.log(chance(max(-18.0, min(18.0, f if label else -f))))  # so far does a term count
            self.terms += 1
            if abs(f) < self.limit:
                step = (label - chance(f)) * self.alpha
                error += step * self.outputs[row]
                self.outputs[row] += step * x
        return error


class Held:
    """Words of the context that stand added up while the widest window may reach them (bags over subwords)."""

    def __init__(self, slow: Slow, text: Text, places: list[int]) -> None:
        self.slow, self.text, self.stream = slow, text, sorted(set(places))
        self.kept: dict[int, tuple[Doubles, Doubles]] = {}
        self.entered = 0

    def rows(self, place: int) -> list[int]:
        return self.slow.rows(int(self.text.ids[place]))

    def reach(self, at: int) -> None:
        widest = self.slow.spec.window
        while self.entered < min(len(self.stream), self.stream.index(at) + widest + 1):
            if self.entered > 2 * widest:
                self.let_go([self.stream[self.entered - 2 * widest - 1]])
            place = self.stream[self.entered]
            total = self.slow.inputs[self.rows(place)].sum(axis=0)
            self.kept[place] = (total, np.zeros_like(total))
            self.entered += 1

    def let_go(self, places: list[int]) -> None:
        for place in places:
            np.add.at(self.slow.inputs, self.rows(place), self.kept.pop(place)[1])

    def bag(self, word: int, near: list[int], negatives: list[int]) -> None:
        n_rows = sum(len(self.rows(place)) for place in near)
        if not near:
            return
        total, mean = sum(self.kept[place][0] for place in near), self.slow.spec.context == "mean"
        error = self.slow.tell(total / (n_rows if mean else 1), word, negatives) / (1 if mean else n_rows)
        for place in near:
            self.kept[place][0][:] += len(self.rows(place)) * error
            self.kept[place][1][:] += error
