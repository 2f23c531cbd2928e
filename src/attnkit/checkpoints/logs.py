"""Log files of a run, its status, and the origins of its settings."""

import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field, ValidationError

from attnkit.errors import system_failure
from attnkit.io import atomic
from attnkit.io.safe_read import is_file_fault, open_regular_file, parse_json, read_regular_file

STATUS_NAME = "status.json"
ORIGINS_NAME = "origins.json"
MAX_LINE = 1 << 20
MAX_ORIGINS_BYTES = 1 << 20
_CHECKED = re.compile(rb'(\{.+),"check":"([0-9a-f]{8})"\}\n', re.DOTALL)


State: TypeAlias = Literal["running", "finished", "stopped", "failed"]
Fact: TypeAlias = str | int | float | bool | None


class Status(BaseModel, frozen=True, extra="forbid", strict=True):
    """Status of a run for launchers and users; resuming reads only the checkpoints."""

    state: State
    """``stopped``: on request, with a checkpoint saved."""
    step: int = Field(default=0, ge=0)
    """Training steps taken."""
    reason: str = ""
    """Reason for the state, as a sentence."""
    exit_code: int | None = None
    """Exit code of the command; 2 to 6 would recur on a restart (``torchrun.REPEATING_EXIT_CODES``)."""
    facts: dict[str, Fact] = Field(default_factory=dict)
    """Further information.

    ``launch`` identifies the last ``torchrun`` launch of the run. ``lost_peer`` is true if another process failed and
    could not report the cause.
    """


def append_record(path: Path, record: Mapping[str, object]) -> None:
    """Append a record as a JSON line with a checksum; NaN and infinity become strings."""
    atomic.append_text(path, record_line(record))


def record_line(record: Mapping[str, object]) -> str:
    """Return a record as a line of a log: JSON with a checksum."""
    if not record or "check" in record:
        raise ValueError("a record needs at least one field and must not have one named 'check'")
    body = json.dumps(_finite(record), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f'{body[:-1]},"check":"{zlib.crc32(body.encode()):08x}"}}\n'


def read_status(run: Path) -> Status | None:
    """Return the content of ``status.json``; None if it is missing or invalid."""
    path = run / STATUS_NAME
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_LINE:
            return None
        return Status.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def origins_text(origins: Mapping[str, str]) -> bytes:
    """Return the content of ``origins.json``: dotted key -> origin."""
    # A path may contain lone surrogates.
    tree = {key: origin.encode("utf-8", "backslashreplace").decode() for key, origin in origins.items()}
    return json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def read_origins(run: Path) -> dict[str, str] | None:
    """Return the origin of each key that has none by default; None if unknown.

    Runs of earlier versions have no such file. An unusable one counts as missing, as only reports need it.
    """
    try:
        tree = parse_json(read_regular_file(run / ORIGINS_NAME, MAX_ORIGINS_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(tree, dict) or not all(isinstance(origin, str) for origin in tree.values()):
        return None
    # Escapes of JSON may stand for lone surrogates, which cannot be printed.
    return {
        key.encode("utf-8", "replace").decode(): origin.encode("utf-8", "replace").decode()
        for key, origin in tree.items()
    }


def parse_line(line: bytes) -> dict[str, object] | None:
    """Return the record of a log line; None if the line is damaged."""
    found = _CHECKED.fullmatch(line)
    if found is None:
        return None
    body = found[1] + b"}"
    if zlib.crc32(body) != int(found[2], 16):
        return None
    try:
        record = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log without their checksums; skip damaged lines.

    Values that JSON does not have are strings, such as ``nan``.

    Raises:
        SystemFailure: The file cannot be read.
    """
    try:
        with open_regular_file(path) as stream:
            while line := stream.readline(MAX_LINE):
                if (record := parse_line(line)) is not None:
                    yield record
    except OSError as error:
        raise system_failure("read", path, error) from error


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value


_MAX_RANGES = 3


@dataclass(frozen=True)
class LogSummary:
    """Summary of a log file."""

    size: int  #: bytes
    n_lines: int
    n_damaged: int  #: damaged lines within the required bytes
    damaged: tuple[int, ...]  #: numbers of the first few damaged lines
    n_truncated: int  #: lines truncated by a power cut, or damaged after the required bytes


def read_log(path: Path, size: int | None) -> LogSummary:
    """Check every line of a log; the first ``size`` bytes must be valid.

    With None, nothing depends on the log, and truncated lines do not count as damaged. Raises ``FileNotFoundError`` if
    the file is missing, ``ValueError`` if it cannot be read.
    """
    damaged: list[int] = []
    number = place = n_damaged = n_torn = 0
    try:
        with open_regular_file(path) as stream:
            while line := stream.readline(MAX_LINE):
                number += 1
                if parse_line(line) is None:
                    if is_truncated_write(line) if size is None else place >= size:
                        n_torn += 1
                    else:
                        n_damaged += 1
                        damaged += [number] if n_damaged <= _MAX_RANGES else []
                place += len(line)
    except FileNotFoundError:
        raise
    except OSError as error:
        if not is_file_fault(error):
            raise system_failure("read", path, error) from error
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"cannot be read: {error}") from error
    return LogSummary(place, number, n_damaged, tuple(damaged), n_torn)


def is_truncated_write(line: bytes) -> bool:
    """Return whether a line is truncated, with at most one complete line appended.

    A power cut leaves such a line, with zeros for the bytes that had not reached the disk. The next record is then
    appended to it. A flipped bit does not produce this pattern.
    """
    start = line
    if line.endswith(b"\n"):
        start, sign, rest = line.rpartition(b"{")
        if parse_line(sign + rest) is None:
            return False
    elif len(line) >= MAX_LINE:
        return False
    start = start.rstrip(b"\0")
    return b'"}' not in start or parse_line(start + b"\n") is not None


def line_ranges(numbers: tuple[int, ...], n_all: int) -> str:
    """Format line numbers as text; ``numbers`` has the first few of ``n_all`` lines.

    >>> line_ranges((3, 7, 9), 4)
    'lines 3, 7, 9 and 1 more'
    """
    shown = [str(number) for number in numbers]
    if n_all > len(numbers):
        shown.append(f"{n_all - len(numbers)} more")
    words = " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)
    return f"line{'s' if n_all > 1 else ''} {words}"
