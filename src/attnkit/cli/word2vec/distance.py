"""``attnkit word2vec distance``: how far apart two words are."""

from __future__ import annotations

from json import dumps
from typing import Annotated

from typer import Argument

from attnkit.cli.options import Json, VectorsCheckpoint, VectorsPath
from attnkit.cli.word2vec._query import load


def command(
    path: VectorsPath,
    first: Annotated[str, Argument(help="Word, or several in quotes: their mean.", metavar="WORD")],
    second: Annotated[str, Argument(help="Second word, or several in quotes.", metavar="WORD")],
    checkpoint: VectorsCheckpoint = None,
    json: Json = False,
) -> None:
    """Print the cosine of two words, their distance (1 - cosine), and that of the vectors' ends (Euclidean).

    \b
    Examples:
      attnkit word2vec distance vectors motel hotel
      attnkit word2vec distance vectors "new york" london
    """
    import numpy as np

    from attnkit.cli import console

    vectors = load(path, checkpoint)
    groups = [[text] if text in vectors or not text.split() else text.split() for text in (first, second)]
    cosine = vectors.n_similarity(*groups)
    ends = [vectors[group].mean(0) for group in groups]
    found = {"cosine": cosine, "distance": 1 - cosine, "euclidean": float(np.linalg.norm(ends[0] - ends[1]))}
    if json:
        rounded = {name: round(value, 6) for name, value in found.items()}
        console.result(dumps({"words": [first, second], **rounded}, ensure_ascii=False))
    else:
        console.result(console.table([(name, f"{value:.4f}") for name, value in found.items()], ""))
