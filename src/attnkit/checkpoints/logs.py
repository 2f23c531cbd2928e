"""The files of a run that people and programs watch: ``metrics.jsonl``, ``timings.jsonl`` and ``status.json``.

A line of a log carries the CRC-32 of itself without that field, so a changed or torn line is seen.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, Field, ValidationError

from attnkit.errors import system_failure
from attnkit.io import atomic

STATUS_NAME = "status.json"
MAX_LINE = 1 << 20
_CHECKED = re.compile(rb'(\{.+),"check":"([0-9a-f]{8})"\}\n', re.DOTALL)


State: TypeAlias = Literal["running", "finished", "stopped", "failed"]
Fact: TypeAlias = str | int | float | bool | None


class Status(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """What became of a run, for launchers and people; a resume trusts the checkpoints alone."""

    state: State
    """``stopped``: on request, with a checkpoint saved."""
    step: int = Field(default=0, ge=0)
    """Training steps taken."""
    reason: str = ""
    """Why it is in this state, a sentence for people."""
    exit_code: int | None = None
    """The code the command ended with; 2 to 6 would come again (``runs.launch``)."""
    facts: dict[str, Fact] = Field(default_factory=dict)
    """Anything else worth showing.

    ``launch`` is the call of ``torchrun`` that the run was last begun by, and ``lost_peer`` says that the failure was
    that of another process, which could not tell what it died of.
    """


def append_record(path: Path, record: Mapping[str, object]) -> None:
    """Append one record as a line of JSON with its check. Numbers that are not finite become words: "nan", "-inf"."""
    if not record or "check" in record:
        raise ValueError("a record has at least one field and none called 'check'")
    body = json.dumps(_finite(record), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    atomic.append_text(path, f'{body[:-1]},"check":"{zlib.crc32(body.encode()):08x}"}}\n')


def read_records(path: Path) -> tuple[list[dict[str, object]], list[str]]:
    """Return the records of a log and a warning for every line that is not as it was written."""
    records: list[dict[str, object]] = []
    warnings: list[str] = []
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE), b""), start=1):
                record = parse_line(line)
                if record is None:
                    warnings.append(f"{path}:{number} is damaged and is left out")
                else:
                    records.append(record)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise system_failure("read", path, error) from error
    return records, warnings


def write_status(path: Path, status: Status) -> None:
    """Write ``status.json`` whole and durably."""
    atomic.write_text(path, status.model_dump_json(indent=1) + "\n")


def read_status(path: Path) -> Status | None:
    """Return what ``status.json`` says, None when it is missing or not readable: it is for information only."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_LINE:
            return None
        return Status.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def parse_line(line: bytes) -> dict[str, object] | None:
    """Return the record that a line of a log holds, None where it is not as it was written."""
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


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value
