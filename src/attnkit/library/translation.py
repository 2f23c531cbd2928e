"""Runs of ``train`` for translation behind calls. Compiled loops import no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attnkit.config.arguments import Count, checked
from attnkit.decoding.config import SearchArguments
from attnkit.decoding.stopping import StopFlags
from attnkit.engine.checkpoint_metadata import checkpoint_scores
from attnkit.engine.engine_choice import Engine
from attnkit.engine.model_card import count_parameters
from attnkit.engine.run_summary import RunSummary, describe_model, find_languages
from attnkit.errors import RunError, UsageError
from attnkit.formats.documents import describe, parse_document, parse_line, with_language
from attnkit.formats.passages import render
from attnkit.formats.suffixes import DocumentFormat
from attnkit.kernels.simd.targets import Precision
from attnkit.library.files import as_path, check_lengths, single_lines, warn, windows
from attnkit.library.translations import DocumentTranslation, Translation, as_translation, texts_of
from attnkit.progress.calls import call_progress
from attnkit.progress.console import follow_lines
from attnkit.tasks.translation.directions import USUAL, LanguagePair, needs_languages
from attnkit.tasks.translation.documents import (
    DocumentTranslator,
    PassageTranslation,
    TranslatedPassage,
    describe_passage,
)
from attnkit.tasks.translation.engines import EngineSearch
from attnkit.tasks.translation.ensemble import open_ensemble
from attnkit.tasks.translation.reranking import open_reranker
from attnkit.tasks.translation.score import PairScore, score_pairs
from attnkit.tasks.translation.segmenting import SplitPolicy
from attnkit.tasks.translation.shortlist import LexiconShortlist, UnknownReplacer
from attnkit.tasks.translation.translated_line import TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.text.glossary import Glossary

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
GlossaryTerms = Mapping[str, str | Sequence[str]]


class Translator:
    """A translation model, or an ensemble of several.

    >>> translator = attnkit.Translator.load("run")  # doctest: +SKIP
    >>> [translation.text for translation in translator.translate(["A dog runs."])]  # doctest: +SKIP
    ['Ein Hund rennt.']
    """

    def __init__(self, pipeline: TranslationPipeline, summary: RunSummary, languages: LanguagePair = USUAL) -> None:
        self.summary = summary
        self._pipeline, self._languages = pipeline, languages
        self.src_tokenizer, self.tgt_tokenizer = pipeline.src_tokenizer, pipeline.tgt_tokenizer

    @classmethod
    @checked
    def load(
        cls,
        run: str | Path,
        *runs: str | Path,
        device: str = "auto",
        precision: Precision = "float32",
        engine: Engine = "auto",
        threads: Count | None = None,
        checkpoint: str | None = None,
        adapter: str | Path | None = None,
        split: SplitPolicy = "auto",
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        shortlist: str | Path | None = None,
        replace_unknowns: bool = False,
        dictionary: str | Path | None = None,
        rerank_with: str | Path | None = None,
        rerank_weight: float | None = None,
    ) -> Translator:
        """Load a run, or several as an ensemble.

        Other arguments are those of ``attnkit.load``.

        Args:
            split: whether lines are split into sentences; ``auto``: those much longer than the lines of the training
                text.
            shortlist: token lexicon of ``align``, which restricts translations to its entries.
            replace_unknowns: whether to replace ``<unk>`` by the source word with the most attention.
            dictionary: word lexicon of ``align``, by which such words are translated.
            rerank_with: run of the opposite direction, which ranks the hypotheses of each beam, too.
            rerank_weight: weight of its score; None: 0.5.

        Raises:
            RunError: a run is missing, damaged or of another task, or their vocabularies differ.
            UsageError: the engine or the precision is not available for these runs.
        """
        opened = open_ensemble([Path(path) for path in (run, *runs)], checkpoint, as_path(adapter))
        searcher = EngineSearch(opened, device, precision, engine=engine, threads=threads, notify=warn)
        searcher.load()
        for text in dict.fromkeys(text for one in opened for text in one.warnings):
            warn(text)
        pipeline = TranslationPipeline(opened, searcher)
        pipeline.segmenter.policy, pipeline.segmenter.tell = split, warn
        if dictionary is not None and not replace_unknowns:
            help = "add replace_unknowns=True"
            raise UsageError("a dictionary requires replace_unknowns", where="dictionary", help=help)
        if shortlist is not None:
            pipeline.shortlist = LexiconShortlist(Path(shortlist), opened[0].src_tokenizer, opened[0].tgt_tokenizer)
        if replace_unknowns:
            _check_attention(pipeline, "replace_unknowns")
            pipeline.replacer = UnknownReplacer(as_path(dictionary), pipeline.src_tokenizer, pipeline.tgt_tokenizer)
        if rerank_weight is not None and rerank_with is None:
            raise UsageError("a weight requires rerank_with", where="rerank_weight", help="add rerank_with=RUN")
        if rerank_with is not None:
            path, ways = Path(rerank_with), (device, precision, engine, threads)
            pipeline.reranker = open_reranker(path, rerank_weight, *ways, notify=warn)
            pipeline.reranker.load()
        languages, first = LanguagePair(src_lang, tgt_lang), opened[0]
        if any(languages):
            pipeline.set_languages(languages)
        named = find_languages(first.config.data)
        if first.src_tokenizer.language_codes and not first.config.data.directions:
            named = () if needs_languages(first) and not any(languages) else (pipeline.direction.name,)
        summary = RunSummary(
            path=first.path,
            task="translation",
            languages=named,
            model=describe_model(first.config) + (f", one of {len(opened)}" if len(opened) > 1 else ""),
            checkpoint=first.checkpoint,
            scores=checkpoint_scores(first.files, first.config.metrics),
            n_parameters=sum(count_parameters(one.files) for one in opened),
            vocab_size=first.tgt_tokenizer.vocab_size,
            device=searcher.place,
            precision=precision,
            engine=searcher.chosen,
        )
        return cls(pipeline, summary, languages)

    def __repr__(self) -> str:
        return f"Translator({self.summary})"

    @checked
    def replicate(self) -> Translator:
        """Return a translator of the same weights for another thread.

        Calls of one translator wait for each other; in compiled loops those of its replicas run at the same time.
        """
        own = self._pipeline
        assert isinstance(own.searcher, EngineSearch), "made by load"
        pipeline = TranslationPipeline(own.runs, own.searcher.replicate())
        pipeline.segmenter.policy, pipeline.segmenter.tell = own.segmenter.policy, own.segmenter.tell
        pipeline.shortlist, pipeline.replacer = own.shortlist, own.replacer
        pipeline.reranker = None if own.reranker is None else own.reranker.replicate()
        if any(self._languages):
            pipeline.set_languages(self._languages)
        return Translator(pipeline, self.summary, self._languages)

    @checked
    def set_threads(self, n_threads: int) -> None:
        """Search with so many threads from the next call on."""
        searcher = self._pipeline.searcher
        assert isinstance(searcher, EngineSearch), "made by load"
        searcher.set_threads(n_threads)

    @checked
    def set_stops(self, stops: StopFlags | None) -> None:
        """Let flags end lines of the calls from now on; None: no longer.

        Another thread sets them while a call runs. Lines count from 0 in each call; a document needs a single flag.
        """
        self._pipeline.stops = stops

    @checked
    def translate(
        self,
        lines: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        attention: bool = False,
        suppress: Sequence[str] = (),
        glossary: GlossaryTerms | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        quiet: bool = False,
        on_done: Callable[[int, Translation], None] | None = None,
        **options: Unpack[SearchArguments],
    ) -> list[Translation]:
        """Translate lines; a blank line stays blank.

        Args:
            lines: source lines.
            prefixes: beginnings of the translations, one per line; blank for none.
            attention: whether to record attention weights.
            suppress: words and phrases that are never produced.
            glossary: translations of terms, several forms or one; an empty one keeps the term as it is.
            src_lang: source language of an imported run with language codes; None: that of ``load``.
            tgt_lang: target language of a run with several; None: that of ``load``.
            quiet: whether to show no progress.
            on_done: receives the number of a line, from 0, and its translation soon after it is done, while others are
                searched in compiled loops: in any order, in another thread, not those that end last, and none with
                rerank_with. It must return soon and not translate here; what it raises is raised at the end.
            options: see ``SearchArguments``, e.g. ``beam_size=1``.

        Raises:
            UsageError: an invalid option.
            RunError: attention is asked for, but the model has none.
            DataError: there are not as many prefixes as lines, or a line has a line break.
        """
        texts = list(single_lines(lines))
        if prefixes is not None:
            check_lengths("lines", "prefixes", texts, prefixes)
        self._set(suppress, glossary, LanguagePair(src_lang, tgt_lang))
        done: list[Translation] = []
        with call_progress(quiet) as status:
            follow = follow_lines(status, n_lines=len(texts))
            follow(0)
            with self._reporting(on_done, lambda line: as_translation(line, attention)):
                for translation in self._translate(texts, prefixes, attention, options):
                    done.append(translation)
                    follow(len(done))
        return done

    @contextmanager
    def _reporting(
        self, on_done: Callable[[int, T], None] | None, made_of: Callable[[TranslatedLine], T]
    ) -> Iterator[None]:
        """Hand on what is made of lines, soon after they are done, while the block runs."""
        if on_done is not None:
            self._pipeline.report = lambda number, line: on_done(number, made_of(line))
        try:
            yield
        finally:
            self._pipeline.report = None

    @checked
    def translate_texts(
        self,
        lines: Sequence[str],
        *,
        on_done: Callable[[int, list[str]], None] | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **options: Unpack[SearchArguments],
    ) -> list[list[str]]:
        """Return the texts of translations alone, the best of each line first.

        They are those of ``translate``, without the time that tokens, scores and signs take; the other arguments are as
        there.

        Raises:
            UsageError: an invalid option.
        """
        self._set((), None, LanguagePair(src_lang, tgt_lang))
        config = self._pipeline.configure({"scores": False, **options})
        record = config.coverage_penalty != 0 or self._pipeline.replacer is not None
        with self._reporting(on_done, texts_of):
            return list(map(texts_of, self._pipeline.stream(single_lines(lines), config, record=record)))

    @checked
    def translate_stream(
        self,
        lines: Iterable[str],
        *,
        prefixes: Iterable[str] | None = None,
        attention: bool = False,
        suppress: Sequence[str] = (),
        glossary: GlossaryTerms | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **options: Unpack[SearchArguments],
    ) -> Iterator[Translation]:
        """Yield what ``translate`` returns, in order; read a window of lines ahead."""
        self._set(suppress, glossary, LanguagePair(src_lang, tgt_lang))
        return self._translate(single_lines(lines), prefixes, attention, options)

    def _translate(
        self, lines: Iterable[str], prefixes: Iterable[str] | None, attention: bool, options: SearchArguments
    ) -> Iterator[Translation]:
        config = self._pipeline.configure({**options})
        if attention:
            _check_attention(self._pipeline, "attention")
        record = attention or config.coverage_penalty != 0 or self._pipeline.replacer is not None
        found = self._pipeline.stream(lines, config, prefixes=prefixes, record=record)
        return (as_translation(line, attention) for line in found)

    def _set(self, suppress: Sequence[str], glossary: GlossaryTerms | None, languages: LanguagePair = USUAL) -> None:
        """Set the phrases, terms and languages of the next call; None: those of ``load``."""
        src, tgt = (given or usual for given, usual in zip(languages, self._languages, strict=True))
        self._pipeline.set_languages(LanguagePair(src, tgt))
        self._pipeline.suppress(suppress)
        self._pipeline.set_glossary(Glossary(glossary) if glossary else None, warn)

    @checked
    def translate_document(
        self,
        text: str,
        format: DocumentFormat,
        *,
        suppress: Sequence[str] = (),
        glossary: GlossaryTerms | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **options: Unpack[SearchArguments],
    ) -> DocumentTranslation:
        """Translate a document and keep its markup; ``str`` of the result is its text.

        URLs, placeholders, numbers and code are kept as they are. HTML and XLIFF name the target language, if it is
        known. The other arguments are those of ``translate``.

        Raises:
            DataError: the document is not of its format.
        """
        self._set(suppress, glossary, LanguagePair(src_lang, tgt_lang))
        if (language := self._pipeline.direction.tgt_lang) is not None:
            text = with_language(text, format, language.replace("_", "-"))
        documents = DocumentTranslator(self._pipeline, self._pipeline.configure({**options}))
        pieces = list(documents.translate(parse_document(text, format, Path("document"))))
        passages = [one for piece in pieces if isinstance(piece, TranslatedPassage) for one in piece.described()]
        return DocumentTranslation(render(pieces), passages, describe(text, format))

    @checked
    def translate_protected(
        self,
        lines: Sequence[str],
        *,
        suppress: Sequence[str] = (),
        glossary: GlossaryTerms | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **options: Unpack[SearchArguments],
    ) -> list[PassageTranslation]:
        """Translate lines whose tags, URLs, placeholders, code and numbers are kept.

        It is ``translate --protect``; the arguments are those of ``translate``.
        """
        self._set(suppress, glossary, LanguagePair(src_lang, tgt_lang))
        documents = DocumentTranslator(self._pipeline, self._pipeline.configure({**options}))
        texts = list(single_lines(lines))
        pieces = chain.from_iterable([*parse_line(line, number), "\n"] for number, line in enumerate(texts, 1))
        translated = documents.translate(pieces)
        found = []
        for number, line in enumerate(texts, 1):
            own = list(takewhile(lambda piece: piece != "\n", translated))
            sentences = [sentence for piece in own for sentence in getattr(piece, "sentences", ())]
            found.append(describe_passage(number, line, render(own), sentences))
        return found

    @checked
    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> list[PairScore]:
        """Return the log-probability of each target given its source, by the first run.

        The languages are those of ``translate``.

        Raises:
            DataError: there are not as many targets as sources, or a line is too long for the model.
            UsageError: an unknown language.
        """
        check_lengths("sources", "targets", sources, targets)
        return list(self.score_stream(sources, targets, src_lang=src_lang, tgt_lang=tgt_lang))

    @checked
    def score_stream(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> Iterator[PairScore]:
        """Yield what ``score`` returns, pair by pair; read a window of pairs ahead."""
        searcher = self._pipeline.searcher
        assert isinstance(searcher, EngineSearch), "made by load"
        scorer, device = searcher.load_scorer()
        self._set((), None, LanguagePair(src_lang, tgt_lang))
        sides = windows(single_lines(sources), single_lines(targets))
        pairs = (pair for both in sides for pair in zip(*both, strict=True))
        run, direction, stops = self._pipeline.runs[0], self._pipeline.direction, self._pipeline.stops
        return score_pairs(run, scorer, device, pairs, direction=direction, stops=stops)


def _check_attention(pipeline: TranslationPipeline, name: str) -> None:
    """Raise ``RunError`` if a run has no attention, which an argument needs."""
    for run in pipeline.runs:
        if not run.config.model.has_attention:
            raise RunError("this model has no attention weights", where=str(run.path), help=f"leave out {name}")
