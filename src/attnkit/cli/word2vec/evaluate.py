"""``attnkit word2vec evaluate``: scores on files of word pairs and analogies."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from attnkit.cli.options import VectorsCheckpoint, VectorsPath
from attnkit.cli.word2vec.queries import load

if TYPE_CHECKING:
    from attnkit.tasks.word2vec.evaluate import PairScores, SectionScores

_NAME, _SHORT_NAME = 28, 19  #: maximum characters of a name in 80 columns, without and with the n-grams column


def command(
    path: VectorsPath,
    files: Annotated[list[Path], Argument(help="Word-similarity judgements or analogies.", metavar="FILE...")],
    top: Annotated[int, Option("--top", "--restrict", min=0, help="Use the N most frequent words; 0: all.")] = 30_000,
    method: Annotated[Literal["add", "mul"], Option(help="Method for analogies: 3CosAdd or 3CosMul.")] = "add",
    case: Annotated[bool, Option("--case", help="Distinguish upper and lower case.")] = False,
    subwords: Annotated[
        bool, Option("--subwords/--no-subwords", help="Compose vectors of unseen words from n-grams.")
    ] = True,
    sections: Annotated[bool, Option("--sections", help="Also report each section of the analogies.")] = False,
    checkpoint: VectorsCheckpoint = None,
    json: Annotated[bool, Option("--json", help="One JSON object per file.")] = False,
) -> None:
    """Evaluate word vectors on word similarity and word analogies.

    Word similarity is scored by rank correlation with human judgements. Questions with an out-of-vocabulary word are
    skipped and counted as unknown. Vectors with n-grams (train --subwords) compose a vector for such a word; these
    questions are scored and counted under n-grams.

    \b
    Examples:
      attnkit word2vec evaluate vectors wordsim353.tsv simlex999.tsv \\
        questions-words.txt
      attnkit word2vec evaluate vectors questions-words.txt --sections \\
        --method mul --top 0
    """
    from attnkit.progress import console
    from attnkit.tasks.word2vec.evaluate import Known, kind_of, read_analogies, read_pairs, score_analogies, score_pairs

    read: list[tuple[Path, Any]] = []
    for file in files:  # all files before the vectors: a wrong name is reported at once
        read.append((file, read_pairs(file) if kind_of(file) == "pairs" else read_analogies(file)))
    vectors = load(path, checkpoint)
    known = Known(top, not case, subwords)
    composes = subwords and vectors.unseen is not None
    rows = [("file", "known", "n-grams", "unknown", "score")]

    def add_row(name: str, part: PairScores | SectionScores, score: str | None) -> None:
        rows.append((name, f"{part.known:,}", f"{part.composed:,}", f"{part.unknown:,}", score or "none"))

    for file, questions in read:
        report: dict[str, Any]
        if isinstance(questions[0], tuple):
            pairs = score_pairs(vectors, questions, known)
            report = {"kind": "pairs", **asdict(pairs)}
            both = pairs.spearman is not None and pairs.pearson is not None
            add_row(file.name, pairs, f"Spearman {pairs.spearman:.4f}, Pearson {pairs.pearson:.4f}" if both else None)
        else:
            found = score_analogies(vectors, questions, known, method)
            parts = {"groups": found.groups, **({"sections": found.sections} if sections else {})}
            listed = {key: [{**asdict(part), "accuracy": part.accuracy} for part in parts[key]] for key in parts}
            total = {key: value for key, value in asdict(found.total).items() if key != "name"}
            report = {"kind": "analogies", "accuracy": found.total.accuracy, **total, **listed}
            shown = [(f"  {part.name}", part) for group in parts.values() for part in group]
            for name, part in [(file.name, found.total), *shown]:
                add_row(name, part, None if part.accuracy is None else f"{part.accuracy:.1%} right")
        if json:
            console.result(dumps({"file": str(file), **report}, ensure_ascii=False))
    if not json:
        most = _SHORT_NAME if composes else _NAME
        names = [name if len(name) <= most else f"{name[: most - 1]}…" for name, *_ in rows]
        columns = [(name, row[1], *row[3 - composes :]) for name, row in zip(names, rows, strict=True)]
        console.result(console.table(columns, ""))
