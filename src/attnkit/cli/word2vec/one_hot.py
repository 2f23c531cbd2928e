"""``attnkit word2vec one-hot``: what one-hot vectors cannot say, beside what trained ones do."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from typing import Annotated

from typer import Argument

from attnkit.cli import console
from attnkit.cli.options import Json, VectorsPath


def command(
    words: Annotated[list[str], Argument(help="Two or more words.", metavar="WORD...")],
    run: VectorsPath,
    json: Json = False,
) -> None:
    """Compare words as one-hot vectors, which are all equally unlike, and as trained ones.

    \b
    Example:
      attnkit word2vec one-hot motel hotel vectors
    """
    from attnkit.errors import UsageError
    from attnkit.tasks.word2vec.one_hot import drawn, one_hot

    if not run.exists():
        raise UsageError(
            f"no run or file {run}", help="vectors are named last: attnkit word2vec one-hot motel hotel RUN"
        )
    found = one_hot(run, words)
    if json:
        console.result(dumps(asdict(found), ensure_ascii=False))
        return
    size, dim = found.vocab_size, found.dim
    places = [[word, f"= {drawn(place, size)}", f"1 at {place:,} of {size:,}"] for word, place in found.places.items()]
    rows = [["", f"one-hot ({size:,} numbers)", f"trained ({dim:,} numbers)"]]
    for pair in found.pairs:
        one, other = pair.words
        rows.append([f"{one} · {other}", str(pair.one_hot_dot), f"{pair.dot:.4f}"])
        rows.append([f"cos({one}, {other})", str(pair.one_hot_dot), f"{pair.cosine:.4f}"])
    said = "As one-hot vectors any two words are at right angles:\nnothing tells that two of them are alike."
    console.result("\n\n".join([console.table(places, ""), console.table(rows, ""), said]))
