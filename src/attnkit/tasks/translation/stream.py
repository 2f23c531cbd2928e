"""Lines from a file, a pipe or a keyboard through a translator, as output lines."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from attnkit.data.loader import Batching
from attnkit.engine.seq2seq import SearchJob
from attnkit.errors import RunError, UsageError
from attnkit.runtime.devices import set_threads
from attnkit.tasks.translation.shortlist import LexiconShortlist, UnknownReplacer
from attnkit.tasks.translation.translator import Translation, load_translator
from attnkit.text.lines import read_line_batches, read_lines


@dataclass(frozen=True)
class TranslateRequest:
    """Request of ``attnkit translate``."""

    runs: list[Path]
    source: Path  #: A file, or ``-`` for standard input
    search: dict[str, Any] = field(default_factory=dict)  #: fields of ``SearchConfig`` that replace the run's own
    prefixes: Path | None = None
    scores: bool = False
    attention: bool = False
    as_json: bool = False
    batching: Batching = field(default_factory=Batching)
    workers: int = 1
    device: str = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    threads: int | None = None
    checkpoint: str | None = None  #: A checkpoint by name; without it the best
    strict: bool = False  #: refuse invalid UTF-8 instead of replacing it by U+FFFD
    shortlist: Path | None = None
    """A lexicon of tokens, of which alone, and of the most frequent ones, translations are made."""
    unknowns: bool = False
    """Put words in the place of ``<unk>``: translations of source words by ``dictionary``, or the words themselves."""
    dictionary: Path | None = None


def translate_stream(request: TranslateRequest, tell: Callable[[str], None]) -> Iterator[list[str]]:
    """Yield output lines as they are ready, in groups that belong together; ``tell`` takes warnings.

    The first group is empty: everything is loaded, and reading begins. A line is answered as soon as no further one
    follows quickly, so that a pipe or a person never waits for a full window.
    """
    check_request(request)
    set_threads(request.threads)
    translator = load_translator(
        request.runs,
        device=request.device,
        precision=request.precision,
        workers=request.workers,
        checkpoint=request.checkpoint,
    )
    try:
        # A greedy text needs no normalised scores; nobody sees them unless they are asked for.
        shown = request.scores or request.as_json
        config = translator.configure({"scores": shown, **request.search})
        src, tgt = translator.src_tokenizer, translator.tgt_tokenizer
        if request.shortlist is not None:
            translator.shortlist = LexiconShortlist(request.shortlist, src, tgt)
        if request.unknowns:
            translator.replacer = UnknownReplacer(request.dictionary, src, tgt)
        record = request.attention or config.coverage_penalty != 0 or request.unknowns
        for run in translator.runs:
            for warning in run.warnings:
                tell(warning)
            if record and not run.config.model.has_attention:
                raise UsageError(
                    "this model has no attention weights", where=str(run.path), help="leave that option out"
                )
        windows = read_line_batches(request.source, request.batching.window, request.strict, tell)
        prefixes = None if request.prefixes is None else read_lines(request.prefixes)
        yield []
        for found in translator.translate_windows(windows, SearchJob(config, record), request.batching, prefixes):
            yield [line for translation in found for line in render(translation, request)]
        if prefixes is not None and next(prefixes, None) is not None:
            tell(f"{request.prefixes} has more lines than the input; the extra lines were ignored")
    finally:
        translator.close()


def check_request(request: TranslateRequest) -> None:
    """Raise ``UsageError`` for inconsistent options, before loading the model."""
    if request.dictionary is not None and not request.unknowns:
        raise UsageError(
            "a dictionary requires --replace-unknowns", where="--dictionary", help="add --replace-unknowns"
        )
    if request.attention and not request.as_json:
        raise UsageError("--return-attention requires --json", where="--return-attention", help="add --json")
    if request.workers > 1 and request.threads is not None:
        raise UsageError("each worker uses one thread", where="--threads", help="leave out --threads or --workers")
    for path in request.runs:
        if path.is_file():
            help = f"text is given by -i: attnkit translate RUN -i {path}"
            raise RunError(f"{path} is a file, not a run folder", help=help)


def render(translation: Translation, request: TranslateRequest) -> list[str]:
    """Return the output lines of one input line: one line per hypothesis, or one JSON object."""
    if request.as_json:
        kept = ["text", "score", "log_prob", *(["tokens", "attention"] if request.attention else [])]
        outputs = [{name: getattr(output, name) for name in kept} for output in translation.outputs]
        plain: dict[str, Any] = {"source": translation.source, "translations": outputs}
        if request.attention:
            plain["source_tokens"] = translation.source_tokens
        return [json.dumps(plain, ensure_ascii=False)]
    if request.scores:
        return [f"{output.score:.6f}\t{output.text}" for output in translation.outputs]
    return [output.text for output in translation.outputs]
