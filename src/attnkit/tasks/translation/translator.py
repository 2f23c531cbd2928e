"""Translation of lines: split, encode, batch, search, decode, restore the order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnkit.config import validate
from attnkit.data.loader import Batching, make_batches
from attnkit.decoding.config import SearchConfig, check_search_options
from attnkit.engine.engine_choice import Engine
from attnkit.engine.search_backend import (
    Found,
    LineSegment,
    SearchBackend,
    SearchJob,
    exclude_padding_ids,
    search_parts,
)
from attnkit.errors import DataError, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.protocols import UNK_ID
from attnkit.quality.profile import TrainingProfile
from attnkit.tasks.translation.directions import OPTIONS, USUAL, LanguagePair, find_direction, has_choice
from attnkit.tasks.translation.engines import EngineSearch
from attnkit.tasks.translation.ensemble import open_ensemble
from attnkit.tasks.translation.inline_text import InlineText
from attnkit.tasks.translation.loading import LoadedRun, OpenedRun
from attnkit.tasks.translation.segmenting import Segmenter, join_segments
from attnkit.tasks.translation.shortlist import LexiconShortlist, UnknownReplacer
from attnkit.tasks.translation.signs import NO_PROFILE, FindSigns, SourceSigns
from attnkit.tasks.translation.translated_line import Output, TranslatedLine
from attnkit.text.inline_symbols import PLAIN, MaskedText
from attnkit.text.lines import is_blank, line_batches
from attnkit.text.tags import TranslationDirection
from attnkit.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from attnkit.decoding.stopping import StopFlags
    from attnkit.decoding.suppression import SuppressedPhrases
    from attnkit.tasks.translation.reranking import Reranker
    from attnkit.tasks.translation.terminology import Terminology, TermUse
    from attnkit.text.glossary import Glossary


def load_translator(
    runs: Sequence[Path],
    *,
    device: str = "auto",
    precision: Precision = "float32",
    engine: Engine = "auto",
    threads: int | None = None,
    checkpoint: str | None = None,
    adapter: Path | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> TranslationPipeline:
    """Load one run or an ensemble; ``engine`` selects compiled loops or torch.

    Every run must have the named ``checkpoint`` (e.g. ``last``, ``averaged`` or ``step-400``); None selects the best.
    ``adapter`` is the run of an adapter of the only run. ``notify`` receives messages about the choice of engine.

    Raises:
        RunError: a run is missing or damaged, or the runs have different vocabularies.
        UsageError: the engine or the precision is not available for these runs.
    """
    opened = open_ensemble(runs, checkpoint, adapter)
    searcher = EngineSearch(opened, device, precision, engine=engine, threads=threads, notify=notify)
    searcher.load()
    return TranslationPipeline(opened, searcher)


class TranslationPipeline:
    """Translates lines, ``num_hypotheses`` outputs per line; blank lines stay blank."""

    def __init__(self, runs: Sequence[OpenedRun], searcher: SearchBackend) -> None:
        self.runs = list(runs)
        self.searcher = searcher
        self.src_tokenizer: Tokenizer = runs[0].src_tokenizer
        self.tgt_tokenizer: Tokenizer = runs[0].tgt_tokenizer
        self.search: SearchConfig = exclude_padding_ids(runs[0].config.decoding, self.tgt_tokenizer)
        limits = [n for run in runs if (n := run.config.model.max_positions) is not None]
        self.longest: int | None = min(limits, default=None)
        """Maximum number of positions, EOS included, in all models; None: unlimited."""
        self.max_source = min(run.config.max_source for run in runs)  #: source tokens of a segment, its tag included
        self.inline = InlineText(runs[0].config.data, self.tgt_tokenizer)
        """Placeholders and annotations that the runs were trained with."""
        self.segmenter = Segmenter(self.src_tokenizer, self.max_source, runs[0].source_statistics)
        """Splits lines into sentences, as its ``policy`` says, and to its ``max_length``."""
        self.profile: TrainingProfile = runs[0].training_profile or NO_PROFILE
        """What is usual of the training pairs of the first run."""
        self.curve = runs[0].confidence if len(runs) == 1 else None  #: confidence by log-probability; None: unknown
        self.shortlist: LexiconShortlist | None = None  #: restricts the target tokens of each sentence, if set
        self.suppressed: SuppressedPhrases | None = None  #: phrases that are never produced, if set by ``suppress``
        self.stops: StopFlags | None = None  #: flags of the lines that are to end, if set
        self.terminology: Terminology | None = None  #: terms that translations must have, if set; not with sampling
        self.replacer: UnknownReplacer | None = None  #: of unknown words; requires recorded attention (``record``)
        self.reranker: Reranker | None = None  #: ranks hypotheses by a reversed run, if set; requires a beam
        self._direction: TranslationDirection | None = None
        self._languages: LanguagePair | None = None  # of the direction
        self._configured: tuple[object, SearchConfig] | None = None  # options of the last call, with its settings
        if not has_choice(runs[0]):
            self.set_languages(USUAL)
        self.progress: Callable[[int], None] = lambda n_lines: None  #: receives the number of lines done so far
        self.report: Callable[[int, TranslatedLine], None] | None = None
        """Receives the number of a line and its translation, soon after it is done; see ``LineReports``."""

    def translate(self, lines: Sequence[str], **options: object) -> list[str]:
        """Translate lines; ``options`` are fields of ``SearchConfig`` (``beam_size=5``).

        Returns:
            One text per line, or ``num_hypotheses`` consecutive texts per line.
        """
        found = self.stream(lines, self.configure({"scores": False, **options}))
        return [output.text for translation in found for output in translation.outputs]

    def suppress(self, phrases: Iterable[str]) -> None:
        """Never produce these words and phrases, as words of their own and in this case.

        They replace those of an earlier call; without any, everything is allowed again.
        """
        from attnkit.decoding.suppression import SuppressedPhrases
        from attnkit.text.word_boundaries import joins

        tokenizer = self.tgt_tokenizer
        given = [text for phrase in phrases if (text := tokenizer.normalize(phrase).strip())]
        self.suppressed = None
        if given:
            tokens = [tokenizer.bytes_of(id) for id in range(tokenizer.vocab_size)]
            self.suppressed = SuppressedPhrases(given, tokens, joins)

    def set_languages(self, languages: LanguagePair, options: tuple[str, str] = OPTIONS) -> None:
        """Translate between languages of runs with several; None: the only or usual one.

        Raises ``UsageError``, which names one of ``options``, if the runs do not know a language, or None leaves a
        choice.
        """
        if languages == self._languages:
            return
        direction = find_direction(self.runs[0], languages, options)
        self._languages, self._direction = languages, direction
        self.src_tokenizer, self.tgt_tokenizer = direction.src_tokenizer, direction.tgt_tokenizer
        self.segmenter.tokenizer = direction.src_tokenizer
        self.segmenter.max_length = self.max_source - len(direction.tag)

    @property
    def direction(self) -> TranslationDirection:
        """Direction that is set; raise ``UsageError`` for none of several."""
        if self._direction is None:
            self.set_languages(USUAL)
        assert self._direction is not None
        return self._direction

    def set_glossary(self, glossary: Glossary | None, tell: Callable[[str], None]) -> None:
        """Require the terms of a glossary, or none; ``tell`` receives which cannot be."""
        if glossary is None:
            self.terminology = None
            return
        from attnkit.tasks.translation.terminology import Terminology

        self.terminology = Terminology(glossary, self.tgt_tokenizer, self.longest, inflects=self.inline.has_annotations)
        for message in self.terminology.messages():
            tell(message)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Return log-probabilities (nats) of targets given sources, by the first run only."""
        from attnkit.tasks.translation.score import score_pairs

        run = self.runs[0]
        if isinstance(self.searcher, EngineSearch):
            scorer, device = self.searcher.load_scorer()
        else:
            assert isinstance(run, LoadedRun), "other backends take loaded runs"
            scorer, device = run.model, run.device
        found = score_pairs(run, scorer, device, zip(sources, targets, strict=True), direction=self.direction)
        return [score.log_prob for score in found]

    def configure(self, options: dict[str, object]) -> SearchConfig:
        """Return the search settings of the run, overridden by ``options``.

        Raises:
            UsageError: an unknown setting, an invalid value, settings that exclude each other, or a length that exceeds
                the model's positions.
        """
        key = [(name, type(value), value) for name, value in options.items()]
        known = self._configured  # once, as another thread may replace it
        if known is not None and known[0] == key:
            return known[1]
        check_search_options(options)
        config = validate(SearchConfig, {**self.search.model_dump(mode="json"), **options})
        if not config.sampling and "seed" in options:
            raise UsageError("a seed needs sampling", where="--seed", help="add --sampling or leave out --seed")
        lengths = {"max_length": config.limit(self.max_source + 1), "min_length": config.min_length + 1}
        name = max(lengths, key=lengths.__getitem__)
        if self.longest is not None and lengths[name] > self.longest:
            what = f"{name} needs {lengths[name]:,} positions, EOS included; the model has {self.longest:,}"
            raise UsageError(what, where=name, help=f"use at most {self.longest - (name == 'min_length')}")
        self._configured = key, config
        return config

    def stream(
        self,
        lines: Iterable[str],
        config: SearchConfig | None = None,
        batching: Batching | None = None,
        *,
        prefixes: Iterable[str] | None = None,
        record: bool = False,
    ) -> Iterator[TranslatedLine]:
        """Yield one ``TranslatedLine`` per line, in order; read a window of lines ahead.

        What is set later, such as other languages or terms, does not change the lines of this call.
        """
        batching = batching or Batching()
        job = self.job(config or self.search, record or self.replacer is not None)
        windows = line_batches(lines, batching.window, None)
        return chain.from_iterable(self._snapshot().translate_windows(windows, job, batching, prefixes))

    def _snapshot(self) -> TranslationPipeline:
        """Return a pipeline of the same runs and settings, which stay as they are."""
        kept = copy.copy(self)
        kept.segmenter = copy.copy(self.segmenter)
        return kept

    def job(self, config: SearchConfig, record: bool = False) -> SearchJob:
        """Return a search with the suppressed phrases and the terms that are set.

        Raises ``UsageError`` if terms are set, but the search samples, or a reranker that does not fit.
        """
        if self.terminology is not None and config.sampling:
            raise UsageError("a glossary needs a beam search", where="sampling", help="leave out sampling")
        needs_terms = self.terminology is not None or self.inline.has_symbols
        joins = self._joins if needs_terms and not config.sampling else None
        rerank = None if self.reranker is None else self.reranker.prepare(self, config, self._languages or USUAL)
        n_given = len(self.tgt_tokenizer.code_ids)
        return SearchJob(config, record, self.suppressed, n_given, joins, self.stops, rerank=rerank)

    @cached_property
    def _joins(self) -> NDArray[np.bool_]:
        """Return (V,), True for tokens that continue a word."""
        from attnkit.tasks.translation.terminology import joining_tokens

        return joining_tokens(self.tgt_tokenizer)

    def translate_windows(
        self,
        windows: Iterable[list[str]],
        job: SearchJob,
        batching: Batching,
        prefixes: Iterable[str] | None = None,
        where: str = "prefixes",
        first: int = 0,
    ) -> Iterator[Iterator[TranslatedLine]]:
        """Yield an iterator over the translations of each window of lines.

        ``prefixes`` has one target prefix per line, blank for no prefix; ``where`` names their source in errors.
        ``first`` is the number of the first line, from 0.

        Raises:
            DataError: there are fewer prefixes than lines, or a prefix exceeds the model's positions.
        """
        remaining = None if prefixes is None else iter(prefixes)
        offset = first
        for window in windows:
            given = None if remaining is None else list(islice(remaining, len(window)))
            if given is not None and len(given) < len(window):
                raise DataError(
                    f"found only {offset + len(given)} target prefixes, fewer than source lines",
                    where=where,
                    help="give one line for each source line; a blank line means no prefix",
                )
            yield self._translate_window(window, self.segment(window, given, offset), job, batching, offset)
            offset += len(window)

    def _translate_window(
        self, lines: list[str], parts: list[list[LineSegment]], job: SearchJob, batching: Batching, n_before: int
    ) -> Iterator[TranslatedLine]:
        """Translate a window of lines, given their segments from ``segment``."""
        flat = [part for members in parts for part in members]
        if job.joins is None:  # a search that samples requires nothing
            flat, with_terms = [self.inline.restrict(part) for part in flat], []
        else:
            # A model with symbols may write one that the source lacks, in any line.
            has_all = self.inline.has_symbols
            with_terms = [i for i, part in enumerate(flat) if has_all or any(term.forms for term in part.required)]
        n_free, n_parts = len(flat) - len(with_terms), max(1, len(flat))

        def search(segments: list[LineSegment], job: SearchJob, n_before_these: int, n_counted: int) -> Found:
            def progress(n: int) -> None:
                n_done = n_before_these + n_counted * n // max(1, len(segments))
                self.progress(n_before + len(lines) * n_done // n_parts)

            batches = make_batches([len(part.ids) for part in segments], batching)
            return search_parts(self.searcher, segments, batches, job, progress)

        signs = SourceSigns(lines, self.profile, self.src_tokenizer.normalize)

        def join(i: int, members: list[LineSegment], found: Found) -> TranslatedLine:
            return self.join(lines[i], members, found, job.config, partial(signs.of, i))

        first = replace(job, joins=None)
        if self.report is not None and not with_terms:
            from attnkit.tasks.translation.line_reports import LineReports

            first = replace(first, report=LineReports(flat, n_before, join, self.report).add)
        results = search(flat, first, 0, n_free)
        if with_terms:
            from attnkit.tasks.translation.second_search import SecondSearch

            again = SecondSearch(self, flat, results)
            again.run(with_terms, search, job, n_free)
        remaining = iter(flat)
        parts = [[next(remaining) for _ in members] for members in parts]
        found = iter(results)
        for i, members in enumerate(parts):
            yield join(i, members, [next(found) for _ in members])

    def segment(self, lines: list[str], prefixes: list[str] | None, offset: int) -> list[list[LineSegment]]:
        """Encode lines as lists of segments; ``offset`` is the number of the first line."""
        masked = [PLAIN if is_blank(line) else self.mask(line) for line in lines]
        lines = [one.text for one in masked]
        if prefixes is not None:
            prefixes = [one.mask_other(text) for one, text in zip(masked, prefixes, strict=True)]
        direction = self.direction
        encoded, code, tag = direction.src_tokenizer.encode(lines), direction.code, [*direction.tag]
        given = [code for _ in lines]
        if prefixes is not None:  # a blank line means no prefix; its spaces are not forced
            forced = direction.tgt_tokenizer.encode(prefixes)
            given = [code if is_blank(text) else ids for text, ids in zip(prefixes, forced, strict=True)]
        parts: list[list[LineSegment]] = []
        for number, (line, ids, prefix) in enumerate(zip(masked, encoded, given, strict=True), offset):
            if self.longest is not None and len(prefix) >= self.longest:
                raise DataError(
                    f"target prefix {number + 1:,} has {len(prefix):,} tokens, more than the model allows",
                    help=f"give at most {self.longest - 1} tokens",
                )
            parts.append([])
            for k, piece in enumerate(self.segmenter.split(line.text, ids, number + 1)):
                allowed = None
                if self.shortlist is not None:
                    allowed = self.shortlist.of(piece.ids, self.inline.own_ids(piece.text))
                begun = code if k else prefix
                needed = self.inline.required(piece.text)
                if self.terminology is not None:
                    needed += self.terminology.required(piece.text, len(begun))
                settings = begun, allowed, piece.text, piece.before, needed, line
                parts[-1].append(LineSegment(number, k, tag + piece.ids, *settings))
        return parts

    def mask(self, line: str) -> MaskedText:
        """Return a line as the model reads it; terms of the glossary stay."""
        if self.terminology is None or not self.inline.has_symbols:
            return self.inline.mask(line)
        return self.inline.mask(line, [(term.begin, term.end) for term in self.terminology.glossary.find(line)])

    def join(
        self, line: str, parts: Sequence[LineSegment], found: Found, config: SearchConfig, signs: FindSigns = list
    ) -> TranslatedLine:
        """Join the segments of a line; hypothesis k joins hypothesis k of each segment."""
        masked = (parts[0].masked if parts else None) or PLAIN
        outputs = []
        for rank in range(config.num_hypotheses):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found]
            if self.replacer is None or all(UNK_ID not in hypothesis.ids for hypothesis in chosen):
                texts = self.tgt_tokenizer.decode([hypothesis.ids for hypothesis in chosen])
            else:
                texts = []
                for part, hypothesis in zip(parts, chosen, strict=True):
                    assert hypothesis.attention is not None, "replacing unknown words requires recorded attention"
                    weights = hypothesis.attention[:, len(self.direction.tag) :]  # the text of a part has no tag
                    texts.append(self.replacer.text(hypothesis.ids, weights, part.text))
            outputs.append(
                Output(
                    text=masked.restore(join_segments(texts, [part.before for part in parts]).replace("\n", " ")),
                    score=sum(hypothesis.score for hypothesis in chosen),
                    log_prob=sum(hypothesis.log_prob for hypothesis in chosen),
                    ids=[hypothesis.ids for hypothesis in chosen],
                    finished=all(hypothesis.finished for hypothesis in chosen),
                    attention=[h.attention.tolist() for h in chosen if h.attention is not None] or None,
                    tokenizer=self.tgt_tokenizer,
                    log_probs=[h.token_scores or [] for h in chosen] if config.token_scores else None,
                    reverse=[hypothesis.reverse for hypothesis in chosen],
                )
            )
        is_cut = any(part.before is None for part in parts)
        terms: tuple[TermUse, ...] = ()
        if self.terminology is not None:
            needed = [term for part in parts for term in part.required if term.texts]  # without placeholders
            terms = tuple(self.terminology.uses(needed, outputs[0].text))
        ids, read = [part.ids for part in parts], [part.text for part in parts]
        usual = self.profile, None if config.sampling or self.reranker is not None else self.curve
        return TranslatedLine(line, ids, outputs, self.src_tokenizer, is_cut, signs, *usual, terms, masked, read)
