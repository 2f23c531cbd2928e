"""``attnkit word2vec cluster``: classes of words by k-means."""

from __future__ import annotations

from json import dumps
from typing import Annotated

from typer import Option

from attnkit.cli.options import FirstWords, OutputFile, VectorsCheckpoint, VectorsPath
from attnkit.cli.word2vec._query import load

_COLUMNS = 79


def command(
    path: VectorsPath,
    output: OutputFile = None,
    k: Annotated[int, Option("-k", "--classes", min=1, max=1 << 20, help="Number of clusters.")] = 100,
    top: FirstWords = None,
    iterations: Annotated[int, Option(min=1, max=100_000, help="Maximum number of k-means iterations.")] = 50,
    seed: Annotated[int, Option(min=0, help="Random seed of the initial centers.")] = 1,
    by_class: Annotated[bool, Option("--by-class", help="Sort lines by class instead of frequency.")] = False,
    summary: Annotated[bool, Option("--summary", help="One line per class: its size and nearest words.")] = False,
    checkpoint: VectorsCheckpoint = None,
    json: Annotated[bool, Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Cluster words by the directions of their vectors: lines like "word 7", as word2vec -classes writes.

    The method is k-means on unit vectors (needs attnkit[plot]); the same seed gives the same clusters.

    \b
    Examples:
      attnkit word2vec cluster vectors -k 500 -o classes.txt
      attnkit word2vec cluster vectors -k 20 --top 2000 --summary
    """
    import numpy as np

    from attnkit.cli import console
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.tasks.word2vec.project import cluster
    from attnkit.text.lines import check_not_overwriting

    check_not_overwriting(output, [path])
    vectors = load(path, checkpoint)
    n_words = min(top or len(vectors), len(vectors))
    if k > n_words:
        raise UsageError(f"{n_words:,} words cannot be {k:,} classes", where="-k", help="ask for fewer")
    found = cluster(vectors.index, n_words, k, iterations=iterations, seed=seed)
    words = vectors.index_to_key
    with atomic.open_output(output) as stream:
        if summary:
            # Number, size, and the words nearest to the centre of each class.
            for label in range(k):
                rows = np.flatnonzero(found.labels == label)
                nearest = [words[row] for row in rows[np.argsort(-found.nearness[rows], kind="stable")][:12].tolist()]
                line = console.printable(f"{label:>5} {len(rows):>7,}  {' '.join(nearest)}")
                line = line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…"
                if json:
                    line = dumps({"class": label, "size": len(rows), "words": nearest}, ensure_ascii=False)
                stream.write(f"{line}\n")
        else:
            order = np.argsort(found.labels, kind="stable") if by_class else np.arange(n_words)
            for row, label in zip(order.tolist(), found.labels[order].tolist(), strict=True):
                item = dumps({"word": words[row], "class": label}, ensure_ascii=False) if json else None
                stream.write(f"{item or f'{words[row]} {label}'}\n")
    state = "settled" if found.converged else "not settled: raise --iterations"
    console.info(f"{n_words:,} words, {k:,} classes, mean cosine {found.nearness.mean():.3f}")
    console.info(f"{found.iterations} iterations, {state}")
