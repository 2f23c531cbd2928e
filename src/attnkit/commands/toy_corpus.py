"""``attnkit toy-corpus``: make a parallel corpus to play with."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from attnkit import console, files
from attnkit.text.toy.kinds import Kind, make_files


def command(
    kind: Annotated[Kind, typer.Argument(help="What the pairs are.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the files.", metavar="DIR")],
    pairs: Annotated[int, typer.Option(min=1, help="Of the training files.")] = 25_000,
    valid: Annotated[int, typer.Option(min=1, help="Held-out pairs for validation.")] = 500,
    test: Annotated[int, typer.Option(min=1, help="Held-out pairs for the test.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same files.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Make train, valid and test files from a generator: a language, a puzzle, headlines or code.

    english-french writes .en and .fr files, the others .src and .tgt; reverse adds test-long, longer than training.

    \b
    Examples:
      attnkit toy-corpus english-french -o toy
      attnkit toy-corpus reverse -o digits --pairs 50000 --seed 7
    """
    made = make_files(kind, pairs, seed, n_valid=valid, n_test=test)
    files.make_dirs(output)
    for name, lines in made.items():
        files.write_text(output / name, "".join(f"{line}\n" for line in lines))
    counts = {str(output / name): len(lines) for name, lines in made.items()}
    rows = [(path, f"{count:,} lines") for path, count in counts.items()]
    console.result(json_format.dumps(counts) if json else console.table(rows, indent=""))
