"""Commands of ``attnkit word2vec`` that query vectors, e.g. similar and analogy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import FirstWords, Json, NumAnswers, VectorsCheckpoint, VectorsPath
from attnkit.errors import DataError, UsageError
from attnkit.progress import console

if TYPE_CHECKING:
    from attnkit.tasks.word2vec.vectors import Neighbours, Vectors

_MAX_SHOWN = 48  # characters per word


def load(path: Path, checkpoint: str | None = None) -> Vectors:
    """Load vectors; warn about damaged newer checkpoints."""
    from attnkit.tasks.word2vec.vectors import Vectors

    vectors = Vectors.load(path, checkpoint=checkpoint)
    for text in vectors.warnings:
        console.warn(text)
    return vectors


def similar(
    path: VectorsPath,
    words: Annotated[list[str] | None, Argument(help="Word; default: one per line of standard input.")] = None,
    n: NumAnswers = 10,
    top: FirstWords = None,
    checkpoint: VectorsCheckpoint = None,
    json: Annotated[bool, Option("--json", help="One JSON object per word.")] = False,
) -> None:
    """Print the nearest neighbours of words by cosine similarity.

    Vectors of several words in one argument or line are summed, unless the vocabulary contains them as one phrase.

    \b
    Examples:
      attnkit word2vec similar vectors king
      attnkit word2vec similar GoogleNews.bin king "new york" -n 5
      attnkit word2vec similar vectors < words.txt
    """
    vectors = load(path, checkpoint)

    def answer(question: str) -> Neighbours:
        return vectors.most_similar(_words(question, vectors), topn=n, restrict_vocab=top)

    _answer_all(words, "Type a word to see its neighbours; Ctrl-D ends.", answer, json)


def analogy(
    path: VectorsPath,
    words: Annotated[list[str] | None, Argument(help="Question; default: lines of stdin.", metavar="WORD")] = None,
    method: Annotated[Literal["add", "mul"], Option(help="3CosAdd (sum of cosines) or 3CosMul (product).")] = "add",
    n: NumAnswers = 10,
    top: FirstWords = None,
    checkpoint: VectorsCheckpoint = None,
    json: Annotated[bool, Option("--json", help="One JSON object per question.")] = False,
) -> None:
    """Solve the analogy A : B = C : ? or print the neighbours of a sum of words.

    The query man king woman means king - man + woman. The query words are excluded from the answers.

    \b
    Examples:
      attnkit word2vec analogy vectors man king woman
      attnkit word2vec analogy vectors king - man + woman -n 3
      attnkit word2vec analogy vectors --method mul paris france berlin
    """
    vectors = load(path, checkpoint)

    def answer(question: str) -> Neighbours:
        plus, minus = _terms(question.split())
        ask = vectors.most_similar if method == "add" else vectors.most_similar_cosmul
        return ask(plus, minus, topn=n, restrict_vocab=top)

    _answer_all([" ".join(words)] if words else None, "Type three words, or a sum; Ctrl-D ends.", answer, json)


def odd_one(
    path: VectorsPath,
    words: Annotated[list[str], Argument(help="Three or more words.", metavar="WORD...")],
    checkpoint: VectorsCheckpoint = None,
    json: Json = False,
) -> None:
    """Print the word farthest from the mean vector; show all cosines on stderr.

    \b
    Example:
      attnkit word2vec odd-one vectors breakfast cereal dinner lunch
    """
    if len(set(words)) < 3:
        raise UsageError("odd-one needs at least three words", help="give at least three different words")
    ranked = load(path, checkpoint).rank_by_centrality(list(dict.fromkeys(words)))
    if json:
        cosines = {word: round(cosine, 6) for cosine, word in ranked}
        console.result(dumps({"odd": ranked[-1][1], "cosines": cosines}, ensure_ascii=False))
        return
    console.result(console.printable(ranked[-1][1]))
    console.info(console.table([(_shown(word), f"{cosine:.4f}") for cosine, word in ranked]))


def distance(
    path: VectorsPath,
    first: Annotated[str, Argument(help="Word, or several in quotes for the mean of their vectors.", metavar="WORD")],
    second: Annotated[str, Argument(help="Second word, or several in quotes.", metavar="WORD")],
    checkpoint: VectorsCheckpoint = None,
    json: Json = False,
) -> None:
    """Print two words' cosine similarity, cosine distance and Euclidean distance.

    \b
    Examples:
      attnkit word2vec distance vectors motel hotel
      attnkit word2vec distance vectors "new york" london
    """
    import numpy as np

    vectors = load(path, checkpoint)
    groups = [_words(text, vectors) for text in (first, second)]
    cosine = vectors.n_similarity(*groups)
    ends = [vectors[group].mean(0) for group in groups]
    found = {"cosine": cosine, "distance": 1 - cosine, "euclidean": float(np.linalg.norm(ends[0] - ends[1]))}
    if json:
        rounded = {name: round(value, 6) for name, value in found.items()}
        console.result(dumps({"words": [first, second], **rounded}, ensure_ascii=False))
    else:
        console.result(console.table([(name, f"{value:.4f}") for name, value in found.items()], ""))


def one_hot(
    words: Annotated[list[str], Argument(help="Two or more words.", metavar="WORD...")],
    run: VectorsPath,
    json: Json = False,
) -> None:
    """Compare words as one-hot vectors (cosine always 0) and as trained vectors.

    \b
    Example:
      attnkit word2vec one-hot motel hotel vectors
    """
    from attnkit.library.word_vectors import compare_one_hot
    from attnkit.tasks.word2vec.one_hot import abbreviate_one_hot

    if not run.exists():
        help = "the last argument is a run or vector file: attnkit word2vec one-hot motel hotel RUN"
        raise UsageError(f"no such run or file: {run}", help=help)
    found = compare_one_hot(run, words)
    if json:
        console.result(dumps(found.to_dict(), ensure_ascii=False))
        return
    size, dim = found.vocab_size, found.dim
    places = [
        [word, f"= {abbreviate_one_hot(place, size)}", f"1 at {place:,} of {size:,}"]
        for word, place in found.places.items()
    ]
    rows = [["", f"one-hot ({size:,} dimensions)", f"trained ({dim:,} dimensions)"]]
    for pair in found.pairs:
        one, other = pair.words
        rows.append([f"{one} · {other}", str(pair.one_hot_dot), f"{pair.dot:.4f}"])
        rows.append([f"cos({one}, {other})", str(pair.one_hot_dot), f"{pair.cosine:.4f}"])
    said = "One-hot vectors of different words are orthogonal:\nthey do not encode similarity."
    console.result("\n\n".join([console.table(places, ""), console.table(rows, ""), said]))


def _words(question: str, vectors: Vectors) -> list[str]:
    """Return the words of a question, or the whole question if it is a known phrase."""
    return [question] if question in vectors or not question.split() else question.split()


def _terms(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words to add and to subtract; raise ``UsageError`` if malformed."""
    words = [word for word in words if word not in (":", "::", "?", "=")]
    if not {"+", "-"} & set(words):
        if len(words) != 3:
            help = "give three words (man king woman) or a sum (king - man + woman)"
            raise UsageError(f"an analogy has three words, not {len(words)}", help=help)
        return [words[1], words[2]], [words[0]]
    terms: dict[str, list[str]] = {"+": [], "-": []}
    sign: str | None = "+"
    for word in words:
        if word in terms:
            sign = word
        elif sign is None:
            raise UsageError(f"missing + or - before {word!r}", help="write a sum as: king - man + woman")
        else:
            terms[sign].append(word)
            sign = None
    return terms["+"], terms["-"]


def _shown(word: str) -> str:
    """Shorten a word to the column width; escape control characters (``<U+001B>``)."""
    text = console.printable(word)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def _answer_all(asked: Sequence[str] | None, greeting: str, answer: Callable[[str], Neighbours], json: bool) -> None:
    """Answer questions from the command line or, one per line, from standard input.

    Answers have titles unless there is a single question. Errors end the command only if questions are arguments.
    """
    titled = not asked or len(asked) > 1
    for question in asked or _read_questions(greeting):
        try:
            found = answer(question)
        except (DataError, UsageError) as error:
            if asked:
                raise
            if json:
                console.result(dumps({"query": question, "error": error.what}, ensure_ascii=False))
            console.alert("\n".join(error.lines()))
            continue
        if json:
            neighbours = [{"word": word, "score": round(score, 6)} for word, score in found]
            console.result(dumps({"query": question, "neighbours": neighbours}, ensure_ascii=False))
        else:
            title = f"{console.printable(question)}\n" if titled else ""
            # Round to six places first, as in JSON, so that both outputs agree.
            console.result(title + console.table([(_shown(word), f"{round(score, 6):.4f}") for word, score in found]))


def _read_questions(greeting: str) -> Iterator[str]:
    from attnkit.text.files import STDIN
    from attnkit.text.lines import read_lines

    with console.prompting(True, greeting) as prompt:
        prompt()
        for line in read_lines(STDIN, on_bad="replace"):
            if line.strip():
                yield line.strip()
            prompt()
