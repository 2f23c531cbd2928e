"""``attnkit word2vec odd-one``: the word that does not fit."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from attnkit.cli.word2vec._query import CHECKPOINT, VECTORS, load, shown


def command(
    path: Annotated[Path, typer.Argument(help=VECTORS, metavar="VECTORS")],
    words: Annotated[list[str], typer.Argument(help="Three words or more.", metavar="WORD...")],
    checkpoint: Annotated[str | None, typer.Option(help=CHECKPOINT)] = None,
    json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Print the word that is farthest from the mean of all; stderr has the cosine of each with it.

    \b
    Example:
      attnkit word2vec odd-one vectors breakfast cereal dinner lunch
    """
    from attnkit.cli import console
    from attnkit.errors import UsageError

    if len(set(words)) < 3:
        raise UsageError("of fewer than three words none is odd", help="give three different words or more")
    ranked = load(path, checkpoint).rank_by_centrality(list(dict.fromkeys(words)))
    if json:
        cosines = {word: round(cosine, 6) for cosine, word in ranked}
        console.result(dumps({"odd": ranked[-1][1], "cosines": cosines}, ensure_ascii=False))
        return
    console.result(console.printable(ranked[-1][1]))
    console.info(console.table([(shown(word), f"{cosine:.4f}") for cosine, word in ranked]))
