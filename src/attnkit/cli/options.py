"""Arguments and options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

RunPath = Annotated[Path, Argument(help="Run folder.", metavar="RUN")]
Source = Annotated[Path, Argument(help="Source text; plain, .gz, .xz or .bz2.", metavar="SRC")]
Target = Annotated[Path, Argument(help="Target text; line n translates line n of SRC.", metavar="TGT")]
OutputFile = Annotated[
    Path | None, Option("-o", "--output", help="Output file; default: standard output.", metavar="FILE")
]
Summary = Annotated[bool, Option("--summary", help="Print the totals only.")]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
JsonPairs = Annotated[bool, Option("--json", help="One JSON object per pair, and one for the totals.")]
TargetVocab = Annotated[Path | None, Option(help="Vocabulary of the target, if it has its own.", metavar="FILE")]

# Commands that use a trained run.
CheckpointName = Annotated[
    str | None, Option(help="Checkpoint: best, last, averaged or step-N. [default: best]", metavar="NAME")
]
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], Option(help="Device.")]
Precision = Annotated[
    Literal["float32", "bfloat16"],
    Option(help="Floating-point precision; bfloat16 is faster, and results may depend on the batch."),
]
Threads = Annotated[int | None, Option(min=1, max=1024, help="CPU threads per operation.")]
Strict = Annotated[bool, Option("--strict", help="Reject bytes that are not UTF-8.")]
TopP = Annotated[float | None, Option(help="Sample among the most probable tokens whose probabilities sum to p.")]
RepetitionPenalty = Annotated[
    float | None, Option(help="Above 1: lower the probability of tokens that occurred before.")
]
Svg = Annotated[Path | None, Option(help="Write an SVG picture (needs attnkit[plot]).", metavar="FILE")]
Png = Annotated[Path | None, Option(help="Write a PNG picture.", metavar="FILE")]
Pdf = Annotated[Path | None, Option(help="Write a PDF picture.", metavar="FILE")]

# Commands that train; the options of all of them are fields of ``_train.TrainingOptions``.
RunOutput = Annotated[Path, Option("-o", "--output", help="Run folder to write.", metavar="RUN")]
InitFrom = Annotated[Path | None, Option(help="Run to initialize weights and vocabulary from.", metavar="RUN")]
Overwrite = Annotated[bool, Option("--overwrite", help="Move an existing run of this name aside.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show the resolved configuration and an estimate; do not train.")]
Text = Annotated[list[str] | None, Argument(help="Text, plain or compressed.", metavar="FILE...")]
ValidText = Annotated[list[str] | None, Option(help="Validation text; repeatable.", metavar="FILE")]

# Commands on word vectors.
VectorsPath = Annotated[
    Path, Argument(help="Run of attnkit word2vec train, or a file of vectors in any format.", metavar="VECTORS")
]
VectorsCheckpoint = Annotated[str | None, Option(help="Checkpoint of a run: best, last or step-N.", metavar="NAME")]
FirstWords = Annotated[
    int | None, Option("--top", "--restrict", min=1, help="Use the N most frequent words only.", metavar="N")
]
NumAnswers = Annotated[int, Option("-n", "--num", min=1, max=1_000_000, help="Number of answers.", metavar="N")]
EncoderLayer = Annotated[
    int | None, Option(min=0, help="Layer of BERT or GPT; 0 is the embeddings. [default: the last]", metavar="N")
]
