"""Translation of files, pipes and documents, as ``attnkit translate`` asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attnkit.data.loader import Batching
from attnkit.engine.engine_choice import Engine
from attnkit.engine.search_backend import SearchJob
from attnkit.errors import RunError, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.tasks.translation.directions import LanguagePair, has_choice
from attnkit.tasks.translation.engines import EngineSearch
from attnkit.tasks.translation.ensemble import open_ensemble
from attnkit.tasks.translation.segmenting import SplitPolicy
from attnkit.tasks.translation.shortlist import LexiconShortlist, UnknownReplacer
from attnkit.tasks.translation.signs import DocumentCounts, SignCounts
from attnkit.tasks.translation.translated_line import TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.text.files import STDIN
from attnkit.text.lines import read_line_batches, read_lines

if TYPE_CHECKING:
    from attnkit.formats.passages import Piece
    from attnkit.formats.suffixes import DocumentFormat
    from attnkit.tasks.translation.documents import PassageTranslation

Item = TypeVar("Item")


@dataclass(frozen=True)
class TranslateRequest:
    """Options of ``attnkit translate``."""

    runs: list[Path]
    source: Path  #: input file; ``-`` is standard input
    search: dict[str, Any] = field(default_factory=dict)  #: fields of ``SearchConfig`` that override the run's own
    prefixes: Path | None = None
    scores: bool = False
    confidence: bool = False  #: prefix each line with the confidence of its translation
    attention: bool = False
    token_scores: bool = False
    as_json: bool = False
    batching: Batching = field(default_factory=Batching)
    device: str = "auto"
    precision: Precision = "float32"
    engine: Engine = "auto"
    threads: int | None = None
    checkpoint: str | None = None  #: name of the checkpoint; None: the best one
    adapter: Path | None = None  #: run of an adapter of the only run
    src_lang: str | None = None  #: source language of imported runs with codes
    tgt_lang: str | None = None  #: target language of runs with several
    split: SplitPolicy = "auto"
    format: DocumentFormat | None = None  #: None: lines of text
    protect: bool = False  #: keep tags, addresses, placeholders and numbers of lines
    strict: bool = False  #: reject invalid UTF-8 instead of replacing it with U+FFFD
    shortlist: Path | None = None
    """Token lexicon; restricts translations to its entries and the most frequent target tokens."""
    unknowns: bool = False
    """Replace ``<unk>`` by the attended source word, translated if ``dictionary`` has an entry for it."""
    dictionary: Path | None = None
    suppress: Path | None = None  #: file of words and phrases that are never produced, one per line
    glossary: Path | None = None  #: terms and their translations, separated by tabs
    rerank_with: Path | None = None  #: run of the opposite direction that ranks the hypotheses of the beam
    rerank_weight: float | None = None  #: of its score; None: the default
    skip: int = 0  #: input lines, and prefixes, that were translated before


def open_translator(
    request: TranslateRequest, tell: Callable[[str], None], progress: Callable[[int], None]
) -> tuple[TranslationPipeline, EngineSearch, SearchJob]:
    """Open the runs of a request, without their weights."""
    check_request(request)
    opened = open_ensemble(request.runs, request.checkpoint, request.adapter)
    engine, threads = request.engine, request.threads
    searcher = EngineSearch(opened, request.device, request.precision, engine=engine, threads=threads, notify=tell)
    translator = TranslationPipeline(opened, searcher)
    # A document says its language, which a run of one language need not know.
    is_named = request.format is not None and not (has_choice(opened[0]) or opened[0].config.data.target_languages)
    translator.set_languages(LanguagePair(request.src_lang, None if is_named else request.tgt_lang))
    translator.progress = progress
    translator.segmenter.policy, translator.segmenter.tell = request.split, tell
    # Greedy search needs no normalized scores; they are computed only if they are printed.
    shown = request.scores or request.confidence or request.as_json
    config = translator.configure({"scores": shown, "token_scores": request.token_scores, **request.search})
    src, tgt = opened[0].src_tokenizer, opened[0].tgt_tokenizer  # whose codes do not depend on the direction
    if request.shortlist is not None:
        translator.shortlist = LexiconShortlist(request.shortlist, src, tgt)
    if request.unknowns:
        translator.replacer = UnknownReplacer(request.dictionary, src, tgt)
    if request.suppress is not None:
        translator.suppress(read_lines(request.suppress))
        if translator.suppressed is None:
            tell(f"{request.suppress} has no words: nothing is suppressed")
    if request.glossary is not None:
        from attnkit.text.glossary import Glossary

        translator.set_glossary(Glossary.load(request.glossary), tell)
    if request.rerank_with is not None:
        from attnkit.tasks.translation.reranking import open_reranker

        ways = request.device, request.precision, engine, threads
        translator.reranker = open_reranker(request.rerank_with, request.rerank_weight, *ways, notify=tell)
    if request.confidence and (translator.curve is None or config.sampling or translator.reranker is not None):
        kind = "ensembles have" if len(request.runs) > 1 else "samples have" if config.sampling else "this run has"
        kind = kind if translator.reranker is None else "reranked translations have"
        help = "see 'Confidence' in the guide to translation, or leave out --return-confidence"
        raise UsageError(f"{kind} no confidence", where=str(request.runs[0]), help=help)
    record = request.attention or config.coverage_penalty != 0 or request.unknowns
    for run in translator.runs:
        for warning in run.warnings:
            tell(warning)
        if record and not run.config.model.has_attention:
            raise UsageError(
                "this model has no attention weights",
                where=str(run.path),
                help="remove --return-attention, --replace-unknowns or --coverage-penalty",
            )
    return translator, searcher, translator.job(config, record)


def translate_stream(
    request: TranslateRequest,
    tell: Callable[[str], None],
    progress: Callable[[int], None] = lambda n_lines: None,
    counts: SignCounts | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """Yield numbers of input lines and their output; ``tell`` receives warnings.

    ``progress`` receives the number of lines translated so far, ``counts`` the signs that translations went wrong.

    The first group is empty; it is yielded when everything is loaded and reading starts. A partial window is translated
    as soon as the input pauses, so a pipe or a user never waits for a full window.
    """
    opened = load_translator(request, tell)
    yield 0, []
    yield from translate_source(opened, request, tell, progress, counts)


def load_translator(request: TranslateRequest, tell: Callable[[str], None]) -> tuple[TranslationPipeline, SearchJob]:
    """Open the runs of a request and load their weights."""
    translator, searcher, job = open_translator(request, tell, lambda n_lines: None)
    # What lacks a term is searched again; that search is loaded when it is needed.
    first = replace(job, joins=None)
    searcher.load(first, prefixes=request.prefixes is not None, shortlists=request.shortlist is not None)
    if translator.reranker is not None:
        translator.reranker.load()
    return translator, job


def translate_source(
    opened: tuple[TranslationPipeline, SearchJob],
    request: TranslateRequest,
    tell: Callable[[str], None],
    progress: Callable[[int], None],
    counts: SignCounts | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """Yield what ``translate_stream`` yields, for one source of loaded runs."""
    translator, job = opened
    where = str(request.prefixes)
    windows = read_line_batches(request.source, request.batching.window, request.strict, tell)
    windows = skip_lines(windows, request.skip)
    prefixes = None if request.prefixes is None else islice(read_lines(request.prefixes), request.skip, None)
    n_done = request.skip
    if request.protect:
        yield from _translate_protected(opened, request, windows, tell, progress, counts)
        return
    translator.progress = progress
    for found in translator.translate_windows(windows, job, request.batching, prefixes, where, request.skip):
        translations = list(found)
        if counts is not None:
            for translation in translations:
                n_done += 1
                counts.add(translation.signs, [term.is_used for term in translation.terms], n_done)
        yield len(translations), [line for translation in translations for line in render_lines(translation, request)]
    if prefixes is not None and next(prefixes, None) is not None:
        tell(f"{request.prefixes} has more lines than the input; the extra lines were ignored")


def _translate_protected(
    opened: tuple[TranslationPipeline, SearchJob],
    request: TranslateRequest,
    windows: Iterable[list[str]],
    tell: Callable[[str], None],
    progress: Callable[[int], None],
    counts: SignCounts | None,
) -> Iterator[tuple[int, list[str]]]:
    """Yield what ``translate_source`` yields, of lines with protected parts."""
    from attnkit.formats.documents import parse_line  # imported here: one line from a shell needs none of them
    from attnkit.formats.html import html_faults
    from attnkit.formats.passages import Passage, render
    from attnkit.tasks.translation.documents import DocumentTranslator

    translator, job = opened
    counts = counts or SignCounts()
    documents = DocumentTranslator(translator, job.config, request.batching, DocumentCounts(counts))
    broken: list[int] = []
    n_done = request.skip
    for window in windows:
        pieces = [piece for k, line in enumerate(window, n_done + 1) for piece in (*parse_line(line, k), "\n")]
        broken += [n_done + k for k, line in enumerate(window, 1) if "<" in line and html_faults(line)]
        n_passages = max(1, sum(isinstance(piece, Passage) for piece in pieces))

        def follow(n: int, n_before: int = n_done, n_lines: int = len(window), n_all: int = n_passages) -> None:
            progress(n_before + n_lines * n // n_all)

        progress(n_done)
        translated = documents.translate(pieces, follow)
        if request.as_json:
            yield len(window), list(protected_lines(window, translated, request, n_done))
        else:
            yield len(window), render(translated).split("\n")[:-1]
        n_done += len(window)
        progress(n_done)
    if broken:
        many = "1 line has" if len(broken) == 1 else f"{len(broken):,} lines have"
        place = f"line {broken[0]:,}" if counts.source is None else f"{counts.source}:{broken[0]}"
        tell(f"{many} tags without a partner, kept as they are (first in {place})")


def translate_document(
    opened: tuple[TranslationPipeline, SearchJob],
    request: TranslateRequest,
    source: str,
    progress: Callable[[int, int], None],
    counts: DocumentCounts,
) -> tuple[str, list[str]]:
    """Return a translated document and, for ``as_json``, the JSON of its passages.

    ``source`` is its text, ``progress`` receives the number of passages translated and that of all.

    Raises ``DataError`` if the document is not of its format.
    """
    from attnkit.formats.documents import describe, parse_document, with_language
    from attnkit.formats.passages import Passage, render
    from attnkit.tasks.translation.documents import DocumentTranslator, TranslatedPassage

    assert request.format is not None
    translator, job = opened
    if (language := translator.direction.tgt_lang or request.tgt_lang) is not None:
        source = with_language(source, request.format, language.replace("_", "-"))
    pieces = parse_document(source, request.format, request.source)
    n_passages = sum(isinstance(piece, Passage) for piece in pieces)
    place = "" if counts.signs.source is None else f"{request.source}: "
    counts.notes += [f"{place}{note}" for note in describe(source, request.format)]
    documents = DocumentTranslator(translator, job.config, request.batching, counts)
    text, lines = list[str](), list[str]()
    for piece in documents.translate(pieces, lambda n: progress(n, n_passages)):
        text.append(render([piece]))
        if request.as_json and isinstance(piece, TranslatedPassage):
            for one in piece.described():  # attention is not kept
                lines.append(passage_json({"line": one.line, "passage": len(lines) + 1}, one, request))
    return "".join(text), lines


def protected_lines(
    lines: Iterable[str], pieces: Iterator[Piece], request: TranslateRequest, n_before: int
) -> Iterator[str]:
    """Yield the JSON of lines, given their translated pieces."""
    from attnkit.formats.passages import render
    from attnkit.tasks.translation.documents import describe_passage

    for number, line in enumerate(lines, n_before + 1):
        own = list(takewhile(lambda piece: piece != "\n", pieces))
        sentences = [sentence for piece in own for sentence in getattr(piece, "sentences", ())]
        yield passage_json({"line": number}, describe_passage(number, line, render(own), sentences), request)


def passage_json(place: dict[str, int], one: PassageTranslation, request: TranslateRequest) -> str:
    """Return the JSON of a passage or a protected line, and of its sentences."""
    plain: dict[str, Any] = {"file": None if request.source == STDIN else str(request.source), **place}
    plain |= {"source": one.source, "signs": one.signs, "confidence": one.confidence}
    plain["translations"] = [{"text": one.text, "score": one.score, "log_prob": one.log_prob}]
    plain["sentences"] = [vars(sentence) for sentence in one.sentences]
    if request.glossary is not None:
        plain["terms"] = [term._asdict() for term in one.terms]
    return json.dumps(plain, ensure_ascii=False)


def skip_lines(windows: Iterable[list[Item]], n_lines: int) -> Iterator[list[Item]]:
    """Yield windows of lines, or of pairs, without the first ``n_lines``."""
    for window in windows:
        if n_lines < len(window):
            yield window[n_lines:]
        n_lines = max(0, n_lines - len(window))


def check_request(request: TranslateRequest) -> None:
    """Check options before loading the model; raise ``UsageError`` or ``RunError``."""
    if request.dictionary is not None and not request.unknowns:
        raise UsageError(
            "a dictionary requires --replace-unknowns", where="--dictionary", help="add --replace-unknowns"
        )
    if request.rerank_weight is not None and request.rerank_with is None:
        what = "--rerank-weight requires --rerank-with"
        raise UsageError(what, where="--rerank-weight", help="add --rerank-with and a run of the opposite direction")
    needs_json = {"--return-attention": request.attention, "--return-token-scores": request.token_scores}
    for option in [option for option, is_given in needs_json.items() if is_given and not request.as_json]:
        raise UsageError(f"{option} requires --json", where=option, help="add --json")
    for path in request.runs:
        if path.is_file():
            help = f"pass text with -i: attnkit translate RUN -i {path}"
            if request.source != STDIN and len(request.runs) > 1:  # the shell may have expanded a pattern
                help = f"put several files in quotation marks: -i '{path.parent}/*{path.suffix}' -o FOLDER"
            raise RunError(f"{path} is a file, not a run folder", help=help)


def render_lines(translation: TranslatedLine, request: TranslateRequest) -> list[str]:
    """Return an input line's output: one line per hypothesis, or one JSON object."""
    if request.as_json:
        kept = ["text", "score", "log_prob", *["token_scores"] * request.token_scores]
        kept += ["reverse_score", "reverse_log_prob"] * (request.rerank_with is not None)
        kept += ["tokens", "attention"] * request.attention
        outputs = [{name: getattr(output, name) for name in kept} for output in translation.outputs]
        plain: dict[str, Any] = {"source": translation.source, "signs": translation.signs}
        plain |= {"confidence": translation.confidence, "translations": outputs}
        if request.glossary is not None:
            plain["terms"] = [term._asdict() for term in translation.terms]
        if request.attention:
            plain["source_tokens"] = translation.source_tokens
        return [json.dumps(plain, ensure_ascii=False)]
    texts = [output.text for output in translation.outputs]
    if request.scores:
        both = list(zip(translation.outputs, texts, strict=True))
        if request.rerank_with is not None:
            both = [(output, f"{printed(output.reverse_score)}\t{text}") for output, text in both]
        texts = [f"{output.score:.6f}\t{text}" for output, text in both]
    if request.confidence:
        texts = [f"{printed(translation.confidence)}\t{text}" for text in texts]
    return texts


def printed(number: float | None) -> str:
    """Return a number as lines of text have it; empty for None."""
    return "" if number is None else f"{number:.6f}"
