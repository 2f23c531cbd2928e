"""``attnkit toy-corpus``: generation of small corpora for experiments."""

from json import dumps
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli.options import Json, Quiet
from attnkit.progress import console
from attnkit.text.toy.corpus import Kind, make_files, write_files


def command(
    kind: Annotated[Kind, Argument(help="Corpus.")],
    output: Annotated[Path, Option("-o", "--output", help="Folder for the files.", metavar="DIR")],
    pairs: Annotated[int, Option(min=1, max=10_000_000, help="Training pairs.")] = 25_000,
    valid: Annotated[int, Option(min=1, max=1_000_000, help="Validation pairs, held out.")] = 500,
    test: Annotated[int, Option(min=1, max=1_000_000, help="Test pairs, held out.")] = 1_000,
    seed: Annotated[int, Option(min=0, help="Random seed.")] = 1,
    overwrite: Annotated[bool, Option(help="Replace files that differ.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Generate a toy corpus: translation, reversed digits, headlines, code or reviews.

    english-french writes .en and .fr files, reviews .tsv (text, tab, label), the others .src and .tgt; reverse also
    writes test-long, with longer sequences than in training.

    \b
    Examples:
      attnkit toy-corpus english-french -o toy
      attnkit toy-corpus reverse -o digits --pairs 50000 --seed 7
    """
    n_pairs = pairs + valid + (2 * test if kind == "reverse" else test)  # reverse has a second test set
    with console.StatusLine() as status:
        progress = console.follow_lines(status, n_lines=n_pairs)
        progress(0)
        files = make_files(kind, pairs, seed, n_valid=valid, n_test=test, progress=progress)
    made = {output / name: lines for name, lines in files.items()}
    write_files(made, overwrite)
    counts = {str(path): len(lines) for path, lines in made.items()}
    rows = [(path, f"{count:,} lines") for path, count in counts.items()]
    console.result(dumps(counts) if json else console.table(rows, indent=""))
