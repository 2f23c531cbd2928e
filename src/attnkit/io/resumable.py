"""Output files in durable parts, for jobs that resume.

An interrupted job resumes after its last whole part. Every file grows under the name ``NAME.part``. After each part a
progress file records their sizes and the state of the job, in this order: the parts are durable before the record that
counts them. On resuming, what was appended after the last record is cut off, so that the result is the same to the
byte. A file whose name ends in ``.gz`` or another suffix of ``atomic.PACKED`` is compressed part by part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnkit.errors import RunError, UsageError
from attnkit.io import atomic, safe_read

MAX_PROGRESS = 1 << 20  #: bytes of a progress file
JOB = "attnkit.job"  #: extended attribute of a finished file: what it was made of


class ResumableFiles:
    """Files that grow part by part, and the state of the job that writes them."""

    def __init__(self, progress: Path, files: Sequence[Path], settings: Mapping[str, Any], state: Any) -> None:
        """Start a job with its first state, or resume the one that ``progress`` records.

        Args:
            progress: File of the record; removed at the end.
            files: Final names of the files.
            settings: What the result depends on, as JSON values; it must be the same on resuming.
            state: First state of the job, a JSON value.

        Raises:
            RunError: The record is damaged, or a file lost a part.
            UsageError: The record is of other settings.
        """
        self._progress, self.files = progress, list(files)
        self.parts = [path.with_name(f"{path.name}.part") for path in files]
        self._settings: Any = json.loads(json.dumps(settings))
        self.state, self._sizes = state, [0] * len(self.parts)
        self._is_finishing = False  # whether files are getting their final names
        for path in self.files:
            if path.exists() and not path.is_file():
                raise UsageError(f"{path} exists and is not a regular file", help="choose another output")
        self.is_resumed = progress.is_file()
        if self.is_resumed:
            self._resume()
        else:
            for path, file in zip(self.parts, self.files, strict=True):
                atomic.write_bytes(path, _packed(file, ""))  # a compressed file of nothing has a header
            self._sizes = [path.stat().st_size for path in self.parts]
            self._save()
        for path, size in zip(self.parts, self._sizes, strict=True):
            atomic.truncate(path, size)

    def _resume(self) -> None:
        again = f"remove {self._progress} to start again"
        try:
            saved = safe_read.parse_json(safe_read.read_regular_file(self._progress, MAX_PROGRESS))
            settings, self.state = saved["settings"], saved["state"]
            self._sizes = [int(size) for size in saved["sizes"]]
            self._is_finishing = saved["finishing"] is True
            if len(self._sizes) != len(self.parts) or any(size < 0 for size in self._sizes):
                raise ValueError("sizes of other files")
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{self._progress} is damaged", help=again) from error
        if settings != self._settings:
            what = f"{self._progress} records an unfinished job with other input or settings"
            raise UsageError(what, help=f"use the same settings, or {again}")
        for part, file, size in zip(self.parts, self.files, self._sizes, strict=True):
            # Interrupted while files got their final names: a result of an earlier job is never taken for a part.
            if self._is_finishing and not part.exists() and file.is_file() and file.stat().st_size == size:
                atomic.move(file, part)
        if any(not p.is_file() or p.stat().st_size < n for p, n in zip(self.parts, self._sizes, strict=True)):
            raise RunError(f"a part recorded in {self._progress} is missing", help=again)

    def append(self, texts: Sequence[str], state: Any) -> None:
        """Append a text to each file, durably, then record the state."""
        for path, file, text in zip(self.parts, self.files, texts, strict=True):
            if text:
                atomic.append_bytes(path, _packed(file, text))
                atomic.sync(path)
        self._sizes = [path.stat().st_size for path in self.parts]
        self.state = state
        self._save()

    def _save(self) -> None:
        values = {"settings": self._settings, "sizes": self._sizes, "state": self.state}
        values["finishing"] = self._is_finishing
        atomic.write_text(self._progress, json.dumps(values, indent=1) + "\n")

    def finish(self) -> None:
        """Give the files their final names, then remove the record.

        Where the file system has extended attributes, each file keeps what it was made of (``is_result``).
        """
        self._is_finishing = True
        self._save()
        for part, file in zip(self.parts, self.files, strict=True):
            atomic.set_attribute(part, JOB, _mark(part, self._settings))
            atomic.remove_tree(file)  # of an earlier job
            atomic.move(part, file)
        atomic.remove_tree(self._progress)


def is_result(file: Path, settings: Mapping[str, Any]) -> bool:
    """Return whether a file is the finished result of a job with these settings.

    False if that is unknown: the file was changed or copied since, or its file system has no extended attributes.
    """
    try:
        mark = _mark(file, json.loads(json.dumps(settings)))
    except OSError:
        return False
    return safe_read.read_attribute(file, JOB) == mark


def _mark(file: Path, settings: Any) -> bytes:
    """Return the digest of settings and of the size and time of a file."""
    found = file.stat()
    content = json.dumps([settings, found.st_size, found.st_mtime_ns], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest().encode()


def _packed(file: Path, text: str) -> bytes:
    """Return the bytes of a part, compressed if the suffix of its file says so."""
    if file.suffix.lower() not in atomic.PACKED:
        return atomic.encode(text)
    from attnkit.io.compression import pack

    return pack(file, atomic.encode(text))
