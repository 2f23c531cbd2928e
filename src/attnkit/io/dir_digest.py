"""What the files below a folder must look like, for one without a manifest: the encoded text of a run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, BinaryIO, TypeAlias

from pydantic import BaseModel, Field, StringConstraints

from attnkit.io.safe_read import check_system, open_regular_file

_CHUNK = 1 << 20
_PART = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
# A path below the folder: nothing hidden, no "..".
Below = Annotated[str, StringConstraints(pattern=f"^{_PART}(/{_PART}){{0,3}}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Entry(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """What one file must look like."""

    size: int = Field(ge=0)
    """Bytes."""
    sha256: Digest
    """Of the whole file, in hexadecimal digits."""


Contents: TypeAlias = dict[Below, Entry]
"""What every file must look like, by its path."""


def digest(stream: BinaryIO) -> str:
    """Return the SHA-256 of what is left of a file, in hexadecimal digits; takes a megabyte of memory."""
    found = hashlib.sha256()
    buffer = memoryview(bytearray(_CHUNK))
    while n_read := stream.readinto(buffer):  # type: ignore[attr-defined]
        found.update(buffer[:n_read])
    return found.hexdigest()


def describe_folder(folder: Path) -> Contents:
    """Return size and SHA-256 of every file below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                found[path.relative_to(folder).as_posix()] = Entry(size=size, sha256=digest(stream))
    return found


def with_checksum(index: Mapping[str, object]) -> bytes:
    """Return JSON with its own SHA-256 in it: what is read has to render to the very same bytes.

    An ``index`` that holds one already gets it anew.
    """
    body = {key: value for key, value in index.items() if key != "sha256"}
    return json.dumps({**body, "sha256": hashlib.sha256(json.dumps(body).encode()).hexdigest()}, indent=1).encode()


def find_mismatches(folder: Path, contents: Contents) -> Iterator[str]:
    """Yield what is wrong with a folder's files, as "train/src/ids.bin has 9 bytes instead of 12".

    Where a folder is a link, nothing is looked at: what lies behind it is no part of the whole, and may be another's
    tomorrow.
    """
    try:
        linked = _linked(folder, contents)
    except OSError as error:
        yield f"{folder.name} cannot be read: {error.strerror or error}"
        return
    if linked:
        yield from (f"{name} is a symbolic link" for name in linked)
        return
    for name, entry in contents.items():
        try:
            with open_regular_file(folder / name) as stream:
                size = os.fstat(stream.fileno()).st_size
                if size != entry.size:
                    yield f"{name} has {size:,} bytes instead of {entry.size:,}"
                elif digest(stream) != entry.sha256:
                    yield f"{name} is not as it was written"
        except (OSError, ValueError) as error:
            check_system(folder / name, error)
            yield f"{name} cannot be read: {getattr(error, 'strerror', None) or error}"


def _linked(folder: Path, contents: Contents) -> list[str]:
    """Return the names of those folders that are symbolic links, from the outermost to the ones furthest below."""
    folders = {Path(), *(parent for name in contents for parent in Path(name).parents)}
    return [part.as_posix() if part.parts else folder.name for part in sorted(folders) if (folder / part).is_symlink()]
