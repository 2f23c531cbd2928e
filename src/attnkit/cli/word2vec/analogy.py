"""``attnkit word2vec analogy``: sums and differences of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from attnkit.cli.word2vec._query import CHECKPOINT, VECTORS, answer_all, load, neighbours


def command(
    path: Annotated[Path, typer.Argument(help=VECTORS, metavar="VECTORS")],
    words: Annotated[
        list[str] | None, typer.Argument(help="A question; one a line of standard input if none.", metavar="WORD")
    ] = None,
    method: Annotated[
        Literal["add", "mul"], typer.Option(help="Largest sum of cosines, or product (3CosAdd, 3CosMul).")
    ] = "add",
    n: Annotated[int, typer.Option("-n", "--num", min=1, max=1_000_000, help="Answers.")] = 10,
    top: Annotated[int | None, typer.Option("--top", "--restrict", min=1, help="Among the first N words.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help=CHECKPOINT)] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a question.")] = False,
) -> None:
    """Print what is to a third word as a second one is to the first, or what a sum of words comes nearest to.

    man king woman asks for king - man + woman. Words of the question are no answer.

    \b
    Examples:
      attnkit word2vec analogy vectors man king woman
      attnkit word2vec analogy vectors king - man + woman -n 3
      attnkit word2vec analogy vectors --method mul paris france berlin
    """
    vectors = load(path, checkpoint)

    def answer(question: str) -> dict[str, Any]:
        plus, minus = terms(question.split())
        ask = vectors.most_similar if method == "add" else vectors.most_similar_cosmul
        return neighbours(question, ask(plus, minus, topn=n, restrict_vocab=top))

    answer_all([" ".join(words)] if words else None, "Type three words, or a sum; Ctrl-D ends.", answer, json)


def terms(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words that are added and those that are taken off. Raises ``UsageError`` for no question."""
    from attnkit.errors import UsageError

    words = [word for word in words if word not in (":", "::", "?", "=")]
    if not {"+", "-"} & set(words):
        if len(words) != 3:
            help = "three words, as man king woman, or a sum, as king - man + woman"
            raise UsageError(f"{len(words)} words are no analogy", help=help)
        return [words[1], words[2]], [words[0]]
    plus: list[str] = []
    minus: list[str] = []
    goal: list[str] | None = plus
    for word in words:
        if word in ("+", "-"):
            goal = plus if word == "+" else minus
        elif goal is None:
            raise UsageError(f"there is no sign before {word!r}", help="a sum is like king - man + woman")
        else:
            goal.append(word)
            goal = None
    return plus, minus
