"""``attnkit word2vec``; its subcommands are listed in ``main.WORD2VEC``."""

import typer


def command(context: typer.Context) -> None:
    """Train, query, evaluate, convert and plot word vectors.

    \b
    Examples:
      attnkit word2vec train corpus.txt -o vectors
      attnkit word2vec similar vectors king
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
