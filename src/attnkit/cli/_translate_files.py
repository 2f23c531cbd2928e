"""Several files for ``attnkit translate``: one output each, one progress line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.engine.search_backend import SearchJob
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.io.resumable import ResumableFiles
from attnkit.progress import console
from attnkit.tasks.translation.jobs import (
    PROGRESS,
    check_inputs,
    is_translated,
    open_job,
    resumable_output,
    resumable_record,
)
from attnkit.tasks.translation.signs import DocumentCounts
from attnkit.tasks.translation.stream import TranslateRequest, load_translator, translate_document, translate_source
from attnkit.tasks.translation.translator import TranslationPipeline

if TYPE_CHECKING:
    from attnkit.formats.suffixes import DocumentFormat

MAX_NOTES = 10  #: warnings of documents that are shown


def write_files(request: TranslateRequest, sources: list[Path], outputs: list[Path], resume: bool) -> None:
    """Translate several files, each to its own output in one folder."""
    check_inputs(sources)
    folder = outputs[0].parent
    if resume and _is_finished(request, sources, outputs):
        return
    if request.format is not None and not (resume and (folder / PROGRESS).exists()):  # those of a job were checked
        check_documents(sources, request.format)
    atomic.make_dirs(folder.absolute())
    job = open_job(folder, sources, request) if resume else None
    n_files, n_before = job.state if job is not None else (0, 0)
    if n_files and resumable_record(outputs[n_files - 1]).exists():  # killed while it got its final name
        resumable_output(replace(request, source=sources[n_files - 1]), outputs[n_files - 1]).finish()
    n_done, counts, started = n_before, DocumentCounts(), False
    with console.StatusLine(plain_every=60.0) as status:
        opened, began = load_translator(request, status.warn), time.monotonic()
        follow: Callable[[int], None] = lambda n_lines: None  # noqa: E731
        for source, output in list(zip(sources, outputs, strict=True))[n_files:]:
            files = resumable_output(replace(request, source=source), output) if resume else None
            one = replace(request, source=source, skip=0 if files is None else files.state)
            if not started:  # an earlier process may have begun this file
                started, n_before = True, n_before + one.skip
                if job is not None and job.is_resumed:
                    lines = f" and {n_before:,} lines" if request.format is None else ""
                    status.say(f"resuming after {n_files:,} of {len(sources):,} files{lines}")
                follow = console.follow_lines(status, sources, n_before)
            counts.signs.source = source
            described = list[str]()  # JSON of passages, which goes to standard output when its document is written
            if request.format is None:
                found = translate_source(opened, one, status.warn, _after(follow, n_done), counts.signs)
                groups: Iterable[tuple[int, str]] = (
                    (n_lines, "".join(f"{line}\n" for line in lines)) for n_lines, lines in found
                )
            else:
                groups = _translate_whole(opened, one, _show(status, n_files, len(sources)), counts, described)
            n_done += write_file(groups, one.skip, output, files)
            if described:
                console.result("\n".join(described))
            n_files += 1
            if job is not None and files is not None:
                job.append([], [n_files, n_done])  # before the final name: no file is translated twice
                files.finish()
        if job is not None:
            job.finish()
        rate = (n_done - n_before) / max(time.monotonic() - began, 1e-9)
        lines = f"{n_done:,} lines translated to {folder}, {rate:,.0f} lines/s"
        status.say(f"{len(sources):,} files, {lines if request.format is None else f'{counts.as_text()} in {folder}'}")
        for note in counts.notes[:MAX_NOTES]:
            status.warn(note)
        if (n_more := len(counts.notes) - MAX_NOTES) > 0:
            status.warn(f"{n_more:,} more such warnings")
        for message in counts.signs.messages(protects=request.protect or request.format is not None):
            status.say(message)


def _is_finished(request: TranslateRequest, sources: Sequence[Path], outputs: Sequence[Path]) -> bool:
    """Return whether all files are translated, and say so."""
    folder = outputs[0].parent
    one_by_one = zip((replace(request, source=source) for source in sources), outputs, strict=True)
    if (folder / PROGRESS).exists() or not all(is_translated(*pair) for pair in one_by_one):
        return False
    many = "1 file; remove it" if len(sources) == 1 else f"{len(sources):,} files; remove them"
    console.info(f"{folder} is finished: {many} to translate again")
    return True


def check_documents(sources: Sequence[Path], format: DocumentFormat) -> None:
    """Read all documents before the work starts; warn of those of other suffixes.

    Raises ``DataError`` for the first that is not of its format.
    """
    from attnkit.formats.documents import find_others, parse_document, read_document

    pattern = "a pattern such as 'FOLDER/*.html' leaves out other files"
    for source in sources:
        try:
            parse_document(read_document(source), format, source)
        except DataError as error:
            raise DataError(error.what, where=error.where, help=error.help or pattern) from error
    if others := find_others(sources, format):
        named = others[0].name if len(others) == 1 else f"{len(others):,} files, first {others[0].name}"
        console.warn(f"read as {format} whatever the suffix says: {named}; {pattern}")


def _translate_whole(
    opened: tuple[TranslationPipeline, SearchJob],
    request: TranslateRequest,
    show: Callable[[int, int], None],
    counts: DocumentCounts,
    described: list[str],
) -> Iterator[tuple[int, str]]:
    """Yield one group, a translated document, unless an earlier process wrote it."""
    from attnkit.formats.documents import read_document

    if not request.skip:
        text, lines = translate_document(opened, request, read_document(request.source), show, counts)
        described += lines
        yield 1, text


def write_file(groups: Iterable[tuple[int, str]], n_done: int, output: Path, files: ResumableFiles | None) -> int:
    """Write the translation of one file; return its lines, 1 for a document.

    ``n_done`` are those that an earlier process wrote.
    """
    with nullcontext() if files is not None else atomic.open_output(output) as stream:
        for n_of_group, text in groups:
            n_done += n_of_group
            if files is not None:
                files.append([text], n_done)
            elif stream is not None:
                stream.write(text)
                stream.flush()
    return n_done


def _after(follow: Callable[[int], None], n_before: int) -> Callable[[int], None]:
    return lambda n_lines: follow(n_before + n_lines)


def _show(status: console.StatusLine, n_files: int, n_all: int) -> Callable[[int, int], None]:
    return lambda n_done, n_passages: status.update(
        f"{n_files:,} of {n_all:,} files, {n_done:,} of {n_passages:,} passages"
    )
