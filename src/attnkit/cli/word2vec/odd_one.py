"""``attnkit word2vec odd-one``: the word that does not fit."""

from __future__ import annotations

from json import dumps
from typing import Annotated

from typer import Argument

from attnkit.cli.options import Json, VectorsCheckpoint, VectorsPath
from attnkit.cli.word2vec._query import load, shown


def command(
    path: VectorsPath,
    words: Annotated[list[str], Argument(help="Three or more words.", metavar="WORD...")],
    checkpoint: VectorsCheckpoint = None,
    json: Json = False,
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
