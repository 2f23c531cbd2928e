"""``attnkit word2vec similar``: the nearest neighbours of words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attnkit.cli.word2vec._query import CHECKPOINT, VECTORS, answer_all, load, neighbours


def command(
    path: Annotated[Path, typer.Argument(help=VECTORS, metavar="VECTORS")],
    words: Annotated[
        list[str] | None, typer.Argument(help="Words, each for itself; one a line of standard input if none.")
    ] = None,
    n: Annotated[int, typer.Option("-n", "--num", min=1, max=1_000_000, help="Neighbours of each.")] = 10,
    top: Annotated[int | None, typer.Option("--top", "--restrict", min=1, help="Among the first N words.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help=CHECKPOINT)] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a word.")] = False,
) -> None:
    """Print the words whose vectors have the largest cosine with those of the given ones.

    Several words in one argument, or on one line, are added up, unless there is a vector for all of it.

    \b
    Examples:
      attnkit word2vec similar vectors king
      attnkit word2vec similar GoogleNews.bin king "new york" -n 5
      attnkit word2vec similar vectors < words.txt
    """
    vectors = load(path, checkpoint)

    def answer(question: str) -> dict[str, Any]:
        terms = [question] if question in vectors or not question.split() else question.split()
        return neighbours(question, vectors.most_similar(terms, topn=n, restrict_vocab=top))

    answer_all(words, "Type a word to see its neighbours; Ctrl-D ends.", answer, json)
