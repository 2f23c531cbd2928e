"""``attnkit word2vec``: its commands are the files of this folder."""

from __future__ import annotations

import typer


def command(context: typer.Context) -> None:
    """Word vectors: train them, ask them, convert and draw them.

    \b
    Examples:
      attnkit word2vec train corpus.txt -o vectors
      attnkit word2vec similar vectors king
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
