"""``attnkit predict``: predictions of a fine-tuned model or document classifier."""

from __future__ import annotations

import os
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import CheckpointName, CpuPrecision, Device, OutputFile, Quiet, Threads

if TYPE_CHECKING:
    from attnkit.engine.predict import Totals


def command(
    run: Annotated[Path, Argument(help="Run of a fine-tuned model or a document classifier.", metavar="RUN")],
    inputs: Annotated[list[Path] | None, Argument(help="Input, plain or compressed; default: standard input.")] = None,
    output: OutputFile = None,
    format: Annotated[
        Literal["auto", "lines", "pairs", "table", "conll", "jsonl", "squad"], Option(help="Input format.")
    ] = "auto",
    gold: Annotated[bool, Option(help="Input with gold labels; report scores.")] = False,
    summary: Annotated[bool, Option(help="With --gold: print only the scores.")] = False,
    confusion: Annotated[Path | None, Option(help="HTML confusion matrix; needs --gold.", metavar="FILE.html")] = None,
    every: Annotated[bool, Option("--all", help="Print the probability of every label.")] = False,
    no_answer_threshold: Annotated[
        float | None,
        Option(help="Logit margin by which the null score must exceed the best span score to predict no answer."),
    ] = None,
    json: Annotated[bool, Option(help="One JSON object per prediction, and one for the scores.")] = False,
    batch_tokens: Annotated[int, Option(min=1, max=1 << 24, help="Tokens per batch; results do not change.")] = 16384,
    checkpoint: CheckpointName = None,
    device: Device = "auto",
    precision: CpuPrecision = "float32",
    threads: Threads = None,
    strict: Annotated[bool, Option(help="Reject invalid UTF-8 (always done for tables, CoNLL and SQuAD).")] = False,
    quiet: Quiet = False,
) -> None:
    """Predict labels, tags or answers, one line per input; scores go to stderr.

    text-classification prints label and probability per line. The input has one text per line, or a tab-separated pair
    if the model was trained on pairs. With --gold, it is a table with the columns text, text2 (pairs only) and label. A
    document classifier (model han) splits documents into sentences after . ! ? and white space, or at |||; with --gold,
    each line is a document, a tab and its label. --json adds the attention weights of a document classifier.

    token-classification prints one tag per word. The input has one tokenized sentence per line, or is CoNLL (with
    --gold, or a .conll or .iob file), to which a column of predicted tags is appended. --json adds the probability of
    each tag.

    question-answering prints answer, probability, start and end. The input is JSON lines with question and context, or
    SQuAD for FILE.json. A model trained on unanswerable questions predicts no answer if the null score exceeds the best
    span score by more than --no-answer-threshold; --gold reports the best threshold. Imported models predict no answer
    only if a threshold is given.

    \b
    Examples:
      echo "A film worth seeing." | attnkit predict run
      attnkit predict run test.tsv --gold --confusion confusion.html
      attnkit predict tagger test.conll --gold --summary
      attnkit predict reader dev.json --json -o answers.jsonl
    """
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.progress import console
    from attnkit.text.files import STDIN
    from attnkit.text.lines import check_not_overwriting

    for wrong, flag in ((summary and not gold, "--summary"), (confusion is not None and not gold, "--confusion")):
        if wrong:
            raise UsageError("this option requires gold labels", where=flag, help="add --gold")
    if summary and output is not None and not json:
        raise UsageError("--summary with -o needs --json", where=f"-o {output}", help="add --json, or omit -o")
    sources = inputs or [STDIN]
    check_not_text(sources, run)
    for path in (output, confusion):
        check_not_overwriting(path, sources)  # before torch is loaded
    from attnkit.engine.predict import PredictRequest, open_predictor

    request = PredictRequest(
        *(run, sources, format, gold, every, json, strict, batch_tokens, device, precision, threads, checkpoint),
        no_answer_threshold=no_answer_threshold,
    )
    predicting = open_predictor(request, console.warn)
    if confusion is not None and predicting.task == "question-answering":
        raise UsageError("question-answering has no confusion matrix", where="--confusion", help="leave it out")
    is_wrong = predicting.task != "question-answering" or no_answer_threshold != no_answer_threshold
    if no_answer_threshold is not None and is_wrong:
        what = "--no-answer-threshold must be a finite number and requires a question-answering run"
        raise UsageError(what, where="--no-answer-threshold", help="leave it out")
    with atomic.open_output(output) as stream:
        for lines in predicting:
            stream.writelines(line + "\n" for line in (() if summary else lines))
            stream.flush()
        if gold and json:
            stream.write(dumps(predicting.totals().plain, ensure_ascii=False) + "\n")
    for text in predicting.warnings():
        console.warn(text)
    if gold:
        report(predicting.totals(), run, confusion, summary and not json)


def check_not_text(sources: Sequence[str | Path], run: Path) -> None:
    """Raise ``UsageError`` for a text in place of a file."""
    from attnkit.errors import UsageError
    from attnkit.progress import console

    for path in sources:
        if " " in str(path) and not os.path.lexists(path):
            help = f"a text itself is read from standard input: echo TEXT | {console.command('predict', run)}"
            raise UsageError(f"no such file: {str(path)[:60]}", help=help)


def report(totals: Totals, run: Path, page: Path | None, as_result: bool) -> None:
    """Print the scores, and write the confusion matrix as an HTML page."""
    from attnkit.io import atomic
    from attnkit.plotting.confusion import confusion_page, confusion_table
    from attnkit.progress import console

    parts = [totals.headline]
    if totals.rows:
        parts.append(console.table(totals.rows))
    found = totals.confusion
    if found is not None and not totals.rows:
        colour = as_result and console.supports_color()
        parts.append(confusion_table(found.labels, found.counts, colour=colour, width=console.width()))
    (console.result if as_result else console.info)("\n".join(parts))
    if found is not None and page is not None:
        title = f"{run.name}: {totals.headline}"
        atomic.write_text(page, confusion_page(found.labels, found.counts, title, totals.mistakes))
        console.info(f"wrote {page}")
