"""Cleaning of a parallel corpus: filters, repairs and realignment.

Files are read in spans (`judgement.py`), each judged by itself, and written in parts. After each part,
``progress.json`` holds the sizes of the files so far: a cleaning that was killed resumes after its last whole part, and
the result is the same to the byte. Takes some 100 bytes per kept pair to know duplicates, beside the memory of a span.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from attnkit.errors import DataError
from attnkit.quality.clean_filters import Chunk, CleanFilters, Judged, Pairing, Score, find_near_lines
from attnkit.quality.clean_output import CleanReport, CleanRequest, open_clean_output
from attnkit.quality.judgement import read_spans
from attnkit.runtime.signals import begin_worker, usable_cpus
from attnkit.text.files import LineCounts, guess
from attnkit.text.lines import check_not_streams, is_utf16, open_binary, opened
from attnkit.text.sources import source_size

PART = 1 << 16  #: pairs written together
MIN_SHARED_OUT = 1 << 15  #: lines of a part from which other processes are worth their start
RunChunks = Callable[[Callable[[Chunk], list[Judged]], Iterable[Chunk]], Iterable[list[Judged]]]


def clean(
    request: CleanRequest, score: Score | None = None, progress: Callable[[int], None] = lambda n_lines: None
) -> CleanReport:
    """Clean two files into a folder; resume an interrupted cleaning.

    A cleaning that is finished with the same files and settings returns its report.

    Args:
        request: Files and settings.
        score: Scores of pairs by a trained run, for ``config.min_log_prob``.
        progress: Called with the number of source lines done.

    Raises:
        DataError: No pair is left.
        SystemFailure: Another process writes to the folder.
        UsageError: The folder holds something else, or settings changed.
    """
    check_not_streams([request.src, request.tgt, *request.test])
    for path in (request.src, request.tgt, *request.test):
        open_binary(path).close()  # report a missing file before anything is written
        check_not_utf16(path)
    for path in (request.src, request.tgt):
        if source_size(path) == 0:
            raise DataError("the file is empty", where=str(path))
    with open_clean_output(request) as output, _processes(request.n_processes) as run_chunks:
        if output.is_finished:
            return output.finish()
        near: frozenset[int] = frozenset()
        if request.config.duplicates == "near":
            near = find_near_lines(request.src, request.tgt, request.config)
        filters = CleanFilters(request.config, output.kept_pairs(), score, request.test, near)
        progress(output.report.n_src)
        for number, span in enumerate(read_spans(request.src, request.tgt)):
            if number < output.n_spans:
                filters.begin_span(span, None)  # done before, but the usual ratio comes from the first span
                continue
            plan = Pairing(span, request.config)
            if number == 0 and request.config.min_evidence is not None and plan.evidence is None:
                what = "the files do not show which lines belong together, so there is no evidence to ask for"
                raise DataError(what, where="--min-evidence", help="remove --min-evidence")
            filters.begin_span(span, plan)
            for begin in range(0, max(1, len(span.src)), PART):
                if span.start + begin < output.report.n_src:
                    continue
                end = min(len(span.src), begin + PART)
                run = run_chunks if end - begin >= MIN_SHARED_OUT else map
                output.write(list(filters.judge(plan, begin, end, run)), plan, end == len(span.src))
                progress(output.report.n_src)
        return output.finish()


@contextmanager
def _processes(n_processes: int | None) -> Iterator[RunChunks]:
    """Yield a function like ``map`` in several processes, started when needed."""
    n = usable_cpus() if n_processes is None else n_processes
    if n < 2:
        yield map
        return
    # Not forked: the compiled loops of this process have threads, whose locks a fork would copy as they are.
    pool = ProcessPoolExecutor(n, get_context("spawn"), begin_worker, (os.getpid(),))

    def run_chunks(judge: Callable[[Chunk], list[Judged]], chunks: Iterable[Chunk]) -> Iterable[list[Judged]]:
        whole = list(chunks)
        try:
            return list(pool.map(judge, whole))
        except BrokenProcessPool:  # killed, perhaps for memory: go on in this process
            return map(judge, whole)

    try:
        yield run_chunks
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def check_not_utf16(path: Path) -> None:
    """Raise ``DataError`` for a file of UTF-16, which would be read as NULs."""
    with opened(path, LineCounts()) as stream:
        head = stream.read(4096)
    if is_utf16(head) or head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("invalid UTF-8", where=f"{path}:1", help=guess(head, "utf-16"))
