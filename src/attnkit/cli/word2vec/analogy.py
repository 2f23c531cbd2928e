"""``attnkit word2vec analogy``: sums and differences of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import FirstWords, NumAnswers, VectorsCheckpoint, VectorsPath
from attnkit.cli.word2vec._query import answer_all, load

if TYPE_CHECKING:
    from attnkit.tasks.word2vec.vectors import Neighbours


def command(
    path: VectorsPath,
    words: Annotated[
        list[str] | None, Argument(help="Question; default: one per line of standard input.", metavar="WORD")
    ] = None,
    method: Annotated[
        Literal["add", "mul"], Option(help="Method: 3CosAdd (sum of cosines) or 3CosMul (product).")
    ] = "add",
    n: NumAnswers = 10,
    top: FirstWords = None,
    checkpoint: VectorsCheckpoint = None,
    json: Annotated[bool, Option("--json", help="One JSON object per question.")] = False,
) -> None:
    """Print what is to a third word as a second one is to the first, or what a sum of words comes nearest to.

    man king woman asks for king - man + woman. Words of the question are never answers.

    \b
    Examples:
      attnkit word2vec analogy vectors man king woman
      attnkit word2vec analogy vectors king - man + woman -n 3
      attnkit word2vec analogy vectors --method mul paris france berlin
    """
    vectors = load(path, checkpoint)

    def answer(question: str) -> Neighbours:
        plus, minus = terms(question.split())
        ask = vectors.most_similar if method == "add" else vectors.most_similar_cosmul
        return ask(plus, minus, topn=n, restrict_vocab=top)

    answer_all([" ".join(words)] if words else None, "Type three words, or a sum; Ctrl-D ends.", answer, json)


def terms(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words that are added and those that are taken off. Raises ``UsageError`` for no question."""
    from attnkit.errors import UsageError

    words = [word for word in words if word not in (":", "::", "?", "=")]
    if not {"+", "-"} & set(words):
        if len(words) != 3:
            help = "three words, as man king woman, or a sum, as king - man + woman"
            raise UsageError(f"{len(words)} words are not an analogy", help=help)
        return [words[1], words[2]], [words[0]]
    plus: list[str] = []
    minus: list[str] = []
    goal: list[str] | None = plus
    for word in words:
        if word in ("+", "-"):
            goal = plus if word == "+" else minus
        elif goal is None:
            raise UsageError(f"no sign before {word!r}", help="a sum is like king - man + woman")
        else:
            goal.append(word)
            goal = None
    return plus, minus
