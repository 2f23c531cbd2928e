"""Training pairs that models write: back-translation and distillation.

Back-translation (Sennrich et al. 2016, Improving Neural Machine Translation Models with Monolingual Data) translates
target text into the source language; the translation becomes the source of a pair. Distillation (Kim and Rush 2016,
Sequence-Level Knowledge Distillation) keeps the source and takes a teacher's translation as the target. Lines are read
in windows; after each the pairs are durable, so a job that is killed resumes after its last whole window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.loader import Batching
from attnkit.decoding.config import SearchConfig
from attnkit.engine.engine_choice import Engine
from attnkit.errors import DataError, UsageError
from attnkit.io.job_folder import check_not_inside, is_finished
from attnkit.kernels.simd.targets import Precision
from attnkit.metrics.bleu import build_metric, score_sentences
from attnkit.tasks.translation.directions import OPTIONS, LanguagePair, check_languages_used, needed, share_languages
from attnkit.tasks.translation.engines import EngineSearch
from attnkit.tasks.translation.ensemble import open_ensemble
from attnkit.tasks.translation.loading import OpenedRun
from attnkit.tasks.translation.score import score_pairs
from attnkit.tasks.translation.segmenting import SplitPolicy
from attnkit.tasks.translation.signs import Sign
from attnkit.tasks.translation.stream import TranslateRequest, check_request, skip_lines
from attnkit.tasks.translation.synthetic_config import SyntheticConfig
from attnkit.tasks.translation.synthetic_output import SyntheticPair, SyntheticReport, open_synthetic_output
from attnkit.tasks.translation.translated_line import Output, TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.text.lines import check_not_streams, is_blank, line_batches, read_lines
from attnkit.text.parallel import mismatch, read_parallel
from attnkit.text.sources import source_files, source_stats
from attnkit.text.tags import with_tag

FAULTS: tuple[Sign, ...] = ("cut", "repeated", "copied", "empty", "short", "long")
"""Signs of trouble for which a pair is dropped."""
Line = tuple[str, str | None]  #: text to translate, and its reference if there is one


@dataclass(frozen=True)
class SyntheticRequest:
    """Files, models and settings of a job."""

    run: Path
    text: Path  #: lines to translate
    output: Path  #: folder to write
    config: SyntheticConfig = field(default_factory=SyntheticConfig)
    search: dict[str, Any] = field(default_factory=dict)  #: fields of ``SearchConfig`` that override the run's own
    is_back: bool = False  #: translations are the sources of the pairs; False: their targets
    references: Path | None = None  #: line n translates line n of ``text``; the nearest hypothesis to it is kept
    forward: Path | None = None  #: run of the other direction, for filters
    tgt_lang: str | None = None  #: language that ``run`` translates into, if it has several
    text_lang: str | None = None  #: language of ``text``, into which ``forward`` translates, if it has several
    lang_options: tuple[str, str] = OPTIONS  #: options that give ``text_lang`` and ``tgt_lang``
    device: str = "auto"
    precision: Precision = "float32"
    engine: Engine = "auto"
    threads: int | None = None
    checkpoint: str | None = None  #: name of the checkpoint of ``run``; None: the best one
    adapter: Path | None = None  #: run of an adapter of ``run``
    split: SplitPolicy = "auto"
    batching: Batching = field(default_factory=Batching)
    overwrite: bool = False

    @property
    def files(self) -> list[Path]:
        """Text files that are read."""
        return [self.text, *([] if self.references is None else [self.references])]


def make_pairs(
    request: SyntheticRequest,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[int], None] = lambda n_lines: None,
    resumed: Callable[[int], None] = lambda n_lines: None,
) -> SyntheticReport:
    """Write synthetic pairs into a folder; resume an interrupted job.

    A job that is finished with the same files, models and settings returns its report; no weights are loaded.

    Args:
        request: Files, models and settings.
        tell: Receives warnings.
        progress: Receives the number of lines done.
        resumed: Receives the number of lines that an earlier process did, if any.

    Raises:
        DataError: A line is not UTF-8, numbers of lines differ, or no pair is left.
        RunError: A run is missing or damaged.
        SystemFailure: Another process writes to the folder.
        UsageError: The folder holds something else, or settings changed.
    """
    check_files(request)
    writer = PairWriter(request, tell)
    # In back-translation, the language of the text is that of the run of the other direction.
    choose_languages([writer], checks_source=not request.is_back)
    settings = job_settings(request, writer.search)
    return write_windows(request, settings, [writer], writer.write, progress, resumed)


def write_windows(
    request: SyntheticRequest,
    settings: dict[str, Any],
    writers: Sequence[PairWriter],
    write: Callable[[Sequence[Line], int, Callable[[int], None]], Iterable[SyntheticPair]],
    progress: Callable[[int], None],
    resumed: Callable[[int], None],
) -> SyntheticReport:
    """Write the pairs of the windows that are not yet in the folder.

    Returns the report of the whole job. ``write`` makes the pairs of a window: it takes its lines, the number of lines
    before it, and a function for the number of lines done. ``settings`` are what the pairs depend on; ``writers`` are
    loaded unless the job is finished.
    """
    if request.overwrite or not is_finished(request.output):
        for writer in writers:
            writer.load()  # before the folder is made: wrong options leave nothing behind
    with open_synthetic_output(request.output, settings, overwrite=request.overwrite) as output:
        n_done = output.report.n_lines
        if output.is_resumed and n_done:
            resumed(n_done)
        progress(n_done)
        for window in skip_lines(read_windows(request), n_done):
            output.write(len(window), list(write(window, n_done, progress)))
            n_done += len(window)
            progress(n_done)
        return output.finish()


def check_files(request: SyntheticRequest) -> None:
    """Raise an ``AttnkitError`` for wrong files or options before a model is loaded."""
    check_request(TranslateRequest([request.run], request.text))
    check_not_streams(request.files)
    # All of the text is decoded once: a wrong byte in the last line is reported before hours of work, not after.
    counts = [sum(1 for _ in read_lines(path)) for path in request.files]
    if not all(counts):
        raise DataError("this file is empty", where=str(request.files[counts.index(0)]))
    if request.references is not None and counts[0] != counts[1]:
        raise mismatch(request.text, request.references, *counts)
    check_not_inside([file for path in request.files for file in source_files(path)], request.output)
    if request.config.needs_forward != (request.forward is not None):
        what = "--min-forward-log-prob and --min-round-trip require --forward"
        if request.forward is not None:
            what = "--forward requires --min-forward-log-prob or --min-round-trip"
        raise UsageError(what, where="--forward", help="attnkit back-translate --help shows an example")
    is_same = request.forward is not None and request.forward.resolve() == request.run.resolve()
    if is_same and request.tgt_lang == request.text_lang:
        what = f"{request.forward} cannot translate both ways"
        raise UsageError(what, where="--forward", help="name the run from the source to the target language")


def job_settings(request: SyntheticRequest, search: SearchConfig) -> dict[str, Any]:
    """Return what the pairs depend on: text, models and options, as JSON values."""
    runs = [(request.run, request.checkpoint)]
    runs += [(run, None) for run in (request.adapter, request.forward) if run is not None]
    models = [fingerprint_of(RunFolder(run).checkpoint(name)[0]) for run, name in runs]
    return {
        "is_back": request.is_back,
        "files": [source_stats(path) for path in request.files],
        "models": models,
        "search": search.model_dump(mode="json"),
        "languages": [request.tgt_lang, request.text_lang],
        **{name: str(getattr(request, name)) for name in ("device", "precision", "engine", "split")},
        **request.config.model_dump(mode="json"),
    }


def read_windows(request: SyntheticRequest) -> Iterator[list[Line]]:
    """Yield windows of lines with their references, always the same ones."""
    lines: Iterator[Line] = ((line, None) for line in read_lines(request.text))
    if request.references is not None:
        lines = ((line, reference) for line, reference in read_parallel(request.text, request.references))
    return line_batches(lines, request.batching.window, None, lambda one: len(one[0]) + len(one[1] or ""))


class LanguageChoice(NamedTuple):
    """Languages of a job's text for one of its runs."""

    translator: TranslationPipeline
    languages: LanguagePair
    options: tuple[str, str]  #: that gave the languages


def choose_languages(writers: Sequence[PairWriter], *, checks_source: bool = False) -> None:
    """Set the languages of all runs of a job.

    Runs whose languages have tags do not need that of the source, which ``checks_source`` checks all the same. Raises
    ``UsageError`` for a language that a run does not know, or that no run needs.
    """
    choices = [choice for writer in writers for choice in writer.choices]
    given = [(one.translator.runs[0], one.languages) for one in choices]
    wanted = [(run, languages if checks_source else needed(run, languages)) for run, languages in given]
    unused = {*choices[0].languages} - {language for _, languages in wanted for language in languages}
    own = LanguagePair(*(language if language in unused else None for language in choices[0].languages))
    check_languages_used(own, "--forward, or an imported run with language codes", choices[0].options)
    for choice, languages in zip(choices, share_languages(wanted), strict=True):
        choice.translator.set_languages(languages, choice.options)


class PairWriter:
    """Turns lines into pairs by a translation run."""

    def __init__(self, request: SyntheticRequest, tell: Callable[[str], None]) -> None:
        """Open the run that translates; its weights are loaded by ``load``."""
        self._request, self._config, self._tell = request, request.config, tell
        self._translator, self._searcher = open_translator(
            request, tell, request.run, request.checkpoint, request.adapter
        )
        self._translator.segmenter.policy = request.split
        self._translator.segmenter.tell = tell
        search = {"scores": request.config.min_log_prob is not None, **request.search}
        if request.references is not None and "num_hypotheses" not in search:
            search["num_hypotheses"] = search.get("beam_size", self._translator.search.beam_size)
        self.search = self._translator.configure(search)
        if request.references is not None and self.search.num_hypotheses < 2:
            what = "choosing by a reference needs several hypotheses per line"
            raise UsageError(what, where="--beam-size", help="--beam-size 5, or leave TGT out")
        self._forward = None if request.forward is None else ForwardFilter(request.forward, request, tell)
        self._bleu = build_metric("bleu", by_sentence=True)
        self._is_loaded, self._is_first = False, True

    def load(self) -> None:
        """Load the weights, and the run of the other direction for filters, once."""
        if self._is_loaded:
            return
        self._is_loaded = True
        self._searcher.load(replace(self._translator.job(self.search), joins=None))
        if self._forward is not None:
            self._forward.load()

    @property
    def choices(self) -> list[LanguageChoice]:
        """Return the languages of the text for each run of the writer."""
        request = self._request
        languages, options = LanguagePair(request.text_lang, request.tgt_lang), request.lang_options
        found = [LanguageChoice(self._translator, languages, options)]
        if self._forward is not None:
            languages, options = LanguagePair(*languages[::-1]), options[::-1]
            found.append(LanguageChoice(self._forward.translator, languages, options))
        return found

    @property
    def run(self) -> OpenedRun:
        """Return the run that translates."""
        return self._translator.runs[0]

    @property
    def is_back(self) -> bool:
        """Return whether translations are the sources of the pairs."""
        return self._request.is_back

    @property
    def tag(self) -> str:
        """Return the tag before each source."""
        return self._config.tag

    def write(self, window: Sequence[Line], n_before: int, progress: Callable[[int], None]) -> Iterator[SyntheticPair]:
        """Yield the pairs of a window of lines, dropped ones included.

        ``n_before`` lines come before the window; sampling depends on the number of the line in the whole file.
        """
        self.load()
        self._translator.progress = progress
        lines = [text for text, _ in window]
        job, batching = self._translator.job(self.search), self._request.batching
        (found,) = self._translator.translate_windows([lines], job, batching, first=n_before)
        translations = list(found)
        if self._is_first:
            self._is_first = False
            self._warn_of_direction(translations)
        made = [
            pair
            for number, (translation, (_, reference)) in enumerate(zip(translations, window, strict=True), n_before + 1)
            for pair in self._pairs(number, translation, reference)
        ]
        reasons: list[str | None] = [pair.reason for pair in made]
        if self._forward is not None:
            asked = [i for i, reason in enumerate(reasons) if reason is None]
            for i, reason in zip(asked, self._forward.reasons([made[i] for i in asked]), strict=True):
                reasons[i] = reason
        for pair, reason in zip(made, reasons, strict=True):
            yield replace(pair, source=with_tag(pair.source, self._config.tag), reason=reason)

    def _pairs(self, number: int, line: TranslatedLine, reference: str | None) -> Iterator[SyntheticPair]:
        """Yield one pair per hypothesis, or the one that is nearest to the reference."""
        if is_blank(line.source) or (reference is not None and is_blank(reference)):
            yield SyntheticPair(number, *self._sides(line.source, line.outputs[0].text), "blank")
            return
        judged = [(output, self._fault(line, output)) for output in line.outputs]
        if reference is not None:
            sound = [output for output, fault in judged if fault is None]
            candidates = sound or [line.outputs[0]]
            texts = [output.text for output in candidates]
            scores = score_sentences(self._bleu, texts, [[reference] * len(texts)])
            best = max(range(len(texts)), key=scores.__getitem__)  # the first of equal ones has the higher score
            fault = None if sound else judged[0][1]
            yield SyntheticPair(number, *self._sides(line.source, texts[best]), fault, scores[best])
            return
        seen: set[str] = set()
        for output, fault in judged:
            is_again = output.text in seen
            seen.add(output.text)
            yield SyntheticPair(number, *self._sides(line.source, output.text), "duplicate" if is_again else fault)

    def _sides(self, line: str, translation: str) -> tuple[str, str]:
        return (translation, line) if self._request.is_back else (line, translation)

    def _fault(self, line: TranslatedLine, output: Output) -> str | None:
        """Return why a translation makes no training pair."""
        if is_blank(output.text):
            return "empty"
        if not self._config.keep_flagged and (found := [sign for sign in line.signs_of(output) if sign in FAULTS]):
            return found[0]
        least = self._config.min_log_prob
        return "low_log_prob" if least is not None and output.mean_log_prob < least else None

    def _warn_of_direction(self, translations: Sequence[TranslatedLine]) -> None:
        n_unlike = sum("unlike" in one.source_signs for one in translations)
        if 2 * n_unlike > len(translations):
            what = f"{n_unlike:,} of the first {len(translations):,} lines are unlike the source text of"
            wanted = " (back-translation needs a run from the target to the source language)" * self._request.is_back
            self._tell(f"{what} {self._request.run}{wanted}")


class ForwardFilter:
    """Judges back-translated pairs by a run from the source to the target language."""

    def __init__(self, run: Path, request: SyntheticRequest, tell: Callable[[str], None]) -> None:
        """Open the run; its weights are loaded by ``load``."""
        self._config, self._batching = request.config, request.batching
        self.translator, self._searcher = open_translator(request, tell, run)
        self._opened = self.translator.runs[0]
        self._search = self.translator.configure({"beam_size": 1, "num_hypotheses": 1, "scores": False})
        self._chrf = build_metric("chrf")

    def load(self) -> None:
        """Load the weights."""
        if self._config.min_forward_log_prob is not None:
            self._scorer, self._device = self._searcher.load_scorer()

    def reasons(self, pairs: Sequence[SyntheticPair]) -> list[str | None]:
        """Return why each pair is dropped, None to keep it; sources have no tag."""
        reasons: list[str | None] = [None] * len(pairs)
        if self._config.min_forward_log_prob is not None:
            self._drop_improbable(pairs, reasons, self._config.min_forward_log_prob)
        least = self._config.min_round_trip
        kept = [i for i, reason in enumerate(reasons) if reason is None]
        if least is None or not kept:
            return reasons
        found = self.translator.stream([pairs[i].source for i in kept], self._search, self._batching)
        texts = [line.outputs[0].text for line in found]
        scores = score_sentences(self._chrf, texts, [[pairs[i].target for i in kept]])
        for i, score in zip(kept, scores, strict=True):
            reasons[i] = "low_round_trip" if score < least else None
        return reasons

    def _drop_improbable(self, pairs: Sequence[SyntheticPair], reasons: list[str | None], least: float) -> None:
        longest, direction = self._opened.config.model.max_positions, self.translator.direction
        sides = [
            tokenizer.encode([getattr(pair, side) for pair in pairs])
            for side, tokenizer in (("source", direction.src_tokenizer), ("target", direction.tgt_tokenizer))
        ]
        asked = []
        for i, (src, tgt) in enumerate(zip(*sides, strict=True)):
            if longest is not None and max(len(direction.tag) + len(src), len(tgt)) >= longest:
                reasons[i] = "too_long"  # for the positions of the model
            else:
                asked.append(i)
        texts = [(pairs[i].source, pairs[i].target) for i in asked]
        scores = score_pairs(self._opened, self._scorer, self._device, texts, self._batching, direction=direction)
        for i, score in zip(asked, scores, strict=True):
            reasons[i] = "low_forward_log_prob" if score.log_prob / score.n_tokens < least else None


def open_translator(
    request: SyntheticRequest,
    tell: Callable[[str], None],
    run: Path,
    checkpoint: str | None = None,
    adapter: Path | None = None,
) -> tuple[TranslationPipeline, EngineSearch]:
    """Open a run without its weights; ``tell`` receives warnings."""
    opened = open_ensemble([run], checkpoint, adapter)
    for warning in opened[0].warnings:
        tell(warning)
    engine, threads = request.engine, request.threads
    searcher = EngineSearch(opened, request.device, request.precision, engine=engine, threads=threads, notify=tell)
    return TranslationPipeline(opened, searcher), searcher
