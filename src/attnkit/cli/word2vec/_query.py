"""What the commands share that ask vectors: loading them, the questions, and how numbers are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.cli import console

if TYPE_CHECKING:
    from attnkit.tasks.word2vec.vectors import Vectors

VECTORS = "Run of attnkit word2vec train, or a file of vectors of any format."
CHECKPOINT = "Of a run: best, last or step-N."
WIDEST = 48
"""Characters of a word that are shown."""
_SEVERAL = 2


def load(path: Path, checkpoint: str | None = None) -> Vectors:
    """Load vectors, telling what was wrong with newer checkpoints."""
    from attnkit.tasks.word2vec.vectors import Vectors

    vectors = Vectors.load(path, checkpoint=checkpoint)
    for text in vectors.warnings:
        console.warn(text)
    return vectors


def shown(word: str) -> str:
    """Return a word as it fits a column, without what would steer a terminal."""
    text = console.printable(word)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def answer_all(given: Sequence[str] | None, greeting: str, answer: Callable[[str], dict[str, Any]], json: bool) -> None:
    """Answer the questions of the command line, or of standard input, one per line; several get titles.

    ``answer`` gives what JSON shows, with ``neighbours``. A question without an answer is reported; on the
    command line it ends the command.
    """
    from attnkit.errors import DataError, UsageError

    titled = len(given or ()) >= _SEVERAL or not given
    for question in given or _lines(greeting):
        try:
            found = answer(question)
        except (DataError, UsageError) as error:
            if given:
                raise
            if json:
                console.result(dumps({"query": question, "error": error.what}, ensure_ascii=False))
            console.info("\n".join(error.lines()))
            continue
        console.result(dumps(found, ensure_ascii=False) if json else _text(found, titled))


def _text(found: dict[str, Any], titled: bool) -> str:
    rows = [(shown(item["word"]), f"{item['score']:.4f}") for item in found["neighbours"]]
    return (f"{console.printable(found['query'])}\n" if titled else "") + console.table(rows)


def neighbours(query: str, found: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Return neighbours as JSON shows them."""
    return {"query": query, "neighbours": [{"word": word, "score": round(score, 6)} for word, score in found]}


def _lines(greeting: str) -> Iterator[str]:
    from attnkit.text.lines import STDIN, read_lines

    with console.prompting(True, greeting) as prompt:
        prompt()
        for line in read_lines(STDIN, on_bad="replace"):
            if line.strip():
                yield line.strip()
            prompt()
