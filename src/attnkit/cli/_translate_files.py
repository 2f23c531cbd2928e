"""Several files for ``attnkit translate``: one output each, one progress line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from attnkit.io import atomic
from attnkit.io.resumable import ResumableFiles
from attnkit.progress import console
from attnkit.tasks.translation.jobs import check_inputs, open_job, resumable_output, resumable_record
from attnkit.tasks.translation.signs import SignCounts
from attnkit.tasks.translation.stream import TranslateRequest, load_translator, translate_source


def write_files(request: TranslateRequest, sources: list[Path], outputs: list[Path], resume: bool) -> None:
    """Translate the lines of several files, each to its own output in one folder."""
    check_inputs(sources)
    folder = outputs[0].parent
    atomic.make_dirs(folder.absolute())
    job = open_job(folder, sources, request) if resume else None
    n_files, n_before = job.state if job is not None else (0, 0)
    if n_files and resumable_record(outputs[n_files - 1]).exists():  # killed while it got its final name
        resumable_output(replace(request, source=sources[n_files - 1]), outputs[n_files - 1]).finish()
    n_done, counts, started = n_before, SignCounts(), False
    with console.StatusLine(plain_every=60.0) as status:
        opened, began = load_translator(request, status.warn), time.monotonic()
        follow: Callable[[int], None] = lambda n_lines: None  # noqa: E731
        for source, output in list(zip(sources, outputs, strict=True))[n_files:]:
            files = resumable_output(replace(request, source=source), output) if resume else None
            one = replace(request, source=source, skip=0 if files is None else files.state)
            if not started:  # an earlier process may have begun this file
                started, n_before = True, n_before + one.skip
                if job is not None and job.is_resumed:
                    status.say(f"resuming after {n_files:,} of {len(sources):,} files and {n_before:,} lines")
                follow = console.follow_lines(status, sources, n_before)
            counts.source = source
            lines = translate_source(opened, one, status.warn, _after(follow, n_done), counts)
            n_done += write_file(lines, one.skip, output, files)
            n_files += 1
            if job is not None and files is not None:
                job.append([], [n_files, n_done])  # before the final name: no file is translated twice
                files.finish()
        if job is not None:
            job.finish()
        rate = (n_done - n_before) / max(time.monotonic() - began, 1e-9)
        status.say(f"{len(sources):,} files, {n_done:,} lines translated to {folder}, {rate:,.0f} lines/s")
        for message in counts.messages(protects=request.protect):
            status.say(message)


def write_file(
    groups: Iterable[tuple[int, list[str]]], n_lines: int, output: Path, files: ResumableFiles | None
) -> int:
    """Write the translation of one file; return its number of lines.

    ``n_lines`` are those that an earlier process wrote.
    """
    with nullcontext() if files is not None else atomic.open_output(output) as stream:
        for n_of_group, lines in groups:
            n_lines += n_of_group
            text = "".join(f"{line}\n" for line in lines)
            if files is not None:
                files.append([text], n_lines)
            elif stream is not None:
                stream.write(text)
                stream.flush()
    return n_lines


def _after(follow: Callable[[int], None], n_before: int) -> Callable[[int], None]:
    return lambda n_lines: follow(n_before + n_lines)
