"""Prepared data of a run (RUN/data): index, checks of input files, events.

The folder is created atomically and can be rebuilt from its input files. The index stores their hashes and the
fingerprint of the initial weights, so a run never resumes with other data or another vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from attnkit.errors import DataError, RunError, UsageError
from attnkit.io import atomic, safe_read
from attnkit.text.sources import source_exists, source_files

if TYPE_CHECKING:
    from attnkit.quality.findings import CheckReport

MAX_TEXT_BYTES = 1 << 26  #: maximum size of a text file in the folder in bytes
_MAX_INDEX_BYTES = 1 << 24  # bytes
_MAX_UNKNOWN = 0.01  # tolerated share of unknown tokens: names and typos


@dataclass(frozen=True)
class StatusEvent:
    """The start of a time-consuming step."""

    text: str


@dataclass(frozen=True)
class WarningEvent:
    """A problem that does not stop the run."""

    text: str


@dataclass
class DataCheckEvent:
    """The completed check of a pair of files.

    If its severity is ``stop``, training continues only if the receiver sets ``accepted`` before it asks for the next
    event.
    """

    report: CheckReport
    accepted: bool = False


class _PreparedIndex(BaseModel, extra="forbid", strict=True):
    """Schema of ``prepared.json``."""

    files: dict[str, str]
    init_from: str | None = None
    counts: dict[str, int]
    contents: safe_read.Contents
    """Size and hash of every other file in the folder."""
    sha256: str = ""


def is_prepared(folder: Path, inputs: Sequence[str], origin: str | None) -> bool:
    """Return whether the data is prepared; remove data for other initial weights.

    Args:
        folder: RUN/data.
        inputs: Files from which it is prepared.
        origin: Fingerprint of the initial weights, whose vocabulary encodes the data.

    Raises:
        RunError: The folder is damaged.
        UsageError: An input changed since the folder was prepared.
    """
    if not (folder / "prepared.json").exists():
        return False
    index = read_index(folder)
    if index.get("init_from") == origin:
        for path in map(Path, dict.fromkeys(inputs)):
            # A missing input is fine: the prepared data replaces it.
            known = index["files"].get(str(path))
            if known is not None and source_exists(path) and fingerprint(path) != known:
                help = "restore the old file, or start over with --overwrite or another -o"
                raise UsageError("the file has changed since the run started", where=str(path), help=help)
        return True
    atomic.remove_tree(folder)
    return False


def write_index(folder: Path, inputs: Iterable[Path], origin: str | None, counts: Mapping[str, int]) -> None:
    """Write ``prepared.json``, the last file of a new folder."""
    known = {str(path): fingerprint(path) for path in inputs}
    contents = safe_read.describe_folder(folder)
    index = _PreparedIndex(files=known, init_from=origin, counts=dict(counts), contents=contents)
    atomic.write_new_file(folder / "prepared.json", safe_read.with_checksum(index.model_dump()))


def read_index(folder: Path) -> dict[str, Any]:
    """Read ``prepared.json``; raise ``RunError`` if it is damaged."""
    with _rebuildable(folder):
        raw = safe_read.read_regular_file(folder / "prepared.json", _MAX_INDEX_BYTES)
        safe_read.parse_json(raw)  # stricter than pydantic: duplicate keys are errors
        try:
            index = _PreparedIndex.model_validate_json(raw)
        except ValidationError as error:
            raise ValueError("prepared.json is invalid") from error
        if safe_read.with_checksum(index.model_dump()) != raw:
            raise ValueError("the checksum of prepared.json does not match")
        return dict(index)


@contextmanager
def open_prepared_dir(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the index for reading the folder, then verify every file.

    Raises:
        RunError: A file is damaged; ``OSError``, ``ValueError`` and ``RunError`` inside the block count as damage.
    """
    index = read_index(folder)
    with _rebuildable(folder):
        yield index
        for fault in safe_read.find_mismatches(folder, index["contents"]):
            raise ValueError(fault)


@contextmanager
def _rebuildable(folder: Path) -> Iterator[None]:
    """Convert errors in the block to ``RunError`` with instructions to rebuild."""
    help = f"rm -r {folder}, then run the same command again to rebuild it"
    try:
        yield
    except (OSError, ValueError) as error:
        safe_read.check_system(folder, error)
        raise RunError(f"the prepared text is damaged: {error}", where=str(folder), help=help) from error
    except RunError as error:
        raise RunError(error.what, where=error.where or str(folder), help=help) from error


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and digests of a source's files."""
    digests = []
    try:
        for file in source_files(path):
            with file.open("rb") as stream:
                digests.append((file.name, safe_read.digest(stream)))
        if len(digests) == 1:
            return digests[0][1]
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()
    except OSError as error:
        raise DataError(f"cannot read this file: {error.strerror}", where=str(path)) from error


def sample_validation_indices(total: int, held_out: int, seed: int, where: str) -> set[int]:
    """Sample held-out indices below ``total``; raise ``DataError`` if it is below 2."""
    if total < 2:
        what = f"{total} row{'s'[: total != 1]}: too few for training and validation"
        raise DataError(what, where=where, help="add rows, or give a validation file")
    return set(random.Random(seed).sample(range(total), min(held_out, max(1, total // 20))))


def warn_of_unknown(n_unknown: int, n_tokens: int, side: str = "") -> Iterator[WarningEvent]:
    """Yield a warning if more than 1% of the tokens of a side are unknown."""
    if n_unknown > _MAX_UNKNOWN * n_tokens:
        share = f"{n_unknown / n_tokens:.1%} of the {f'{side} ' if side else ''}tokens"
        yield WarningEvent(f"{share} are unknown to the vocabulary")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write validation lines to a new file."""
    text = "".join(line + "\n" for line in lines).encode()
    if len(text) > MAX_TEXT_BYTES:
        raise DataError(f"the validation text exceeds {MAX_TEXT_BYTES:,} bytes", help="shorten it")
    atomic.write_new_file(path, text)


def read_lines(path: Path) -> list[str]:
    """Return the lines written by ``write_lines``."""
    return safe_read.read_regular_file(path, MAX_TEXT_BYTES).decode().split("\n")[:-1]
