"""Compiled loops of bags of words, hierarchical softmax and subwords against a slow one, and its gradients by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from slow_loops import Slow

from attnkit.kernels.sampling import alias_table, huffman, keep_thresholds, key_of
from attnkit.kernels.word2vec_backend import CompiledBackend, LookupTables, LoopSpec, Text, Weights, rows

V, D = 40, 20
COUNTS = (2000 / np.arange(2, V + 2)).astype(np.int64)
BAG = LoopSpec(method="cbow", dim=D, window=3, negative=5)
EXACT = LoopSpec(dim=D, window=3, negative=4, exact=True)
PATHS = LoopSpec(output="hierarchical", dim=D, window=3)


def tables(spec: LoopSpec) -> LookupTables:
    made = LookupTables(keep_thresholds(COUNTS, 2e-2))
    if spec.output == "hierarchical":
        paths = huffman(COUNTS)
        made = made._replace(path_starts=paths.starts, nodes=paths.nodes, codes=paths.codes)
    else:
        prob, alias = alias_table(COUNTS, 0.75)
        made = made._replace(prob=prob, alias=alias)
    if spec.subwords:  # from no n-gram to four, which words share
        lists = [[word, *(V + (7 * word + k * k) % 23 for k in range(word % 5))] for word in range(V)]
        ends = np.cumsum([0, *map(len, lists)])
        made = made._replace(subword_starts=ends, subword_rows=np.concatenate(lists).astype(np.int32))
    return made


def text(seed: int) -> Text:
    draw = np.random.default_rng(seed)
    ids = draw.choice(V, 300, p=COUNTS / COUNTS.sum()).astype(np.uint16)
    return Text(ids, np.array([0, 1, 1, 90, 92, 230, 300]))


def weights(spec: LoopSpec, scale: float = 0.9) -> Weights:
    draw = np.random.default_rng(5)
    made = Weights(rows(V + 23, spec.width), rows(V, spec.width))
    for matrix in (made.inputs, made.outputs):
        matrix[:, : spec.dim] = draw.normal(0, scale * (D / spec.dim) ** 0.25, (len(matrix), spec.dim))
    return made


def check(spec: LoopSpec, span: tuple[int, int] = (0, 300), ids: type = np.uint16) -> Slow:
    """Train both ways and compare all that comes out."""
    here, corpus, key = weights(spec), text(1), key_of(3, 1)
    corpus, loops = Text(corpus.ids.astype(ids), corpus.starts), CompiledBackend(spec, tables(spec), ids)
    slow = Slow.like(spec, tables(spec), here)
    slow.train(corpus, span, key, (0.1, 0.02))
    tally = loops.piece(here, corpus, span, key, (0.1, 0.02))
    assert (tally.terms, tally.words) == (slow.terms, slow.words)
    assert tally.loss == pytest.approx(slow.loss, rel=1e-4)
    for ours, theirs in ((here.inputs, slow.inputs), (here.outputs, slow.outputs)):
        np.testing.assert_allclose(ours[:, : spec.dim], theirs, rtol=2e-4, atol=2e-5)
        assert not ours[:, spec.dim :].any()
    return slow


SPECS = {
    "bag, mean": BAG,
    "bag, sum": replace(BAG, context="sum"),
    "bag, many negatives, fixed wide window": replace(BAG, negative=20, window=9, dynamic_window=False),
    "bag, subwords": replace(BAG, subwords=True),
    "bag, sum, subwords": replace(BAG, context="sum", subwords=True),
    "skip-gram, subwords": replace(EXACT, subwords=True),
    "paths": PATHS,
    "paths, subwords": replace(PATHS, subwords=True),
}


PIECES = ("bag, mean", "bag, subwords", "paths")
COMPILED_ANEW = [  # numba takes six seconds for each kind of loop
    pytest.param(name, marks=pytest.mark.slow if "subwords" in name or "paths" in name else ()) for name in SPECS
]


@pytest.mark.parametrize("name", COMPILED_ANEW)
def test_compiled_equals_slow(name: str) -> None:
    spec = SPECS[name]
    slow = check(spec)
    assert slow.words > 100 and slow.terms > 500


@pytest.mark.parametrize("name", [spec for spec in COMPILED_ANEW if spec.values[0] in PIECES])
def test_pieces_reach_beyond_their_ends(name: str) -> None:
    spec = SPECS[name]
    for span in ((0, 0), (0, 1), (40, 95), (90, 92), (231, 300)):
        check(spec, span)


@pytest.mark.slow
@pytest.mark.parametrize("context", ["mean", "sum"])
@pytest.mark.parametrize("subwords", [False, True])
def test_compiled_equals_slow_for_bags_with_paths(context: str, subwords: bool) -> None:
    spec = replace(PATHS, method="cbow", context=context, subwords=subwords)
    check(spec)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 16, 330])
@pytest.mark.parametrize("name", ["bag, mean", "bag, subwords", "skip-gram, subwords", "paths"])
def test_any_width(dim: int, name: str) -> None:
    check(replace(SPECS[name], dim=dim), ids=np.uint32)
