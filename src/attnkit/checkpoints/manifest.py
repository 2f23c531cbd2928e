"""The manifest of a checkpoint: size and SHA-256 of every file, and a checksum of the manifest itself.

Written in one fixed form, so that any changed byte is seen: what is read must render to the very same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, TypeAlias

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from attnkit.io.atomic import Data
from attnkit.io.dir_digest import Digest, Entry

FORMAT = 1
FILE_NAME = "manifest.json"
MAX_BYTES = 1 << 20

Content: TypeAlias = Data | Callable[[], Iterable[Data]]
"""Of a file: at once, or in parts that are made anew at each call, for what would take too much memory twice."""

# A plain name: no folder, no "..", nothing hidden, not the manifest itself.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]


class Manifest(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """What one checkpoint must look like."""

    format: int
    """Version of the layout; this module reads and writes version 1."""
    step: int = Field(ge=0)
    """Training steps taken when it was saved."""
    files: dict[Name, Entry]
    """Every file that loading may read."""

    def render(self) -> bytes:
        """Return the bytes of ``manifest.json``."""
        body = self.model_dump(mode="json")
        digest = hashlib.sha256(_canonical(body)).hexdigest()
        return _canonical({**body, "sha256": digest})


class _Signed(Manifest, frozen=True, extra="forbid", strict=True):
    sha256: Digest


def parts(content: Content) -> Iterable[Data]:
    """Return what a file holds, part by part."""
    return content() if callable(content) else (content,)


def describe(step: int, contents: Mapping[str, Content]) -> Manifest:
    """Return the manifest of files given by name and content.

    Raises ``ValueError`` for a name that is no plain file name.
    """
    if FILE_NAME in contents:
        raise ValueError(f"{FILE_NAME} is written by the checkpoint itself")
    return Manifest(format=FORMAT, step=step, files={name: _entry(content) for name, content in contents.items()})


def _entry(content: Content) -> Entry:
    size, found = 0, hashlib.sha256()
    for data in parts(content):
        size += memoryview(data).nbytes
        found.update(data)
    return Entry(size=size, sha256=found.hexdigest())


def parse(raw: bytes) -> Manifest:
    """Return the manifest that ``raw`` holds; raise ``ValueError`` with a plain sentence when it cannot be trusted."""
    try:
        signed = _Signed.model_validate_json(raw)
    except ValidationError as error:
        if (version := _version(raw)) and version > FORMAT:
            raise ValueError(f"it was written by a newer attnkit (format {version}, this one reads {FORMAT})") from None
        raise ValueError("it does not have the form of a manifest") from error
    manifest = Manifest(format=signed.format, step=signed.step, files=signed.files)
    if manifest.render() != raw:
        raise ValueError("its checksum does not match its content")
    if manifest.format != FORMAT:
        raise ValueError(f"it has format {manifest.format}, this attnkit reads {FORMAT}")
    return manifest


class _Versioned(BaseModel, extra="ignore", strict=True):
    format: int


def _version(raw: bytes) -> int | None:
    try:
        return _Versioned.model_validate_json(raw).format
    except ValidationError:
        return None


def _canonical(body: Mapping[str, object]) -> bytes:
    return (json.dumps(body, indent=1, sort_keys=True) + "\n").encode()
