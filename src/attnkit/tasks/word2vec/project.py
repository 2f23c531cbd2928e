"""Word vectors in two dimensions: which words, by which method, and what there is to say of it. Knows no pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError, UsageError
from attnkit.plotting.attention_maps import shown
from attnkit.plotting.html.projection import Projection, unit
from attnkit.tasks.word2vec.pca import pca
from attnkit.tasks.word2vec.tsne import tsne
from attnkit.tasks.word2vec.vectors import Vectors

Method = Literal["pca", "tsne"]
MOST: dict[Method, int] = {"pca": 20_000, "tsne": 5_000}
"""Words that a method takes: a page of more is slow to open, exact t-SNE of more takes gigabytes."""
USUAL: dict[Method, int] = {"pca": 10_000, "tsne": 2_000}
"""Words that a method takes where nobody says how many."""


@dataclass(frozen=True)
class ProjectionRequest:
    """What to show, and how."""

    path: Path
    """A run or a file of vectors."""
    method: Method = "pca"
    n_words: int | None = None
    """Of the most frequent; None takes what is usual for the method."""
    perplexity: float = 30.0
    """About how many neighbours t-SNE keeps near a word."""
    steps: int = 750
    """Of t-SNE."""


def project(asked: ProjectionRequest, tell: Callable[[str], None]) -> Projection:
    """Return the words with their places; ``tell`` hears how t-SNE goes.

    Vectors enter at length 1, so that what is near in the picture is near by cosine.

    Raises:
        UsageError: more words than the method takes, or a perplexity too large for them.
        DataError: too few words, or vectors that are not finite.
    """
    most, n_words = MOST[asked.method], asked.n_words or USUAL[asked.method]
    if n_words > most:
        help = "--method pca takes more" if n_words <= MOST["pca"] else "the most frequent words show the picture"
        raise UsageError(f"{asked.method} shows at most {most:,} words, not {n_words:,}", where="--words", help=help)
    vectors = Vectors.load(asked.path, mmap=True)
    words = list(vectors.index_to_key[:n_words])
    rows = _rows(vectors, words, asked.path)
    if asked.method == "pca":
        plane = pca(rows)
        first, second = (100 * share for share in plane.shares)
        points, how = plane.points, "principal components"
        note = f"Across and up: the two directions in which they differ most, {first + second:.1f} % of all variance."
    else:
        points, loss = _tsne(rows, asked, tell)
        how = f"t-SNE, perplexity {asked.perplexity:g}, {asked.steps:,} steps"
        note = f"t-SNE keeps neighbours near; distances between groups mean little. KL divergence {loss:.2f} nats."
    facts = {
        "vectors": str(asked.path),
        "words": f"the first {len(words):,} of {len(vectors.index_to_key):,}",
        "dimensions": f"{rows.shape[1]:,}",
        "method": how,
    }
    return Projection(words, points, rows, note, facts)


def _rows(vectors: Vectors, words: Sequence[str], path: Path) -> NDArray[np.float32]:
    """Return the vectors of words at length 1, those of zeros as they are."""
    if len(words) < 3 or vectors.vector_size < 2:
        what = f"{len(words)} words with vectors of {vectors.vector_size} numbers make no map"
        raise DataError(what, where=str(path), help="three words and two numbers are the least")
    rows = np.asarray(vectors.vectors[: len(words)], np.float32)
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        raise DataError(f"the vector of '{shown(words[int(np.argmin(finite))])}' is not finite", where=str(path))
    return unit(rows).astype(np.float32)


def _tsne(
    rows: NDArray[np.float32], asked: ProjectionRequest, tell: Callable[[str], None]
) -> tuple[NDArray[np.float64], float]:
    if 3 * asked.perplexity > len(rows) - 1:
        raise UsageError(
            f"a perplexity of {asked.perplexity:g} is too large for {len(rows):,} words",
            where="--perplexity",
            help=f"at most {(len(rows) - 1) / 3:g}: a third of the other words",
        )
    last = None
    for last in tsne(rows, asked.perplexity, asked.steps):
        tell(f"t-SNE: step {last.step:,} of {asked.steps:,}, KL divergence {last.loss:.3f} nats")
    assert last is not None
    return last.points, last.loss


def as_tsv(projection: Projection) -> str:
    """Return a line a word: the word, x, y; words with signs that would break a line show them as ``<U+000A>``."""
    rows = zip(projection.words, projection.points.tolist(), strict=True)
    return "".join(f"{shown(word)}\t{x:.6g}\t{y:.6g}\n" for word, (x, y) in rows)
