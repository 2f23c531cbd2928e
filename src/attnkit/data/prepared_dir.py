"""RUN/data, whatever a task keeps there: its index, the files it was made from, and what is said while it is made.

The folder appears complete or not at all, and can be rebuilt from the files. It remembers what these held, so that a
run never continues with other data than it started with, and the weights whose vocabulary it uses.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from attnkit.errors import DataError, RunError, UsageError
from attnkit.io import atomic
from attnkit.io.safe_read import (
    Contents,
    check_system,
    describe_folder,
    find_mismatches,
    parse_json,
    read_regular_file,
    with_checksum,
)
from attnkit.text.check_report import CheckReport

MAX_TEXT_BYTES = 1 << 26
"""Bytes of a text file in the folder."""
_MAX_INDEX_BYTES = 1 << 24  # bytes
_MAX_UNKNOWN = 0.01  # names and typing errors


@dataclass(frozen=True)
class StatusEvent:
    """Something that takes a while has begun."""

    text: str


@dataclass(frozen=True)
class WarningEvent:
    """A problem that does not end the run."""

    text: str


@dataclass(frozen=True)
class DataCheckEvent:
    """Two files were looked through before they are used."""

    report: CheckReport


class _Index(BaseModel, extra="forbid", strict=True):
    """What ``prepared.json`` says."""

    files: dict[str, str]
    init_from: str | None = None
    counts: dict[str, int]
    contents: Contents
    """Of the folder, but for this file."""
    sha256: str = ""


def is_prepared(folder: Path, inputs: Sequence[str], origin: str | None) -> bool:
    """Return whether the folder is there; one that was made for other weights goes, to be made anew.

    Args:
        folder: RUN/data.
        inputs: the files that it is made from.
        origin: fingerprint of the weights that initialize the run. Text of other weights is encoded again: the ids
            of another vocabulary would mean nothing to these.

    Raises:
        RunError: the folder is damaged.
        UsageError: the files changed since it was made.
    """
    if not (folder / "prepared.json").exists():
        return False
    index = read_index(folder)
    if index.get("init_from") == origin:
        _refuse_changed_files(inputs, index["files"])
        return True
    atomic.remove_tree(folder)
    return False


def write_index(folder: Path, inputs: Iterable[Path], origin: str | None, counts: Mapping[str, int]) -> None:
    """Write ``prepared.json``, the last file of a folder that is being made."""
    known = {str(path): fingerprint(path) for path in inputs}
    index = _Index(files=known, init_from=origin, counts=dict(counts), contents=describe_folder(folder))
    atomic.write_new_file(folder / "prepared.json", with_checksum(index.model_dump()))


def read_index(folder: Path) -> dict[str, Any]:
    """Return what ``prepared.json`` says. Raises ``RunError`` if it is damaged."""
    with _rebuildable(folder):
        raw = read_regular_file(folder / "prepared.json", _MAX_INDEX_BYTES)
        parse_json(raw)  # stricter than what follows: a key stands once
        try:
            index = _Index.model_validate_json(raw)
        except ValidationError as error:
            raise ValueError("prepared.json does not say what it should") from error
        if with_checksum(index.model_dump()) != raw:
            raise ValueError("prepared.json is not as it was written")
        return dict(index)


@contextmanager
def open_prepared_dir(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what ``prepared.json`` says and, when the rest has been read, see that each file is as it was written.

    Raises:
        RunError: something is damaged, by this or by what is read inside (``OSError``, ``ValueError``, ``RunError``).
    """
    index = read_index(folder)
    with _rebuildable(folder):
        yield index
        for fault in find_mismatches(folder, index["contents"]):
            raise ValueError(fault)


@contextmanager
def _rebuildable(folder: Path) -> Iterator[None]:
    """Let whatever is damaged inside say that the whole folder is to be removed: only as a whole is it made anew."""
    try:
        yield
    except (OSError, ValueError) as error:
        check_system(folder, error)
        raise _damaged(folder, f"the prepared text is damaged: {error}", None) from error
    except RunError as error:
        raise _damaged(folder, error.what, error.where) from error


def _damaged(folder: Path, what: str, where: str | None) -> RunError:
    return RunError(
        what,
        where=where or str(folder),
        help=f"remove {folder} and run the same command again: it is made anew from the text",
    )


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as they lie on disk."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise DataError(f"cannot read this file: {error.strerror}", where=str(path)) from error
    return digest.hexdigest()


def sample_validation_indices(total: int, held_out: int, seed: int, where: str) -> set[int]:
    """Return which of ``total`` rows, counted from 0, are kept for validation. Raises ``DataError`` below 2."""
    if total < 2:
        what = f"{total} row{'s'[: total != 1]} cannot be trained on with one held out"
        raise DataError(what, where=where, help="add some, or name a file of its own to validate on")
    return set(random.Random(seed).sample(range(total), min(held_out, max(1, total // 20))))


def count_reason(reasons: Mapping[str, bool], counts: dict[str, int]) -> bool:
    """Return whether there is a reason to leave a row out, having counted the first that applies."""
    reason = next((name for name, applies in reasons.items() if applies), None)
    if reason is not None:
        counts[reason] += 1
    return reason is not None


def warn_of_unknown(n_unknown: int, n_tokens: int, side: str = "") -> Iterator[WarningEvent]:
    """Yield a warning if more than 1 % of the tokens are unknown; ``side`` is source or target."""
    if n_unknown > _MAX_UNKNOWN * n_tokens:
        share = f"{n_unknown / n_tokens:.1%} of the {f'{side} ' if side else ''}tokens"
        yield WarningEvent(f"{share} are unknown to the vocabulary")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write the lines to validate on, into a folder that is being made."""
    text = "".join(line + "\n" for line in lines).encode()
    if len(text) > MAX_TEXT_BYTES:
        raise DataError(f"the validation text has more than {MAX_TEXT_BYTES:,} bytes", help="give less of it")
    atomic.write_new_file(path, text)


def read_lines(path: Path) -> list[str]:
    """Return what ``write_lines`` wrote."""
    return read_regular_file(path, MAX_TEXT_BYTES).decode().split("\n")[:-1]


def _refuse_changed_files(inputs: Sequence[str], known: Mapping[str, str]) -> None:
    """Compare the files, where they still exist, with what they were when the folder was made."""
    for path in map(Path, dict.fromkeys(inputs)):
        if path.exists() and str(path) in known and fingerprint(path) != known[str(path)]:
            raise UsageError(
                "this file has changed since the run began",
                where=str(path),
                help="put the old text back, or start anew with --overwrite or another -o",
            )
