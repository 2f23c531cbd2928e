"""Runs of ``train`` for translation behind calls. Compiled loops import no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.config.arguments import Count, checked
from attnkit.decoding.config import SearchArguments
from attnkit.decoding.stopping import StopFlags
from attnkit.engine.checkpoint_metadata import checkpoint_scores
from attnkit.engine.engine_choice import Engine
from attnkit.engine.model_card import count_parameters
from attnkit.engine.run_summary import RunSummary, describe_model, find_languages
from attnkit.errors import RunError
from attnkit.formats.documents import describe, parse_document, with_language
from attnkit.formats.passages import render
from attnkit.formats.suffixes import DocumentFormat
from attnkit.io.plain_data import PlainResult
from attnkit.kernels.simd.targets import Precision
from attnkit.library.attention import TranslationAttention, translation_attention
from attnkit.library.files import check_lengths, single_lines, warn, windows
from attnkit.progress.calls import call_progress
from attnkit.progress.console import follow_lines
from attnkit.tasks.translation.documents import DocumentTranslator, PassageTranslation, TranslatedPassage
from attnkit.tasks.translation.engines import EngineSearch
from attnkit.tasks.translation.ensemble import open_ensemble
from attnkit.tasks.translation.score import PairScore, score_pairs
from attnkit.tasks.translation.segmenting import SplitPolicy
from attnkit.tasks.translation.signs import Sign, in_order
from attnkit.tasks.translation.terminology import TermUse
from attnkit.tasks.translation.translated_line import TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.text.glossary import Glossary

if TYPE_CHECKING:
    from typing_extensions import Unpack

GlossaryTerms = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class Hypothesized(PlainResult):
    """One translation of a line among several."""

    text: str
    score: float  #: log_prob / length**length_penalty, plus any coverage penalty; summed over sentences
    log_prob: float  #: natural log-probability, summed over sentences
    tokens: list[str]
    token_scores: list[tuple[str, float]] | None
    """Tokens and their log-probabilities, with the end symbol of each sentence; None unless asked for."""


@dataclass(frozen=True)
class Translation:
    """The best translation of a line, and its alternatives."""

    source: str
    text: str
    score: float  #: log_prob / length**length_penalty, plus any coverage penalty; summed over sentences
    log_prob: float  #: natural log-probability, summed over sentences
    tokens: list[str]
    token_scores: list[tuple[str, float]] | None
    """Tokens and their log-probabilities, with the end symbol of each sentence; None unless asked for."""
    source_tokens: list[str]
    signs: list[Sign]  #: signs that the translation went wrong, or that the line is unlike the training text
    confidence: float | None
    """Probability that the translation is acceptable (sentence chrF of at least 60); None if the run cannot tell."""
    terms: list[TermUse]  #: terms of the glossary in the line, and whether the translation has them
    alternatives: list[Hypothesized]  #: the other ``num_hypotheses - 1`` translations, best first
    attention: TranslationAttention | None = None
    """Of each sentence: weights (target tokens, source tokens and the end symbol); None unless recorded."""

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Return the translation as plain data, without what was not asked for."""
        without = replace(self, attention=None)  # asdict would copy all weights
        plain = {name: value for name, value in asdict(without).items() if value is not None}
        if self.attention is not None:
            plain["attention"] = self.attention.weights
        return {**plain, "terms": [term._asdict() for term in self.terms]}


@dataclass(frozen=True)
class DocumentTranslation(PlainResult):
    """A translated document, and what happened to its passages."""

    text: str
    passages: list[PassageTranslation]
    """Paragraphs, headings, cells and the like, each with its sentences, scores and signs."""
    notes: list[str]  #: what a reader should know, e.g. tags without a partner

    def __str__(self) -> str:
        return self.text

    @property
    def signs(self) -> list[Sign]:
        """Signs of all passages, each once."""
        return in_order(sign for passage in self.passages for sign in passage.signs)


class Translator:
    """A translation model, or an ensemble of several.

    >>> translator = attnkit.Translator.load("run")  # doctest: +SKIP
    >>> [translation.text for translation in translator.translate(["A dog runs."])]  # doctest: +SKIP
    ['Ein Hund rennt.']
    """

    def __init__(self, pipeline: TranslationPipeline, summary: RunSummary, tgt_lang: str | None = None) -> None:
        self.summary = summary
        self._pipeline, self._tgt_lang = pipeline, tgt_lang
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
        split: SplitPolicy = "auto",
        tgt_lang: str | None = None,
    ) -> Translator:
        """Load a run, or several as an ensemble; arguments are those of ``attnkit.load``.

        ``split`` says whether lines are split into sentences: ``auto`` splits those that are much longer than the lines
        of the training text.

        Raises:
            RunError: a run is missing, damaged or of another task, or their vocabularies differ.
            UsageError: the engine or the precision is not available for these runs.
        """
        opened = open_ensemble([Path(path) for path in (run, *runs)], checkpoint)
        searcher = EngineSearch(opened, device, precision, engine=engine, threads=threads, notify=warn)
        searcher.load()
        for text in dict.fromkeys(text for one in opened for text in one.warnings):
            warn(text)
        pipeline = TranslationPipeline(opened, searcher)
        pipeline.segmenter.policy, pipeline.segmenter.tell = split, warn
        if tgt_lang is not None:
            pipeline.set_target_language(tgt_lang)
        first = opened[0]
        summary = RunSummary(
            path=first.path,
            task="translation",
            languages=find_languages(first.config.data),
            model=describe_model(first.config) + (f", one of {len(opened)}" if len(opened) > 1 else ""),
            checkpoint=first.checkpoint,
            scores=checkpoint_scores(first.files, first.config.metrics),
            n_parameters=sum(count_parameters(one.files) for one in opened),
            vocab_size=first.tgt_tokenizer.vocab_size,
            device=searcher.place,
            precision=precision,
            engine=searcher.chosen,
        )
        return cls(pipeline, summary, tgt_lang)

    def __repr__(self) -> str:
        return f"Translator({self.summary})"

    @checked
    def replicate(self) -> Translator:
        """Return a translator of the same weights for another thread.

        Calls of one translator wait for each other; in compiled loops those of its replicas run at the same time.
        """
        searcher = self._pipeline.searcher
        assert isinstance(searcher, EngineSearch), "made by load"
        pipeline = TranslationPipeline(self._pipeline.runs, searcher.replicate())
        pipeline.segmenter.policy, pipeline.segmenter.tell = (
            self._pipeline.segmenter.policy,
            self._pipeline.segmenter.tell,
        )
        if self._tgt_lang is not None:
            pipeline.set_target_language(self._tgt_lang)
        return Translator(pipeline, self.summary, self._tgt_lang)

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
        tgt_lang: str | None = None,
        quiet: bool = False,
        **options: Unpack[SearchArguments],
    ) -> list[Translation]:
        """Translate lines; a blank line stays blank.

        Args:
            lines: source lines.
            prefixes: beginnings of the translations, one per line; blank for none.
            attention: whether to record attention weights.
            suppress: words and phrases that are never produced.
            glossary: translations of terms, several forms or one; an empty one keeps the term as it is.
            tgt_lang: target language of a run with several; None: that of ``load``.
            quiet: whether to show no progress.
            options: see ``SearchArguments``, e.g. ``beam_size=1``.

        Raises:
            UsageError: an invalid option.
            RunError: attention is asked for, but the model has none.
            DataError: there are not as many prefixes as lines, or a line has a line break.
        """
        texts = list(single_lines(lines))
        if prefixes is not None:
            check_lengths("lines", "prefixes", texts, prefixes)
        self._set(suppress, glossary, tgt_lang)
        done: list[Translation] = []
        with call_progress(quiet) as status:
            follow = follow_lines(status, n_lines=len(texts))
            follow(0)
            for translation in self._translate(texts, prefixes, attention, options):
                done.append(translation)
                follow(len(done))
        return done

    @checked
    def translate_texts(self, lines: Sequence[str], **options: Unpack[SearchArguments]) -> list[list[str]]:
        """Return the texts of translations alone, the best of each line first.

        They are those of ``translate``, without the time that tokens, scores and signs take.

        Raises:
            UsageError: an invalid option.
        """
        self._set((), None)
        config = self._pipeline.configure({"scores": False, **options})
        return [[one.text for one in line.outputs] for line in self._pipeline.stream(single_lines(lines), config)]

    @checked
    def translate_stream(
        self,
        lines: Iterable[str],
        *,
        prefixes: Iterable[str] | None = None,
        attention: bool = False,
        suppress: Sequence[str] = (),
        glossary: GlossaryTerms | None = None,
        tgt_lang: str | None = None,
        **options: Unpack[SearchArguments],
    ) -> Iterator[Translation]:
        """Yield what ``translate`` returns, in order; read a window of lines ahead."""
        self._set(suppress, glossary, tgt_lang)
        return self._translate(single_lines(lines), prefixes, attention, options)

    def _translate(
        self, lines: Iterable[str], prefixes: Iterable[str] | None, attention: bool, options: SearchArguments
    ) -> Iterator[Translation]:
        config = self._pipeline.configure({**options})
        run = self._pipeline.runs[0]
        if attention and not run.config.model.has_attention:
            raise RunError("this model has no attention weights", where=str(run.path), help="leave out attention")
        record = attention or config.coverage_penalty != 0
        found = self._pipeline.stream(lines, config, prefixes=prefixes, record=record)
        return (as_translation(line, attention) for line in found)

    def _set(self, suppress: Sequence[str], glossary: GlossaryTerms | None, tgt_lang: str | None = None) -> None:
        """Set the phrases, terms and language of the next call."""
        self._pipeline.set_target_language(tgt_lang or self._tgt_lang)
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
        tgt_lang: str | None = None,
        **options: Unpack[SearchArguments],
    ) -> DocumentTranslation:
        """Translate a document and keep its markup; ``str`` of the result is its text.

        URLs, placeholders, numbers and code are kept as they are. HTML and XLIFF name the target language, if it is
        known. The other arguments are those of ``translate``.

        Raises:
            DataError: the document is not of its format.
        """
        self._set(suppress, glossary, tgt_lang)
        known = self._pipeline.runs[0].config.data.target_languages
        if (language := tgt_lang or self._tgt_lang or (known[0] if len(known) == 1 else None)) is not None:
            text = with_language(text, format, language.replace("_", "-"))
        documents = DocumentTranslator(self._pipeline, self._pipeline.configure({**options}))
        pieces = list(documents.translate(parse_document(text, format, Path("document"))))
        passages = [one for piece in pieces if isinstance(piece, TranslatedPassage) for one in piece.described()]
        return DocumentTranslation(render(pieces), passages, describe(text, format))

    @checked
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        """Return the log-probability of each target given its source, by the first run.

        Raises:
            DataError: there are not as many targets as sources, or a line is too long for the model.
        """
        check_lengths("sources", "targets", sources, targets)
        return list(self.score_stream(sources, targets))

    @checked
    def score_stream(self, sources: Iterable[str], targets: Iterable[str]) -> Iterator[PairScore]:
        """Yield what ``score`` returns, pair by pair; read a window of pairs ahead."""
        searcher = self._pipeline.searcher
        assert isinstance(searcher, EngineSearch), "made by load"
        scorer, device = searcher.load_scorer()
        self._set((), None)
        sides = windows(single_lines(sources), single_lines(targets))
        pairs = (pair for both in sides for pair in zip(*both, strict=True))
        run, tag, stops = self._pipeline.runs[0], self._pipeline.tag, self._pipeline.stops
        return score_pairs(run, scorer, device, pairs, tag=tag, stops=stops)


def _attention(line: TranslatedLine, source_tokens: list[list[str]]) -> TranslationAttention:
    weights = line.outputs[0].attention or []
    return translation_attention(weights, line.outputs[0].tokens[: len(weights)], source_tokens[: len(weights)])


def as_translation(line: TranslatedLine, attention: bool) -> Translation:
    """Return a translated line as the library shows it."""
    source_tokens = line.source_tokens  # decoded at each access
    best, *others = (
        Hypothesized(
            text=one.text,
            score=one.score,
            log_prob=one.log_prob,
            tokens=[token for part in one.tokens for token in part],
            token_scores=None if one.token_scores is None else [pair for part in one.token_scores for pair in part],
        )
        for one in line.outputs
    )
    return Translation(
        source=line.source,
        **vars(best),
        source_tokens=[token for part in source_tokens for token in part],
        signs=line.signs,
        confidence=line.confidence,
        terms=list(line.terms),
        alternatives=others,
        attention=_attention(line, source_tokens) if attention else None,
    )
