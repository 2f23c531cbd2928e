"""``attnkit word2vec similar``: the nearest neighbours of words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from attnkit.cli.options import FirstWords, NumAnswers, VectorsCheckpoint, VectorsPath
from attnkit.cli.word2vec._query import answer_all, load

if TYPE_CHECKING:
    from attnkit.tasks.word2vec.vectors import Neighbours


def command(
    path: VectorsPath,
    words: Annotated[list[str] | None, Argument(help="Word; default: one per line of standard input.")] = None,
    n: NumAnswers = 10,
    top: FirstWords = None,
    checkpoint: VectorsCheckpoint = None,
    json: Annotated[bool, Option("--json", help="One JSON object per word.")] = False,
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

    def answer(question: str) -> Neighbours:
        terms = [question] if question in vectors or not question.split() else question.split()
        return vectors.most_similar(terms, topn=n, restrict_vocab=top)

    answer_all(words, "Type a word to see its neighbours; Ctrl-D ends.", answer, json)
