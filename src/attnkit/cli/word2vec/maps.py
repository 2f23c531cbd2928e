"""``attnkit word2vec cluster`` (k-means) and ``project`` (PCA, t-SNE)."""

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from attnkit.cli.options import FirstWords, OutputFile, Quiet, VectorsCheckpoint, VectorsPath
from attnkit.cli.word2vec.queries import load
from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.progress import console
from attnkit.text.lines import check_not_overwriting

_COLUMNS = 79


def cluster(
    path: VectorsPath,
    output: OutputFile = None,
    k: Annotated[int, Option("-k", "--classes", min=1, max=1 << 20, help="Number of clusters.")] = 100,
    top: FirstWords = None,
    iterations: Annotated[int, Option(min=1, max=100_000, help="Maximum number of k-means iterations.")] = 50,
    seed: Annotated[int, Option(min=0, help="Random seed of the initial centers.")] = 1,
    by_class: Annotated[bool, Option("--by-class", help="Sort lines by cluster instead of frequency.")] = False,
    summary: Annotated[bool, Option("--summary", help="One line per cluster: size and nearest words.")] = False,
    checkpoint: VectorsCheckpoint = None,
    quiet: Quiet = False,
    json: Annotated[bool, Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Cluster words by cosine; print "word class" lines like word2vec -classes.

    The method is k-means on unit vectors (needs attnkit[plot]); the same seed gives the same clusters.

    \b
    Examples:
      attnkit word2vec cluster vectors -k 500 -o classes.txt
      attnkit word2vec cluster vectors -k 20 --top 2000 --summary
    """
    import numpy as np

    from attnkit.tasks.word2vec.project import cluster_words

    check_not_overwriting(output, [path])
    vectors = load(path, checkpoint)
    n_words = min(top or len(vectors), len(vectors))
    if k > n_words:
        raise UsageError(f"cannot form {k:,} clusters from {n_words:,} words", where="-k", help="choose a smaller -k")
    found = cluster_words(vectors, n_words, k, iterations=iterations, seed=seed)
    words = vectors.index_to_key
    with atomic.open_output(output) as stream:
        if summary:
            # Print number, size and most central words of each cluster.
            for label in range(k):
                rows = np.flatnonzero(found.labels == label)
                nearest = [words[row] for row in rows[np.argsort(-found.nearness[rows], kind="stable")][:12].tolist()]
                if json:
                    line = dumps({"class": label, "size": len(rows), "words": nearest}, ensure_ascii=False)
                else:
                    line = console.printable(f"{label:>5} {len(rows):>7,}  {' '.join(nearest)}")
                    line = line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…"
                stream.write(f"{line}\n")
        else:
            order = np.argsort(found.labels, kind="stable") if by_class else np.arange(n_words)
            for row, label in zip(order.tolist(), found.labels[order].tolist(), strict=True):
                item = dumps({"word": words[row], "class": label}, ensure_ascii=False) if json else None
                stream.write(f"{item or f'{words[row]} {label}'}\n")
    state = "converged" if found.converged else "not converged: raise --iterations"
    console.info(f"{n_words:,} words, {k:,} clusters, mean cosine {found.nearness.mean():.3f}")
    console.info(f"{found.iterations} iterations, {state}")


def project(
    run: VectorsPath,
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="Output file. [default: projection.html; tsv: standard output]", metavar="FILE"),
    ] = None,
    format: Annotated[Literal["html", "tsv"], Option(help="HTML page, or one line per word: word, x, y.")] = "html",
    method: Annotated[Literal["pca", "tsne"], Option(help="Projection (needs attnkit[plot]).")] = "pca",
    words: Annotated[
        int | None,
        Option(min=3, help="Number of most frequent words to show. [default: 10,000; tsne: 2,000]", metavar="N"),
    ] = None,
    perplexity: Annotated[float, Option(min=1.0, help="Perplexity of t-SNE, roughly the neighbours per word.")] = 30.0,
    steps: Annotated[int, Option(min=250, max=100_000, help="Steps of t-SNE.")] = 750,
    quiet: Quiet = False,
) -> None:
    """Project word vectors to two dimensions, as a searchable HTML page.

    \b
    Examples:
      attnkit word2vec project vectors -o words.html
      attnkit word2vec project vectors --method tsne --words 1000 -o words.html
      attnkit word2vec project vectors --format tsv > words.tsv
    """
    page = output or Path("projection.html")
    target = page if format == "html" else output
    if target is not None:
        if run.resolve() in target.resolve().parents:
            raise UsageError(f"{target} is inside the run folder", help="write it elsewhere")
        check_not_overwriting(target, [run])
    from attnkit.plotting.html.projection import build_projection
    from attnkit.tasks.word2vec.project import ProjectionRequest, as_tsv, check_words, project_words
    from attnkit.tasks.word2vec.vectors import Vectors

    check_words(method, words)  # before the vectors are read
    vectors = Vectors.load(run)
    with console.StatusLine() as line:
        found = project_words(vectors, ProjectionRequest(method, words, perplexity, steps), line.update)
    text = build_projection(found) if format == "html" else as_tsv(found)
    with atomic.open_output(target) as stream:
        stream.write(text)
    if target is not None:
        console.info(f"wrote {target} ({len(text.encode()) / 1e6:.1f} MB, {len(found.words):,} words)")
