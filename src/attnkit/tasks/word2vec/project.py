"""Projection (PCA, t-SNE) and k-means clustering of vectors, with scikit-learn."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError, UsageError
from attnkit.formats.word_vectors.table import Floats
from attnkit.plotting.attention_maps import display_text
from attnkit.plotting.html.projection import Projection, unit
from attnkit.tasks.word2vec.vectors import Longs, Vectors


@dataclass(frozen=True)
class Classes:
    """Clusters of words."""

    labels: Longs  #: (V,) cluster of each word, numbered from 0 in order of first occurrence
    centres: Floats  #: (K, D), unit vectors
    nearness: Floats  #: (V,) cosine of each word with the centre of its cluster
    iterations: int
    converged: bool


def check_sklearn(what: str) -> None:
    """Raise ``UsageError`` if scikit-learn, which ``what`` needs, is not installed."""
    if find_spec("sklearn") is None:
        raise UsageError(f"{what} needs scikit-learn", help='pip install "attnkit[plot]"')


def cluster_words(vectors: Vectors, n_words: int, k: int, *, iterations: int = 50, seed: int = 1) -> Classes:
    """Cluster the first ``n_words`` rows; raise ``DataError`` if one is not finite."""
    check_sklearn("clustering")
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    rows = vectors.unit(np.arange(n_words))  # (V, D)
    # One thread: with several, the order of summation varies between runs.
    with threadpool_limits(1), warnings.catch_warnings():
        # With fewer distinct rows than clusters some clusters stay empty, which is not an error.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(k, max_iter=iterations, n_init=1, random_state=seed, tol=0.0).fit(rows)
    # Clusters are numbered in order of first occurrence, empty ones last.
    present, first = np.unique(found.labels_, return_index=True)
    order = present[np.argsort(first)]
    order = np.concatenate([order, np.setdiff1d(np.arange(k), order)])
    number = np.empty(k, np.int64)
    number[order] = np.arange(k)
    labels = number[found.labels_]
    centres = found.cluster_centers_[order].astype(np.float32)
    centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12)
    nearness = np.einsum("vd,vd->v", rows, centres[labels])
    return Classes(labels, centres, nearness, int(found.n_iter_), bool(found.n_iter_ < iterations))


ProjectionMethod = Literal["pca", "tsne"]
MAX_WORDS = 20_000  #: maximum words of a projection: larger pages are slow to open
DEFAULT_WORDS: dict[ProjectionMethod, int] = {"pca": 10_000, "tsne": 2_000}  #: default number of words


@dataclass(frozen=True)
class ProjectionRequest:
    """Options of a projection."""

    method: ProjectionMethod = "pca"
    n_words: int | None = None  #: number of most frequent words; None: the default of the method
    perplexity: float = 30.0  #: effective number of neighbours per word in t-SNE
    steps: int = 750  #: optimization steps of t-SNE


def check_words(method: ProjectionMethod, n_words: int | None) -> int:
    """Return the number of words to show; raise ``UsageError`` if it is too large."""
    n_words = n_words or DEFAULT_WORDS[method]
    if n_words > MAX_WORDS:
        what = f"{method} shows at most {MAX_WORDS:,} words, not {n_words:,}"
        raise UsageError(what, where="--words", help="lower --words")
    return n_words


def project_words(vectors: Vectors, asked: ProjectionRequest, tell: Callable[[str], None]) -> Projection:
    """Project words to two dimensions; ``tell`` receives progress messages.

    Vectors are normalized first, so that nearby points have a high cosine similarity.

    Raises:
        UsageError: too many words, a perplexity too large for them, or scikit-learn is not installed.
        DataError: too few words, or vectors that are not finite.
    """
    n_words = check_words(asked.method, asked.n_words)
    words = list(vectors.index_to_key[:n_words])
    if len(words) < 3 or vectors.vector_size < 2:
        what = f"cannot project {len(words)} words of vector size {vectors.vector_size}"
        raise DataError(what, where=vectors.name, help="at least three words and two dimensions are needed")
    rows = np.asarray(vectors.vectors[: len(words)], np.float32)
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        what = f"the vector of '{display_text(words[int(np.argmin(finite))])}' is not finite"
        raise DataError(what, where=vectors.name)
    rows = unit(rows).astype(np.float32)
    check_sklearn("a projection")
    if asked.method == "pca":
        points, share = pca(rows)
        how = "principal components"
        note = f"Axes: the first two principal components, which explain {100 * share:.1f} % of the variance."
    else:
        points, loss = _tsne(rows, asked, tell)
        how = f"t-SNE, perplexity {asked.perplexity:g}, {asked.steps:,} steps"
        note = f"t-SNE preserves neighbourhoods; distances between groups mean little. KL divergence {loss:.2f} nats."
    facts = {
        "vectors": vectors.name,
        "words": f"the first {len(words):,} of {len(vectors.index_to_key):,}",
        "dimensions": f"{rows.shape[1]:,}",
        "method": how,
    }
    return Projection(words, points, rows, note, facts)


def pca(rows: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Return the first two principal components (V, 2) and their share of variance."""
    from sklearn.decomposition import PCA

    if not np.ptp(rows, axis=0).any():
        return np.zeros((len(rows), 2)), 0.0
    found = PCA(2, svd_solver="full")
    points = found.fit_transform(rows.astype(np.float64))
    return np.asarray(points), float(found.explained_variance_ratio_.sum())


def _tsne(
    rows: NDArray[np.float32], asked: ProjectionRequest, tell: Callable[[str], None]
) -> tuple[NDArray[np.float64], float]:
    """Return points (V, 2) and KL (nats) of Barnes-Hut t-SNE (van der Maaten 2014)."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if 3 * asked.perplexity > len(rows) - 1:
        what = f"a perplexity of {asked.perplexity:g} is too large for {len(rows):,} words"
        help = f"use at most {(len(rows) - 1) / 3:g}, a third of the other words"
        raise UsageError(what, where="--perplexity", help=help)
    tell(f"t-SNE: {asked.steps:,} steps")
    with threadpool_limits(1):  # with several threads, the order of summation varies
        found = TSNE(perplexity=asked.perplexity, max_iter=asked.steps, init="pca", random_state=0).fit(rows)
    return np.asarray(found.embedding_, np.float64), float(found.kl_divergence_)


def as_tsv(projection: Projection) -> str:
    """Return lines of word, x, y; unprintable characters appear as ``<U+000A>``."""
    rows = zip(projection.words, projection.points.tolist(), strict=True)
    return "".join(f"{display_text(word)}\t{x:.6g}\t{y:.6g}\n" for word, (x, y) in rows)
