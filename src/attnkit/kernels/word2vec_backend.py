"""Backend of the ``word2vec`` loops: selection, arguments and results.

Letters: V words, D dim, P = D rounded up to a multiple of 16, N ids of the encoded text, L lines.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled, read_only

LANES = 16  #: floats per LLVM vector; rows are padded to a multiple

Floats = NDArray[np.float32]
Span = tuple[int, int]  #: begin and end


@dataclass(frozen=True)
class LoopSpec:
    """Hyperparameters that select and configure a loop."""

    # The prediction: direction, input and output layer.
    method: Literal["skip-gram", "cbow"] = "skip-gram"
    context: Literal["mean", "sum"] = "mean"  #: combination of the context's vectors in CBOW
    output: Literal["negative", "hierarchical"] = "negative"
    dim: int = 100
    window: int = 5
    dynamic_window: bool = True  #: draw each window's width from 1 to ``window``
    # Negative sampling.
    negative: int = 5
    exact: bool = False  #: draw ``negative`` words for every pair, as gensim does; False shares noise words
    subwords: bool = False

    @property
    def width(self) -> int:
        """P, the number of floats per row."""
        return -(-self.dim // LANES) * LANES

    @property
    def kind(self) -> LoopSpec:
        """Canonical spec of all specs that use the same compiled loop."""
        sampled = self.output == "negative"
        return LoopSpec(
            method=self.method,
            output=self.output,
            dim=self.width,
            exact=sampled and self.method == "skip-gram" and self.exact,
            subwords=sampled and self.method == "cbow" and self.subwords,
        )


@dataclass
class Weights:
    """Float32 matrices with 64-byte aligned rows (see ``rows``), 0 beyond column D."""

    inputs: Floats  #: (V, P), or (V + buckets, P) with subwords: the word vectors
    outputs: Floats  #: (V, P), or (V - 1, P) with a Huffman tree


def rows(n: int, width: int) -> Floats:
    """Return zeros (n, width), 64-byte aligned; ``width`` must be a multiple of 16."""
    raw = np.zeros(n * width + 16, np.float32)
    # Floats up to the next multiple of 64 bytes.
    skip = (-raw.ctypes.data % 64) // 4
    return raw[skip : skip + n * width].reshape(n, width)


@dataclass(frozen=True)
class Text:
    """Encoded corpus; both arrays may be memory-mapped."""

    ids: NDArray[np.uint16] | NDArray[np.uint32]  #: (N,) word ids
    starts: NDArray[np.int64]  #: (L + 1,) start of each line, and the end of the last

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return both arrays, read-only."""
        return read_only(self.ids), read_only(self.starts)


_UINTS, _INTS, _LONGS = np.empty(0, np.uint32), np.empty(0, np.int32), np.empty(0, np.int64)


class LookupTables(NamedTuple):
    """Tables indexed by word, in the order used by loops; unneeded tables are empty.

    ``STARTS``, ``ROWS`` and other indices in ``layers`` depend on this order.
    """

    keep: NDArray[np.uint32]  #: (V,) from ``sampling.keep_thresholds``
    prob: NDArray[np.uint32] = _UINTS  #: (V,) and ``alias`` (V,) from ``sampling.alias_table``
    alias: NDArray[np.int32] = _INTS
    path_starts: NDArray[np.int64] = _LONGS  #: (V + 1,), ``nodes`` and ``codes`` from ``sampling.huffman``
    nodes: NDArray[np.int32] = _INTS
    codes: NDArray[np.int8] = np.empty(0, np.int8)
    subword_starts: NDArray[np.int64] = _LONGS  #: (V + 1,) start of each word's list of input rows, its own row first
    subword_rows: NDArray[np.int32] = _INTS

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return all tables, read-only."""
        tables: tuple[Any, ...] = self
        return tuple(map(read_only, tables))


@dataclass(frozen=True)
class PieceStats:
    """Loss and counts of a trained piece."""

    loss: float  #: sum of -log σ over the terms, each under the weights before its update
    terms: int  #: number of terms; with shared negatives, each positive counts ``1 + negative``
    words: int  #: number of words kept by subsampling


class CompiledBackend:
    """Compiled loop of a spec; it releases the GIL, and threads may share the weights.

    A loop is a function of (weights, text, piece, settings, tables), each a tuple: (inputs, outputs, lanes) with P / 16
    zeros as ``lanes``, so that the width is known at compile time; (ids, starts); (begin, end, key, first alpha, last
    alpha); (window, dynamic, negative, mean); ``LookupTables``. It returns (loss, terms, words).
    """

    def __init__(self, spec: LoopSpec, tables: LookupTables, ids: Any = np.uint32) -> None:
        """Load or compile the loop for ids of one dtype; needs numba (``has_numba``)."""
        self._tables = tables.arrays()
        self._settings = (spec.window, int(spec.dynamic_window), spec.negative, int(spec.context == "mean"))
        # The length of a tuple is part of its type, so numba compiles for one width.
        self._lanes = (np.float32(0.0),) * (spec.width // LANES)
        self._loop = compiled_loop(json.dumps(asdict(spec.kind)), np.dtype(ids).name)

    def piece(self, weights: Weights, text: Text, span: Span, key: int, alphas: tuple[float, float]) -> PieceStats:
        """Train in place on the centre words at positions [span[0], span[1]) of a text.

        ``key`` is ``sampling.key_of(seed, epoch)``, the same for all pieces of an epoch: key and positions determine
        all random numbers. The learning rate decreases from alphas[0] to alphas[1] over the piece.
        """
        matrices, piece = (weights.inputs, weights.outputs, self._lanes), _piece(span, key, alphas)
        loss, terms, words = self._loop(matrices, text.arrays(), piece, self._settings, self._tables)
        return PieceStats(float(loss), int(terms), int(words))


def _piece(span: Span, key: int, alphas: tuple[float, float]) -> tuple[Any, ...]:
    # Tuples of plain arrays and numbers, which numba takes without boxing.
    return np.int64(span[0]), np.int64(span[1]), np.uint64(key), np.float32(alphas[0]), np.float32(alphas[1])


@cache
def compiled_loop(kind: str, ids: str) -> Any:
    """Return the compiled loop of ``LoopSpec.kind`` (as JSON) for ids of one dtype."""
    spec = LoopSpec(**json.loads(kind))
    # Imported on first use: vectors are loaded and queried without numba.
    module = import_module("attnkit.kernels.word2vec")
    if spec.output == "hierarchical":
        name = "bags_with_paths" if spec.method == "cbow" else "pairs_with_paths"
    elif spec.method == "cbow":
        name = "bags_of_subwords" if spec.subwords else "bags"
    else:
        name = "pairs" if spec.exact else "shared"
    # Arguments of the right types; their content does not matter.
    text, tables = Text(np.empty(0, ids), np.zeros(1, np.int64)), LookupTables(np.empty(0, np.uint32))
    matrices = rows(1, spec.width), rows(1, spec.width), (np.float32(0.0),) * (spec.width // LANES)
    arguments = matrices, text.arrays(), _piece((0, 0), 0, (0.0, 0.0)), (0, 0, 0, 0), tables.arrays()
    return compiled(getattr(module, name), arguments, ("word2vec_backend", "compiled_loop", kind, ids))
