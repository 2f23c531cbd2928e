"""What the commands share that ask vectors: loading them, the questions, and how numbers are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.cli import console

if TYPE_CHECKING:
    from attnkit.tasks.word2vec.vectors import Neighbours, Vectors

_MAX_SHOWN = 48  # characters of a word


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
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def answer_all(asked: Sequence[str] | None, greeting: str, answer: Callable[[str], Neighbours], json: bool) -> None:
    """Answer the questions of the command line, or of standard input, one per line; several get titles.

    A question without an answer is reported; on the command line it ends the command.
    """
    from attnkit.errors import DataError, UsageError

    titled = not asked or len(asked) > 1
    for question in asked or _read_questions(greeting):
        try:
            found = answer(question)
        except (DataError, UsageError) as error:
            if asked:
                raise
            if json:
                console.result(dumps({"query": question, "error": error.what}, ensure_ascii=False))
            console.info("\n".join(error.lines()))
            continue
        if json:
            neighbours = [{"word": word, "score": round(score, 6)} for word, score in found]
            console.result(dumps({"query": question, "neighbours": neighbours}, ensure_ascii=False))
        else:
            title = f"{console.printable(question)}\n" if titled else ""
            # Rounded twice, as JSON shows them.
            console.result(title + console.table([(shown(word), f"{round(score, 6):.4f}") for word, score in found]))


def _read_questions(greeting: str) -> Iterator[str]:
    from attnkit.text.lines import STDIN, read_lines

    with console.prompting(True, greeting) as prompt:
        prompt()
        for line in read_lines(STDIN, on_bad="replace"):
            if line.strip():
                yield line.strip()
            prompt()
