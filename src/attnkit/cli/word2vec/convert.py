"""``attnkit word2vec convert``: conversion of word vectors between formats."""

from json import dumps
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli.options import FirstWords, Json, VectorsCheckpoint, VectorsPath
from attnkit.cli.word2vec.queries import load
from attnkit.formats.word_vectors.table import Format


def command(
    source: VectorsPath,
    goal: Annotated[Path, Argument(help="Output file; its suffix selects the format.", metavar="OUTPUT")],
    to: Annotated[Format | None, Option(help="Format, if not determined by the suffix.")] = None,
    top: FirstWords = None,
    space: Annotated[str | None, Option(help="Replacement for spaces inside words.", metavar="SIGN")] = None,
    checkpoint: VectorsCheckpoint = None,
    json: Json = False,
) -> None:
    """Convert word vectors to another format.

    The suffix selects the format: .txt word2vec text, .bin word2vec binary, .vec fastText, .glove GloVe, .safetensors,
    .npy (with .words.txt); no suffix: a folder for the TensorBoard projector. Values are converted without loss.

    \b
    Examples:
      attnkit word2vec convert vectors vectors.bin
      attnkit word2vec convert glove.6B.100d.txt glove.safetensors
      attnkit word2vec convert vectors projector --top 10000
    """
    from attnkit.errors import UsageError
    from attnkit.formats.word_vectors.table import format_of
    from attnkit.progress import console
    from attnkit.tasks.word2vec.vectors import Vectors
    from attnkit.text.lines import check_not_overwriting

    format = to or format_of(goal)
    check_not_overwriting(goal, [source])
    if space is not None and (not space or space.split() != [space]):
        raise UsageError(
            "--space must be a non-empty string without white space", where="--space", help="for example --space _"
        )
    vectors = load(source, checkpoint)
    table = vectors.table(top)
    words = table.words if space is None else [space.join(word.split()) or word for word in table.words]
    Vectors(words, table.rows, counts=table.counts, name=str(source)).save(goal, format)
    found = {"path": str(goal), "format": format, "words": len(table.words), "dim": vectors.vector_size}
    text = f"{goal}: {len(table.words):,} words, {vectors.vector_size:,} dimensions ({format})"
    console.result(dumps(found) if json else text)
