"""``attnkit word2vec project``: word vectors in two dimensions, as a page or as coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from attnkit.cli import console
from attnkit.cli.options import VectorsPath


def command(
    run: VectorsPath,
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="Output file. [default: projection.html; tsv: standard output]", metavar="FILE"),
    ] = None,
    format: Annotated[Literal["html", "tsv"], Option(help="A page, or one line per word: word, x, y.")] = "html",
    method: Annotated[Literal["pca", "tsne"], Option(help="Projection (needs attnkit[plot]).")] = "pca",
    words: Annotated[
        int | None,
        Option(min=3, help="Number of words, the most frequent ones. [default: 10,000; tsne: 2,000]", metavar="N"),
    ] = None,
    perplexity: Annotated[float, Option(min=1.0, help="Perplexity of t-SNE, roughly the neighbours per word.")] = 30.0,
    steps: Annotated[int, Option(min=250, max=100_000, help="Steps of t-SNE.")] = 750,
) -> None:
    """Draw word vectors in two dimensions: a page with search and neighbours that needs nothing else.

    \b
    Examples:
      attnkit word2vec project vectors -o words.html
      attnkit word2vec project vectors --method tsne --words 1000 -o words.html
      attnkit word2vec project vectors --format tsv > words.tsv
    """
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.text.lines import check_not_overwriting

    page = output or Path("projection.html")
    target = page if format == "html" else output
    if target is not None:
        if run.resolve() in target.resolve().parents:
            raise UsageError(f"{target} lies in the run folder", help="write it elsewhere")
        check_not_overwriting(target, [run])
    from attnkit.plotting.html.projection import build_projection
    from attnkit.tasks.word2vec.project import ProjectionRequest, as_tsv, project

    with console.StatusLine() as line:
        found = project(ProjectionRequest(run, method, words, perplexity, steps), line.update)
    text = build_projection(found) if format == "html" else as_tsv(found)
    with atomic.open_output(target) as stream:
        stream.write(text)
    if target is not None:
        console.info(f"written: {target} ({len(text.encode()) / 1e6:.1f} MB, {len(found.words):,} words)")
