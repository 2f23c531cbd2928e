"""Augmentation of a parallel corpus by translations of both of its sides.

Several models translate the source side, and models of the other direction the target side; each translation makes a
pair with the true other side (Nguyen et al. 2020, Data Diversification). Sampled translations vary more than those of a
beam. Lines are read in windows; after each the pairs are durable, so a job that is killed resumes after its last whole
window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from attnkit.config import validate
from attnkit.data.loader import Batching
from attnkit.engine.engine_choice import Engine
from attnkit.errors import UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.tasks.translation.directions import OPTIONS
from attnkit.tasks.translation.segmenting import SplitPolicy
from attnkit.tasks.translation.stream import TranslateRequest, check_request
from attnkit.tasks.translation.synthetic_config import SyntheticConfig
from attnkit.tasks.translation.synthetic_output import SyntheticPair, SyntheticReport
from attnkit.tasks.translation.synthetic_pairs import (
    Line,
    PairWriter,
    SyntheticRequest,
    check_files,
    choose_languages,
    job_settings,
    write_windows,
)
from attnkit.text.tags import with_tag


@dataclass(frozen=True)
class AugmentRequest:
    """Corpus, models and settings of a job."""

    src: Path
    tgt: Path
    output: Path  #: folder to write
    forward: Sequence[Path] = ()  #: runs from the source to the target language
    backward: Sequence[Path] = ()  #: runs from the target to the source language
    config: SyntheticConfig = field(default_factory=SyntheticConfig)  #: its tag is that of backward pairs
    forward_tag: str = ""  #: tag of the sources whose target a model wrote
    search: dict[str, Any] = field(default_factory=dict)  #: fields of ``SearchConfig`` that override the runs' own
    src_lang: str | None = None  #: language of ``src``, into which ``backward`` translates, if it has several
    tgt_lang: str | None = None  #: language of ``tgt``, likewise of ``forward``; imported runs with codes need both
    device: str = "auto"
    precision: Precision = "float32"
    engine: Engine = "auto"
    threads: int | None = None
    split: SplitPolicy = "auto"
    batching: Batching = field(default_factory=Batching)
    overwrite: bool = False

    @property
    def jobs(self) -> list[SyntheticRequest]:
        """Return what each run translates, forward runs first.

        ``references`` are the other side.
        """
        shared = {name: getattr(self, name) for name in ("output", "search", "device", "precision", "engine")}
        shared |= {name: getattr(self, name) for name in ("threads", "split", "batching", "overwrite")}
        forward_config = validate(SyntheticConfig, self.config.model_dump() | {"tag": self.forward_tag})
        both = SyntheticRequest(run=Path(), text=self.src, references=self.tgt, **shared)
        forward = replace(both, config=forward_config, tgt_lang=self.tgt_lang, text_lang=self.src_lang)
        backward = replace(both, text=self.tgt, references=self.src, config=self.config, is_back=True)
        backward = replace(backward, tgt_lang=self.src_lang, text_lang=self.tgt_lang, lang_options=OPTIONS[::-1])
        jobs = [replace(forward, run=run) for run in self.forward]
        return jobs + [replace(backward, run=run) for run in self.backward]


def augment(
    request: AugmentRequest,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[int], None] = lambda n_lines: None,
    resumed: Callable[[int], None] = lambda n_lines: None,
) -> SyntheticReport:
    """Write the pairs that models make of a corpus; resume an interrupted job.

    A pair is dropped as ``original`` if it is that of the corpus, as ``duplicate`` if another run or hypothesis made it
    of the same line.

    Args:
        request: Corpus, models and settings.
        tell: Receives warnings.
        progress: Receives the number of lines done.
        resumed: Receives the number of lines that an earlier process did, if any.

    Raises:
        DataError: A line is not UTF-8, numbers of lines differ, or no pair is left.
        RunError: A run is missing or damaged.
        SystemFailure: Another process writes to the folder.
        UsageError: No run is given, the folder holds something else, or settings changed.
    """
    jobs = request.jobs
    if not jobs:
        help = "give --forward RUN, --backward RUN, or both"
        raise UsageError("no run to translate with", where="--forward", help=help)
    if request.config.needs_forward:
        what = "min_forward_log_prob and min_round_trip are filters of back-translation alone"
        raise UsageError(what, where="settings", help="min_log_prob filters translations of both directions")
    check_files(jobs[0])
    for job in jobs[1:]:
        check_request(TranslateRequest([job.run], job.text))
    writers = [PairWriter(replace(job, references=None), tell) for job in jobs]
    for language, runs, option in (
        (request.src_lang, request.backward, "--src-lang"),
        (request.tgt_lang, request.forward, "--tgt-lang"),
    ):
        if language is not None and not runs and not any(writer.run.src_tokenizer.language_codes for writer in writers):
            what = f"no run translates into the language of {option}"
            help = f"add {'--backward' if option == '--src-lang' else '--forward'} RUN, or leave it out"
            raise UsageError(what, where=option, help=help)
    choose_languages(writers)
    settings = {
        f"run {number}": job_settings(job, writer.search)
        for number, (job, writer) in enumerate(zip(jobs, writers, strict=True), 1)
    }
    corpus = replace(jobs[0], text=request.src, references=request.tgt)
    return write_windows(corpus, settings, writers, partial(_write, writers), progress, resumed)


def _write(
    writers: Sequence[PairWriter], window: Sequence[Line], n_before: int, progress: Callable[[int], None]
) -> list[SyntheticPair]:
    """Return the pairs of a window by all writers, line by line."""
    made: list[tuple[SyntheticPair, str]] = []  # with the tag of their writer
    for place, writer in enumerate(writers):

        def show(n_lines: int, place: int = place) -> None:
            progress(n_before + (place * len(window) + n_lines - n_before) // len(writers))

        lines: list[Line] = [(tgt or "" if writer.is_back else src, None) for src, tgt in window]
        made += [(pair, writer.tag) for pair in writer.write(lines, n_before, show)]
    made.sort(key=lambda one: one[0].line)  # the order of writers stays
    return list(_without_repeats(made, window, n_before))


def _without_repeats(
    made: Sequence[tuple[SyntheticPair, str]], window: Sequence[Line], n_before: int
) -> Iterator[SyntheticPair]:
    """Yield pairs; name the reason for what the corpus has or came before."""
    seen: set[tuple[int, str, str]] = set()
    for pair, tag in made:
        source, target = window[pair.line - n_before - 1]
        key = pair.line, pair.source, pair.target
        reason = pair.reason
        if reason is None:
            is_original = (pair.source, pair.target) == (with_tag(source, tag), target)
            reason = "original" if is_original else "duplicate" if key in seen else None
            seen.add(key)
        yield replace(pair, reason=reason)
