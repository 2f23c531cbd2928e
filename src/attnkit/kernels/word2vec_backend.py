"""The backend of the training loops in ``word2vec``: which of them runs, what it takes and what it returns.

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

LANES = 16  #: floats per vector register; rows are padded to a multiple

Floats = NDArray[np.float32]
Span = tuple[int, int]  #: begin and end


@dataclass(frozen=True)
class LoopSpec:
    """Hyperparameters that select and configure a loop."""

    # What is predicted, and from what.
    method: Literal["skip-gram", "cbow"] = "skip-gram"
    context: Literal["mean", "sum"] = "mean"  #: combination of the context's vectors in CBOW
    output: Literal["negative", "hierarchical"] = "negative"
    dim: int = 100
    window: int = 5
    dynamic_window: bool = True  #: draw each window's width from 1 to ``window``
    # Negative sampling.
    negative: int = 5
    exact: bool = False  #: draw ``negative`` words for every pair, as gensim does; False shares some
    subwords: bool = False

    @property
    def width(self) -> int:
        """P, the floats of a row."""
        return -(-self.dim // LANES) * LANES

    @property
    def kind(self) -> LoopSpec:
        """The plainest spec that the same compiled loop runs by."""
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
    """The two matrices, float32, each row at a multiple of 64 bytes (``rows`` makes such); beyond D they hold 0."""

    inputs: Floats  #: (V, P), or (V + buckets, P) with subwords: the vectors that are wanted
    outputs: Floats  #: (V, P), or (V - 1, P) with a Huffman tree


def rows(n: int, width: int) -> Floats:
    """Return zeros (n, width) that begin at a multiple of 64 bytes; ``width`` must be a multiple of 16."""
    raw = np.zeros(n * width + 16, np.float32)
    # Floats up to the next multiple of 64 bytes.
    skip = (-raw.ctypes.data % 64) // 4
    return raw[skip : skip + n * width].reshape(n, width)


@dataclass(frozen=True)
class Text:
    """The encoded corpus; both arrays may be mapped."""

    ids: NDArray[np.uint16] | NDArray[np.uint32]  #: (N,) word ids
    starts: NDArray[np.int64]  #: (L + 1,): where each line begins, and the end

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return both, read-only."""
        return read_only(self.ids), read_only(self.starts)


_UINTS, _INTS, _LONGS = np.empty(0, np.uint32), np.empty(0, np.int32), np.empty(0, np.int64)


class LookupTables(NamedTuple):
    """Tables indexed by word, in the order in which loops take them; those that a spec does not need are empty.

    STARTS and ROWS of ``layers`` and the indices there depend on the order.
    """

    keep: NDArray[np.uint32]  #: (V,) from ``sampling.keep_thresholds``
    prob: NDArray[np.uint32] = _UINTS  #: (V,) and ``alias`` (V,) from ``sampling.alias_table``
    alias: NDArray[np.int32] = _INTS
    path_starts: NDArray[np.int64] = _LONGS  #: (V + 1,), ``nodes`` and ``codes`` from ``sampling.huffman``
    nodes: NDArray[np.int32] = _INTS
    codes: NDArray[np.int8] = np.empty(0, np.int8)
    subword_starts: NDArray[np.int64] = _LONGS  #: (V + 1,) begin of each word's rows of the inputs, its own row first
    subword_rows: NDArray[np.int32] = _INTS

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return all of them, read-only."""
        tables: tuple[Any, ...] = self
        return tuple(map(read_only, tables))


@dataclass(frozen=True)
class PieceStats:
    """Loss and counts of a trained piece."""

    loss: float  #: the sum of -log σ over its terms, under the weights as each was met
    terms: int  #: number of terms; with shared negatives each positive counts ``1 + negative``, its weight
    words: int  #: words that stayed


class CompiledBackend:
    """The compiled loop of a spec. Many threads may run it at once on the same weights; it holds no lock of Python's.

    A loop is a function of (weights, text, piece, settings, tables), each a tuple: (inputs, outputs, lanes), whose
    ``lanes`` is P / 16 zeros, so that the width is known when it is compiled; (ids, starts); (begin, end, key, first
    alpha, last alpha); (window, dynamic, negative, mean); ``LookupTables``. It returns (loss, terms, words).
    """

    def __init__(self, spec: LoopSpec, tables: LookupTables, ids: Any = np.uint32) -> None:
        """Load or compile the loop, for texts whose ids are of one type. Needs numba (``jit.has_numba``)."""
        self._tables = tables.arrays()
        self._settings = (spec.window, int(spec.dynamic_window), spec.negative, int(spec.context == "mean"))
        # The length of a tuple is part of its type: so numba compiles for one width.
        self._lanes = (np.float32(0.0),) * (spec.width // LANES)
        self._loop = compiled_loop(json.dumps(asdict(spec.kind)), np.dtype(ids).name)

    def piece(self, weights: Weights, text: Text, span: Span, key: int, alphas: tuple[float, float]) -> PieceStats:
        """Train on the centre words at the positions [span[0], span[1]) of the text, in place.

        ``key`` is the epoch's (``sampling.key_of(seed, epoch)``), the same for all its pieces: with the positions it
        decides all that is random. The learning rate falls from alphas[0] to alphas[1] over the piece.
        """
        matrices, piece = (weights.inputs, weights.outputs, self._lanes), _piece(span, key, alphas)
        loss, terms, words = self._loop(matrices, text.arrays(), piece, self._settings, self._tables)
        return PieceStats(float(loss), int(terms), int(words))


def _piece(span: Span, key: int, alphas: tuple[float, float]) -> tuple[Any, ...]:
    # Tuples of plain arrays and numbers: what numba takes without boxing.
    return np.int64(span[0]), np.int64(span[1]), np.uint64(key), np.float32(alphas[0]), np.float32(alphas[1])


@cache
def compiled_loop(kind: str, ids: str) -> Any:
    """Return the loop of all specs of a kind (JSON), for ids of one type; loaded once per process."""
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
