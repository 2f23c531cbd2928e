"""``attnkit predict``: what a fine-tuned run says of texts, words and questions."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from attnkit.tasks.finetuning.prediction import Totals


def command(
    run: Annotated[Path, typer.Argument(help="Run that finetune made.", metavar="RUN")],
    inputs: Annotated[
        list[Path] | None, typer.Argument(help="Plain or compressed; standard input if none.", metavar="FILE")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write; standard output if not given.")
    ] = None,
    format: Annotated[
        Literal["auto", "lines", "pairs", "table", "conll", "jsonl", "squad"],
        typer.Option(help="How files are read; see above."),
    ] = "auto",
    gold: Annotated[bool, typer.Option("--gold", help="Files say what is right: tell how much is found.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="With --gold: only these totals.")] = False,
    confusion: Annotated[
        Path | None, typer.Option(help="With --gold: a page that shows what was taken for what.", metavar="FILE.html")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="The probability of every label.")] = False,
    no_answer_threshold: Annotated[
        float | None, typer.Option(help="How much likelier than the best answer it has to be that there is none.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a result, and one for totals.")] = False,
    batch_tokens: Annotated[
        int, typer.Option(min=1, max=1 << 24, help="Tokens computed together; never what comes out.")
    ] = 16384,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, averaged or step-N. [default: best]")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of one operation.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at bytes that are not UTF-8, as tables, CoNLL and SQuAD do.")
    ] = False,
) -> None:
    """Print what a fine-tuned model finds: N lines in, N lines out; totals go to stderr.

    A classifier gives label and probability. It reads lines, or if it was taught pairs two texts with a tab between;
    with --gold a table, whose first line names its columns: text, text2, label. A tagger turns lines of words into
    lines of tags, and adds a column to CoNLL's, which it reads with --gold and of names as FILE.conll or FILE.iob;
    --json gives the probability of each tag. A reader gives answer, probability, and where the answer begins and ends;
    it reads JSON lines with question and context, and of the name FILE.json SQuAD. If it has learned that some have
    none, --no-answer-threshold, a difference of logits, says how sure of that it has to be; with --gold the best one
    is told. With a threshold an imported reader finds that too.

    \b
    Examples:
      echo "A film worth seeing." | attnkit predict run
      attnkit predict run test.tsv --gold --confusion confusion.html
      attnkit predict tagger test.conll --gold --summary
      attnkit predict reader dev.json --json -o answers.jsonl
    """
    from attnkit.cli import console
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.text.lines import STDIN, check_not_overwriting

    for wrong, flag in ((summary and not gold, "--summary"), (confusion is not None and not gold, "--confusion")):
        if wrong:
            raise UsageError("without knowing what is right there are no totals", where=flag, help="add --gold")
    if summary and output is not None and not json:
        raise UsageError("totals are for people to read", where=f"-o {output}", help="add --json, or leave out -o")
    sources = inputs or [STDIN]
    for path in (output, confusion):
        check_not_overwriting(path, sources)  # before torch is loaded
    from attnkit.tasks.finetuning.predict import open_predictor
    from attnkit.tasks.finetuning.prediction import PredictRequest

    request = PredictRequest(
        *(run, sources, format, gold, every, json, strict, batch_tokens, device, threads, checkpoint),
        no_answer_threshold=no_answer_threshold,
    )
    predicting = open_predictor(request, console.warn)
    if confusion is not None and predicting.task == "question-answering":
        raise UsageError("answers are not taken for each other", where="--confusion", help="leave it out")
    if no_answer_threshold is not None and (
        predicting.task != "question-answering" or no_answer_threshold != no_answer_threshold
    ):
        raise UsageError("a number is for readers, nothing else", where="--no-answer-threshold", help="leave it out")
    with atomic.open_output(output) as stream:
        for lines in predicting:
            stream.writelines(line + "\n" for line in (() if summary else lines))
            stream.flush()
        if gold and json:
            stream.write(dumps(predicting.predictor.totals().plain, ensure_ascii=False) + "\n")
    for text in predicting.predictor.complaints():
        console.warn(text)
    if gold:
        tell(predicting.predictor.totals(), run, confusion, summary and not json)


def tell(totals: Totals, run: Path, page: Path | None, as_result: bool) -> None:
    """Print totals for people, and write the page of who was taken for whom."""
    from attnkit.cli import console
    from attnkit.io import atomic
    from attnkit.plotting.confusion import confusion_page, confusion_table

    parts = [totals.headline]
    if totals.rows:
        parts.append(console.table(totals.rows))
    found = totals.confusion
    if found is not None and not totals.rows:
        colour = as_result and console.supports_color()
        parts.append(confusion_table(found.labels, found.counts, colour=colour, width=console.width()))
    (console.result if as_result else console.info)("\n".join(parts))
    if found is not None and page is not None:
        atomic.write_text(page, confusion_page(found.labels, found.counts, f"{run.name}: {totals.headline}"))
        console.info(f"wrote {page}")
