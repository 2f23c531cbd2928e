"""``attnkit word2vec convert``: vectors in another format."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from attnkit.cli.word2vec._query import CHECKPOINT, VECTORS, load
from attnkit.formats.word_vectors.formats import Format


def command(
    source: Annotated[Path, typer.Argument(help=VECTORS, metavar="VECTORS")],
    goal: Annotated[Path, typer.Argument(help="What to write; its ending tells the format.", metavar="OUTPUT")],
    to: Annotated[Format | None, typer.Option(help="The format, where the ending does not tell it.")] = None,
    top: Annotated[int | None, typer.Option("--top", "--restrict", min=1, help="The first N words alone.")] = None,
    space: Annotated[
        str | None, typer.Option(help="What stands for spaces in words, for formats without them.", metavar="SIGN")
    ] = None,
    checkpoint: Annotated[str | None, typer.Option(help=CHECKPOINT)] = None,
    json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Write vectors as word2vec, GloVe, fastText or TensorBoard's projector have them, as safetensors or .npy.

    Endings: .txt word2vec text, .bin word2vec binary, .vec fastText, .glove GloVe, .safetensors, .npy (and
    .words.txt beside it); without an ending a folder for the projector. Numbers stay as they are, to the last bit.

    \b
    Examples:
      attnkit word2vec convert vectors vectors.bin
      attnkit word2vec convert glove.6B.100d.txt glove.safetensors
      attnkit word2vec convert vectors projector --top 10000
    """
    from attnkit.cli import console
    from attnkit.errors import UsageError
    from attnkit.formats.word_vectors.formats import format_of
    from attnkit.tasks.word2vec.vectors import Vectors
    from attnkit.text.lines import check_not_overwriting

    format = to or format_of(goal)
    check_not_overwriting(goal, [source])
    if space is not None and (not space or space.split() != [space]):
        raise UsageError("white space cannot stand for spaces", where="--space", help="choose a sign, as _")
    vectors = load(source, checkpoint)
    table = vectors.table(top)
    words = table.words if space is None else [space.join(word.split()) or word for word in table.words]
    Vectors(words, table.rows, counts=table.counts, name=str(source)).save(goal, format)
    found = {"path": str(goal), "format": format, "words": len(table.words), "dim": vectors.vector_size}
    text = f"{goal}: {len(table.words):,} words, {vectors.vector_size:,} numbers each ({format})"
    console.result(dumps(found) if json else text)
