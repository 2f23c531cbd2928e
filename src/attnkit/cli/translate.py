"""``attnkit translate``: translation with one run or an ensemble."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from attnkit.cli import options

if TYPE_CHECKING:
    from attnkit.tasks.translation.stream import TranslateRequest


def command(
    runs: Annotated[list[Path], Argument(help="Run folder; several runs form an ensemble.", metavar="RUN...")],
    input: Annotated[
        Path | None, Option("-i", "--input", help="Input text, folder or quoted pattern; default: standard input.")
    ] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Output file, or folder for several; default: standard output.")
    ] = None,
    format: Annotated[
        Literal["text", "html", "markdown", "xliff", "srt"],
        Option(help="Lines of text, or a document whose markup is kept."),
    ] = "text",
    protect: Annotated[
        bool, Option("--protect", help="Keep tags, URLs, placeholders, code and numbers as they are.")
    ] = False,
    split: options.Split = "auto",
    resume: Annotated[bool, Option(help="Write -o in durable parts; rerun the command to resume.")] = False,
    beam_size: options.BeamSize = None,
    sampling: options.Sampling = False,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.SamplingSeed = None,
    length_penalty: options.LengthPenalty = None,
    coverage_penalty: Annotated[float | None, Option(help="Weight of the coverage penalty (Wu et al. 2016).")] = None,
    repetition_penalty: options.RepetitionPenalty = None,
    no_repeat_ngram_size: Annotated[int | None, Option(help="Forbid repeated n-grams of this many subwords.")] = None,
    suppress: Annotated[Path | None, Option(help="File of words or phrases never to produce, one per line.")] = None,
    glossary: Annotated[Path | None, Option(help="Terms that translations must have: term, tab, translation.")] = None,
    no_unk: Annotated[bool, Option("--no-unk", help="Never produce <unk>.")] = False,
    min_length: Annotated[int | None, Option(help="Minimum translation length in tokens.")] = None,
    max_length: options.MaxLength = None,
    num_hypotheses: Annotated[int | None, Option(help="Translations per line, on consecutive lines.")] = None,
    rerank_with: Annotated[
        Path | None, Option(help="Run of the opposite direction that ranks the beam, too.", metavar="RUN")
    ] = None,
    rerank_weight: Annotated[
        float | None, Option(help="Weight of the score by --rerank-with. [default: 0.5]", metavar="NUMBER")
    ] = None,
    target_prefix: Annotated[Path | None, Option(help="File with one target prefix per line.")] = None,
    shortlist: Annotated[Path | None, Option(help="Lexicon from align --run that restricts the output.")] = None,
    replace_unknowns: Annotated[
        bool, Option(help="Replace <unk> with the most-attended source word (vocabulary.kind=word).")
    ] = False,
    dictionary: Annotated[Path | None, Option(help="Word lexicon from align, for --replace-unknowns.")] = None,
    return_scores: Annotated[bool, Option(help="Prefix each line with its score and a tab.")] = False,
    return_confidence: Annotated[
        bool, Option(help="Prefix each line with the probability that it is acceptable, and a tab.")
    ] = False,
    return_token_scores: options.ReturnTokenScores = False,
    return_attention: Annotated[bool, Option(help="Include attention weights, with --json.")] = False,
    json: Annotated[bool, Option(help="One JSON object per line, or per passage of a document.")] = False,
    batch_size: Annotated[
        int | None, Option(min=1, help="Batch size of torch. [default: 64 sentences or 4096 tokens]")
    ] = None,
    batch_type: Annotated[Literal["sentences", "tokens"], Option(help="Unit of --batch-size.")] = "sentences",
    device: options.Device = "auto",
    precision: options.Precision = "float32",
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    checkpoint: options.CheckpointName = None,
    adapter: options.Adapter = None,
    src_lang: options.SourceLanguage = None,
    tgt_lang: options.TargetLanguage = None,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Translate text line by line.

    \b
    Examples:
      echo "A dog runs." | attnkit translate run
      attnkit translate run -i test.en -o test.de --beam-size 5
      attnkit translate run -i test.en -o test.de --resume
      attnkit translate run -i 'shards/*.en' -o out --resume
      attnkit translate run -i page.html -o page.de.html --format html
      attnkit translate run -i 'site/*.html' -o out --format html --resume
      attnkit translate run1 run2 --num-hypotheses 3 --json < test.en
      attnkit translate run -i test.en --rerank-with de-en --beam-size 10
      attnkit translate run -i test.en --adapter lora-run
      attnkit translate both -i test.en --tgt-lang de
      attnkit translate nllb -i test.fr --src-lang fra_Latn --tgt-lang deu_Latn
      attnkit translate run -i test.en --shortlist tokens.tsv
      attnkit translate run -i test.en --suppress words.txt
      attnkit translate run -i test.en --glossary terms.tsv
      attnkit translate word-run --replace-unknowns \\
        --dictionary words.tsv < test.en
    """
    given = {name: value for name, value in locals().items() if value is not None and value is not False}
    from attnkit.decoding.config import SearchConfig, check_search_options
    from attnkit.text.files import STDIN
    from attnkit.text.lines import check_not_overwriting

    source = input or STDIN
    inputs = [path for path in (source, target_prefix, shortlist, dictionary, suppress, glossary) if path is not None]
    search = {name: value for name, value in given.items() if name in SearchConfig.model_fields}
    check_search_options(search)  # before torch is loaded
    check_not_overwriting(output, inputs)
    from attnkit.data.loader import Batching
    from attnkit.tasks.translation.jobs import find_inputs, pair_outputs
    from attnkit.tasks.translation.stream import TranslateRequest

    request = TranslateRequest(
        runs=runs,
        source=source,
        search=search,
        prefixes=target_prefix,
        rerank_with=rerank_with,
        rerank_weight=rerank_weight,
        scores=return_scores,
        confidence=return_confidence,
        attention=return_attention,
        token_scores=return_token_scores,
        as_json=json,
        batching=Batching(batch_size or (64 if batch_type == "sentences" else 4096), batch_type),
        engine=engine,
        device=device,
        precision=precision,
        threads=threads,
        checkpoint=checkpoint,
        adapter=adapter,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        split=split,
        format=None if format == "text" else format,
        protect=protect,
        strict=strict,
        shortlist=shortlist,
        unknowns=replace_unknowns,
        dictionary=dictionary,
        suppress=suppress,
        glossary=glossary,
    )
    sources = find_inputs(source)
    if request.format is not None or protect:
        refused = ["target_prefix", "replace_unknowns", "return_scores", "return_token_scores"]
        refused += ["return_attention", "return_confidence"]
        if request.format is not None:
            refused += ["protect", *(["resume"] if sources is None else [])]
        refuse_options(given, format, refused)
    if sources is not None:
        refuse_options(given, "several files", ["target_prefix"])
        if request.format is not None and resume:
            refuse_options(given, "--resume of documents", ["json"])
        from attnkit.cli._translate_files import write_files

        write_files(request, sources, pair_outputs(sources, output), resume)
    elif request.format is not None:
        write_document(request, output)
    else:
        write_lines(request, output, resume)


def write_lines(request: TranslateRequest, output: Path | None, resume: bool) -> None:
    """Translate lines and write them as they are done."""
    from attnkit.io import atomic
    from attnkit.progress import console
    from attnkit.tasks.translation.jobs import is_translated, resumable_output
    from attnkit.tasks.translation.signs import SignCounts
    from attnkit.tasks.translation.stream import translate_stream
    from attnkit.text.files import STDIN

    if request.source != STDIN and not request.protect:
        suggest_format(request.source)
    if resume and is_translated(request, output):
        console.info(f"{output} is finished; remove it to translate again")
        return
    files = resumable_output(request, output) if resume else None
    if files is not None:
        request = replace(request, skip=files.state)
        if files.is_resumed:
            console.info(f"resuming after line {files.state:,}")
    with (
        console.prompting(request.source == STDIN, "type a line to translate; Ctrl-D ends") as prompt,
        nullcontext() if files is not None else atomic.open_output(output) as stream,
        console.StatusLine(plain_every=60.0) as status,
    ):
        # On a terminal the translations themselves show how far it is.
        shown = output is not None or not (sys.stdout is not None and sys.stdout.isatty())
        follow = console.follow_lines(status, [request.source], request.skip) if shown else lambda n_lines: None
        began, n_done, counts = time.monotonic(), request.skip, SignCounts()
        for n_lines, lines in translate_stream(request, status.warn, follow, counts):
            n_done += n_lines
            text = "".join(f"{line}\n" for line in lines)
            if files is not None:
                files.append([text], n_done)
            elif stream is not None and text:  # an empty flush would change a compressed file
                stream.write(text)
                stream.flush()
            prompt()
        if files is not None:
            files.finish()
        seconds = time.monotonic() - began
        if shown and seconds > console.PATIENCE:
            rate = (n_done - request.skip) / seconds
            many = "line" if n_done == 1 else "lines"
            status.say(f"{n_done:,} {many} translated, {rate:,.0f} lines/s")
        for message in counts.messages(protects=request.protect) if shown else ():
            status.say(message)


def refuse_options(given: dict[str, object], format: str, refused: list[str]) -> None:
    """Raise ``UsageError`` for an option that documents do not have."""
    from attnkit.errors import UsageError

    several = [name for name in ("num_hypotheses",) if given.get(name, 1) != 1 and format != "several files"]
    for name in [name for name in refused if given.get(name)] + several:
        option = f"--{name.replace('_', '-')}"
        with_what = "--protect" if format == "text" else format if " " in format else f"--format {format}"
        raise UsageError(f"{option} cannot be combined with {with_what}", where=option, help=f"remove {option}")


def suggest_format(input: Path) -> None:
    """Say that a file with markup is read as lines of text."""
    from attnkit.formats.suffixes import SUFFIXES
    from attnkit.progress import console

    suggested = SUFFIXES.get(input.suffix.lower())
    if suggested is not None:
        console.info(f"{input.name} is read as lines of text; --format {suggested} keeps its markup")


def write_document(request: TranslateRequest, output: Path | None) -> None:
    """Translate a document and write it as a whole; JSON goes to standard output."""
    from attnkit.formats.documents import parse_document, read_document
    from attnkit.io import atomic
    from attnkit.progress import console
    from attnkit.tasks.translation.signs import DocumentCounts
    from attnkit.tasks.translation.stream import load_translator, translate_document

    assert request.format is not None
    source, counts = read_document(request.source), DocumentCounts()
    parse_document(source, request.format, request.source)  # before a model is loaded
    written = nullcontext() if request.as_json and output is None else atomic.open_output(output)
    with written as stream, console.StatusLine(plain_every=60.0) as status:

        def follow(n_done: int, n_passages: int) -> None:
            if n_done < n_passages:
                status.update(f"{n_done:,} of {n_passages:,} passages")

        opened = load_translator(request, status.warn)
        text, lines = translate_document(opened, request, source, follow, counts)
        if stream is not None:
            stream.write(text)
        status.say(counts.as_text())
        for note in counts.notes:
            status.warn(note)
        for message in counts.signs.messages(protects=True):
            status.say(message)
    if request.as_json:
        with atomic.open_output(None) as stream:
            stream.writelines(f"{line}\n" for line in lines)
