"""Work of a run in numbered pieces, whichever loop trains them. Torch-free until torch is asked for."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnkit.data.words import Encoded
from attnkit.errors import UsageError
from attnkit.kernels.jit import has_numba
from attnkit.kernels.sampling import key_of
from attnkit.kernels.word2vec import Loops, LoopSpec, PieceStats, Text, Weights
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.matrices import FEW, INPUTS, OUTPUTS, Matrices, Shape, draw, shapes, tables, threads

PIECE = 1 << 16
"""Words of a piece, at most, where all threads share one set of matrices."""
LEAST = 1 << 10
"""Words of a piece of a short text, and of one whose words take long."""
ROUND = 200_000
"""Words between two joins of the copies of a deterministic run."""


def chunk_boundaries(offsets: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return (n + 1,) where the pieces of a text begin, and its end: whole lines where these are short enough.

    >>> borders(np.array([0, 3, 6, 16]), 4)
    array([ 0,  3,  6, 10, 14, 16])
    """
    total, place, found = int(offsets[-1]), 0, [0]
    while place < total:
        end = min(place + most, total)
        if end < total:
            line = int(offsets[np.searchsorted(offsets, end, side="right") - 1])
            end = line if line > place else end
        found.append(end)
        place = end
    return np.array(found, np.int64)


def piece_size(n_words: int, copies: int, slow: bool = False) -> int:
    """Return the most words of a piece; ``copies`` is how many are trained and joined, 1 where there is one for all.

    Without copies the number of threads may change. Where words are ``slow`` a piece has few: it
    is what a stop has to wait for.
    """
    if slow:
        return LEAST
    if copies == 1:
        return min(PIECE, max(LEAST, -(-n_words // 64)))
    return max(LEAST, min(ROUND // copies, -(-n_words // (8 * copies))))


@dataclass(frozen=True)
class LinearDecay:
    """A learning rate that falls in a straight line over the whole run."""

    begin: float
    end: float
    total: int
    """Words of all epochs, or whatever is counted."""

    def at(self, done: int) -> float:
        """Return the rate after so many of them."""
        return self.begin + (self.end - self.begin) * (done / self.total if self.total else 1.0)


class Workload(Protocol):
    """One epoch of numbered pieces, each a pure function of the matrices it starts with, and of the epoch."""

    shapes: dict[str, Shape]
    """Of all that training changes."""
    n_pieces: int
    """Of an epoch."""
    where: str
    """What computes, for people."""
    concurrent: bool
    """Whether several threads may do pieces at once."""

    def begin(self, matrices: Matrices) -> None:
        """Initialize the matrices of a run."""
        ...

    def piece(self, matrices: Matrices, epoch: int, number: int) -> PieceStats:
        """Do one piece; between ``settle`` and the first one the matrices are the caller's."""
        ...

    def rate(self, step: int) -> float:
        """Return the learning rate after so many pieces of all epochs."""
        ...

    def settle(self) -> None:
        """Bring the matrices up to date, where what computes holds them elsewhere meanwhile."""
        ...


class Backend(Protocol):
    """Who trains on a piece of text: compiled loops, or torch."""

    def piece(
        self, weights: Weights, text: Text, span: tuple[int, int], key: int, alphas: tuple[float, float]
    ) -> PieceStats:
        """Train on the centre words at the positions of ``span``, in place."""
        ...


class TextWork:
    """Pieces of encoded text, for skip-gram and CBOW."""

    def __init__(self, config: Word2VecConfig, encoded: Encoded, engine: Backend, where: str) -> None:
        """Cut up the text; nothing of it is read."""
        store = encoded.store
        self.shapes, self.where = shapes(config, len(encoded.words)), where
        self.concurrent = not config.needs_torch
        slow = config.loss == "full" and config.device != "cuda"  # each word is held against all others
        self.borders = chunk_boundaries(store.offsets, piece_size(int(store.offsets[-1]), copies(config), slow))
        self.n_pieces = len(self.borders) - 1
        self._config, self._engine = config, engine
        self._text = Text(store.ids, store.offsets)
        self._pages = Pages(store.ids)
        self._falling = LinearDecay(config.alpha, config.min_alpha, config.epochs * self._n_words)

    @property
    def _n_words(self) -> int:
        return int(self.borders[-1])

    def begin(self, matrices: Matrices) -> None:
        """Draw the inputs; the outputs stay 0."""
        draw(matrices[INPUTS], self.shapes[INPUTS].width, self._config.seed)

    def piece(self, matrices: Matrices, epoch: int, number: int) -> PieceStats:
        """Train on one piece."""
        first, last = (int(place) for place in self.borders[number : number + 2])
        done = epoch * self._n_words
        alphas = self._falling.at(done + first), self._falling.at(done + last)
        weights = Weights(matrices[INPUTS], matrices[OUTPUTS])
        tally = self._engine.piece(weights, self._text, (first, last), key_of(self._config.seed, epoch), alphas)
        self._pages.drop(first, last)
        return tally

    def rate(self, step: int) -> float:
        """Return the learning rate after so many pieces of all epochs."""
        epoch, number = divmod(step, self.n_pieces)
        return self._falling.at(epoch * self._n_words + int(self.borders[number]))

    def settle(self) -> None:
        """Let torch hand back what it holds elsewhere."""
        if (hand_back := getattr(self._engine, "settle", None)) is not None:
            hand_back()


class Pages:
    """The pages of a mapped array, which count as this process's memory until it gives them back."""

    def __init__(self, array: NDArray[Any]) -> None:
        """Find what the array is mapped from, if anything."""
        found: Any = array
        while found is not None and not isinstance(found, mmap.mmap):
            found = getattr(found, "base", None)
        known = found is not None and len(found) == array.nbytes and hasattr(mmap, "MADV_DONTNEED")
        self._map = found if known else None
        self._itemsize = array.itemsize

    def drop(self, first: int, last: int) -> None:
        """Give back the pages of the items [first, last); what still wants them reads them again."""
        if self._map is not None:
            begin = first * self._itemsize // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, begin, last * self._itemsize - begin)


def copies(config: Word2VecConfig) -> int:
    """Return how many copies of the matrices are trained and joined; 1 where all threads share one."""
    return config.threads if config.deterministic and not config.needs_torch else 1


def build_workload(config: Word2VecConfig, encoded: Encoded, folder: Path, tell: Callable[[str], None]) -> Workload:
    """Return the work of a configuration on encoded text; ``folder`` is where more of it may be kept.

    Raises:
        UsageError: the text cannot be trained on as is asked for.
    """
    check_vocabulary_size(config, len(encoded.words))
    if config.method == "glove":
        from attnkit.tasks.word2vec.glove import GloveWorkload

        return GloveWorkload(config, encoded, folder, tell)
    if config.needs_torch or not has_numba():
        from attnkit.tasks.word2vec.torch_loop import TorchLoops

        loops = TorchLoops(config, encoded)
        return TextWork(config, encoded, loops, loops.where)
    return TextWork(config, encoded, _compiled(config, encoded), f"compiled loops, {threads(config)}")


def check_available(config: Word2VecConfig) -> None:
    """Raise ``UsageError`` where this machine lacks what a configuration needs; asked before any text is read."""
    if config.subwords is not None and not has_numba():
        raise UsageError("subwords need numba", where="subwords", help="pip install numba, or leave them out")
    if config.device == "cuda":
        from attnkit.runtime.devices import choose_device

        choose_device(config.device)


def check_vocabulary_size(config: Word2VecConfig, n_words: int) -> None:
    """Raise ``UsageError`` where there are fewer words than random ones are to be drawn for each neighbour."""
    n_others = n_words - 1
    if config.method != "glove" and config.loss == "negative" and config.negative > n_others:
        raise UsageError(
            f"negative={config.negative} random words cannot be drawn from the {n_others} others of the vocabulary",
            where="negative",
            help="give more text, a smaller --negative, or --loss full, which needs none",
        )


def _compiled(config: Word2VecConfig, encoded: Encoded) -> Loops:
    """Return the compiled loop of a configuration with its tables."""
    assert config.method != "glove"
    assert config.context != "concat"
    assert config.loss != "full"
    recipe = LoopSpec(
        method=config.method,
        context=config.context,
        output=config.loss,
        dim=config.dim,
        window=config.window,
        dynamic_window=config.dynamic_window,
        negative=config.negative,
        exact=config.exact or len(encoded.words) < FEW,
        subwords=config.subwords is not None,
    )
    return Loops(recipe, tables(config, encoded), encoded.store.ids.dtype)
