"""RUN/data, the prepared data of any task: its index, its input files, and the events of preparing.

The folder appears complete or not at all, and can be rebuilt from its inputs. The index holds their hashes and the
fingerprint of the initial weights: a run never continues with other data or another vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from attnkit.errors import DataError, RunError, UsageError
from attnkit.io import atomic, safe_read

if TYPE_CHECKING:
    from attnkit.text.check import CheckReport

MAX_TEXT_BYTES = 1 << 26  #: bytes of a text file in the folder
_MAX_INDEX_BYTES = 1 << 24  # bytes
_MAX_UNKNOWN = 0.01  # names and typing errors


@dataclass(frozen=True)
class StatusEvent:
    """Start of a step that takes a while."""

    text: str


@dataclass(frozen=True)
class WarningEvent:
    """A problem that does not end the run."""

    text: str


@dataclass(frozen=True)
class DataCheckEvent:
    """The check of a pair of files before use has finished."""

    report: CheckReport


class _PreparedIndex(BaseModel, extra="forbid", strict=True):
    """Schema of ``prepared.json``."""

    files: dict[str, str]
    init_from: str | None = None
    counts: dict[str, int]
    contents: safe_read.Contents
    """Size and hash of every other file in the folder."""
    sha256: str = ""


def is_prepared(folder: Path, inputs: Sequence[str], origin: str | None) -> bool:
    """Return whether the folder exists; remove one that was prepared for other initial weights.

    Args:
        folder: RUN/data.
        inputs: Files that it is prepared from.
        origin: Fingerprint of the weights that initialize the run, whose vocabulary the ids belong to.

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
            if known is not None and path.exists() and fingerprint(path) != known:
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
    """Return what ``prepared.json`` says. Raises ``RunError`` if it is damaged."""
    with _rebuildable(folder):
        raw = safe_read.read_regular_file(folder / "prepared.json", _MAX_INDEX_BYTES)
        safe_read.parse_json(raw)  # stricter than pydantic: duplicate keys are errors
        try:
            index = _PreparedIndex.model_validate_json(raw)
        except ValidationError as error:
            raise ValueError("prepared.json is invalid") from error
        if safe_read.with_checksum(index.model_dump()) != raw:
            raise ValueError("prepared.json is damaged: its checksum does not match")
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
    """Turn damage inside the block into an error that asks to remove the whole folder."""
    help = f"rm -r {folder}, then run the same command again to rebuild it"
    try:
        yield
    except (OSError, ValueError) as error:
        safe_read.check_system(folder, error)
        raise RunError(f"the prepared text is damaged: {error}", where=str(folder), help=help) from error
    except RunError as error:
        raise RunError(error.what, where=error.where or str(folder), help=help) from error


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as stream:
            return safe_read.digest(stream)
    except OSError as error:
        raise DataError(f"cannot read this file: {error.strerror}", where=str(path)) from error


def sample_validation_indices(total: int, held_out: int, seed: int, where: str) -> set[int]:
    """Return the indices of the rows held out of ``total``. Raises ``DataError`` below 2."""
    if total < 2:
        what = f"{total} row{'s'[: total != 1]}: too few for training and validation"
        raise DataError(what, where=where, help="add rows, or give a validation file")
    return set(random.Random(seed).sample(range(total), min(held_out, max(1, total // 20))))


def warn_of_unknown(n_unknown: int, n_tokens: int, side: str = "") -> Iterator[WarningEvent]:
    """Yield a warning if more than 1 % of the tokens are unknown; ``side`` is source or target."""
    if n_unknown > _MAX_UNKNOWN * n_tokens:
        share = f"{n_unknown / n_tokens:.1%} of the {f'{side} ' if side else ''}tokens"
        yield WarningEvent(f"{share} are unknown to the vocabulary")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write the validation lines of a new folder."""
    text = "".join(line + "\n" for line in lines).encode()
    if len(text) > MAX_TEXT_BYTES:
        raise DataError(f"the validation text exceeds {MAX_TEXT_BYTES:,} bytes", help="shorten it")
    atomic.write_new_file(path, text)


def read_lines(path: Path) -> list[str]:
    """Return what ``write_lines`` wrote."""
    return safe_read.read_regular_file(path, MAX_TEXT_BYTES).decode().split("\n")[:-1]
