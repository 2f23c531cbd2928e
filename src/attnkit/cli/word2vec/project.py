"""``attnkit word2vec project``: word vectors in two dimensions, as a page or as coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from attnkit.cli import console


def command(
    run: Annotated[Path, typer.Argument(help="Run of word2vec, or a file of vectors.", metavar="RUN")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="[default: projection.html; tsv: stdout]", metavar="FILE")
    ] = None,
    format: Annotated[Literal["html", "tsv"], typer.Option(help="A page, or a line a word: word, x, y.")] = "html",
    method: Annotated[Literal["pca", "tsne"], typer.Option(help="Projection (needs attnkit[plot]).")] = "pca",
    words: Annotated[
        int | None, typer.Option(min=3, help="The most frequent. [default: 10,000; tsne: 2,000]", metavar="N")
    ] = None,
    perplexity: Annotated[
        float, typer.Option(min=1.0, help="Perplexity of t-SNE, about the neighbours of a word.")
    ] = 30.0,
    steps: Annotated[int, typer.Option(min=250, max=100_000, help="Steps of t-SNE.")] = 750,
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
