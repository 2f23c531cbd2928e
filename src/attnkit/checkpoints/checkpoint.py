"""Checkpoint folders, whose files are checked for size and SHA-256 before use."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, TypeAlias

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from attnkit.errors import RunError, system_failure
from attnkit.io import atomic
from attnkit.io.atomic import Data
from attnkit.io.safe_read import Digest, Entry, digest, open_regular_file

FORMAT = 1
FILE_NAME = "manifest.json"
MODEL = "model.safetensors"  #: weights of a checkpoint
MAX_BYTES = 1 << 20
MAX_AHEAD = 1 << 29  #: maximum bytes of a file that is read before anybody asks for it

Content: TypeAlias = Data | Callable[[], Iterable[Data]]
"""Content of a file: bytes, or a function that yields chunks, for content too large to copy in memory."""

# A plain file name: no path separator, no "..", not hidden.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]


class Manifest(BaseModel, frozen=True, extra="forbid", strict=True):
    """Manifest of one checkpoint: sizes and checksums of its files."""

    format: int
    """Format version; this module reads and writes version 1."""
    step: int = Field(ge=0)
    """Number of training steps when the checkpoint was saved."""
    files: dict[Name, Entry]
    """Sizes and checksums of all files that loading may read."""

    def render(self) -> bytes:
        """Return the bytes of ``manifest.json``."""
        body = self.model_dump(mode="json")
        digest = hashlib.sha256(_canonical(body)).hexdigest()
        return _canonical({**body, "sha256": digest})


class _Signed(Manifest, frozen=True, extra="forbid", strict=True):
    sha256: Digest


def describe(step: int, contents: Mapping[str, Content]) -> Manifest:
    """Return the manifest of files, given as name -> content.

    Raises ``ValueError`` for a name that is not a plain file name.
    """
    if FILE_NAME in contents:
        raise ValueError(f"{FILE_NAME} is written by the checkpoint itself")
    entries = {}
    for name, content in contents.items():
        size, checksum = 0, hashlib.sha256()
        for data in content() if callable(content) else (content,):
            size += memoryview(data).nbytes
            checksum.update(data)
        entries[name] = Entry(size=size, sha256=checksum.hexdigest())
    return Manifest(format=FORMAT, step=step, files=entries)


class _Versioned(BaseModel, extra="ignore", strict=True):
    format: int


def parse(raw: bytes) -> Manifest:
    """Parse a manifest; raise ``ValueError`` with a readable reason if it is invalid."""
    try:
        signed = _Signed.model_validate_json(raw)
    except ValidationError as error:
        with suppress(ValidationError):
            if (version := _Versioned.model_validate_json(raw).format) > FORMAT:
                newer = f"it was written by a newer version of attnkit (format {version}; this version reads {FORMAT})"
                raise ValueError(newer) from None
        raise ValueError("it is not a valid manifest") from error
    manifest = Manifest(format=signed.format, step=signed.step, files=signed.files)
    if manifest.render() != raw:
        raise ValueError("its checksum does not match its content")
    if manifest.format != FORMAT:
        raise ValueError(f"it has format {manifest.format}, this attnkit reads {FORMAT}")
    return manifest


def _canonical(body: Mapping[str, object]) -> bytes:
    return (json.dumps(body, indent=1, sort_keys=True) + "\n").encode()


# Errors that mean a damaged or missing file. Any other error (no permission, too many open files) says nothing about
# the checkpoint and must not make a run fall back to an older one.
_DAMAGE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EIO, errno.ENODATA)
REPLACED = ".replaced"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Files of a run saved at one step, with their manifest.

    ``name`` is the user's name for it ("step-40", "averaged"); ``step`` is the number of training steps taken. ``base``
    is another run's checkpoint with the weights that an adapter adapts; None for those in its own run.
    """

    path: Path
    name: str
    manifest: Manifest
    base: Checkpoint | None = None
    _ahead: dict[str, Future[bytes]] = field(default_factory=dict, init=False, repr=False)

    @property
    def step(self) -> int:
        """Return the number of training steps when the checkpoint was saved."""
        return self.manifest.step

    def entry(self, file: str) -> Entry:
        """Return a file's size and checksum; raise ``RunError`` for an unknown file."""
        if file not in self.manifest.files:
            held = ", ".join(sorted(self.manifest.files))
            raise RunError(f"checkpoint {self.name} has no {file}", where=str(self.path), help=f"available: {held}")
        return self.manifest.files[file]

    def read_ahead(self, file: str) -> None:
        """Begin to read a file in another thread; ``read`` waits for its end.

        A file of more than ``MAX_AHEAD`` bytes is left to ``read``, whose callers check its size first.
        """
        if self.entry(file).size <= MAX_AHEAD:
            pool = ThreadPoolExecutor(1)
            self._ahead[file] = pool.submit(self._read, file)
            pool.shutdown(wait=False)

    def read(self, file: str) -> bytes:
        """Return the content of a file; raise ``RunError`` if it is damaged."""
        begun = self._ahead.pop(file, None)
        return self._read(file) if begun is None else begun.result()

    def _read(self, file: str) -> bytes:
        with self._opened(file) as stream:
            data = stream.read(self.entry(file).size)
        if hashlib.sha256(data).hexdigest() != self.entry(file).sha256:
            raise _damage(self.path, self.name, file, "its checksum does not match the manifest")
        return data

    def verify(self) -> None:
        """Check all files in bounded memory; raise ``RunError`` at the first damaged one."""
        for fault in self.find_mismatches():
            raise fault

    def find_mismatches(self) -> Iterator[RunError]:
        """Check every file in bounded memory; yield an error per damaged file."""
        for file, entry in self.manifest.files.items():
            try:
                with self._opened(file) as stream:
                    if digest(stream) != entry.sha256:
                        raise _damage(self.path, self.name, file, "its checksum does not match the manifest")
            except RunError as error:
                yield error

    @contextmanager
    def _opened(self, file: str) -> Iterator[BinaryIO]:
        expected = self.entry(file).size
        with _reading(self.path, self.name, file) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != expected:
                raise _damage(self.path, self.name, file, f"it has {size} bytes, the manifest says {expected}")
            yield stream


def open_checkpoint(path: Path, name: str) -> Checkpoint:
    """Open a checkpoint and check only its manifest; raise ``RunError`` if damaged."""
    if path.is_symlink():
        raise _damage(path, name, None, "it is a symbolic link")
    with _reading(path, name, FILE_NAME) as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise _damage(path, name, FILE_NAME, "it is too large")
    try:
        manifest = parse(raw)
    except ValueError as error:
        raise _damage(path, name, FILE_NAME, str(error)) from error
    if name.startswith("step-") and name != f"step-{manifest.step}":
        raise _damage(path, name, FILE_NAME, f"it belongs to step {manifest.step}")
    return Checkpoint(path, name, manifest)


def write_checkpoint(path: Path, name: str, step: int, contents: Mapping[str, Content]) -> Checkpoint:
    """Write a complete checkpoint atomically and durably.

    An old checkpoint at ``path`` can be loaded until the new one is durable. Between two renames its name is
    ``<name>.replaced``; discovery finds it under that name after a crash.
    """
    manifest = describe(step, contents)
    replaced = replaced_path(path)
    with atomic.atomic_dir(path) as folder:
        for file, content in contents.items():
            if callable(content):
                with atomic.create_exclusive(folder / file) as stream:
                    stream.writelines(content())
            else:
                atomic.write_new_file(folder / file, content)
        atomic.write_new_file(folder / FILE_NAME, manifest.render())
        if os.path.lexists(path):
            atomic.remove_tree(replaced)
            atomic.move(path, replaced)
    atomic.remove_tree(replaced)
    return Checkpoint(path, name, manifest)


def replaced_path(path: Path) -> Path:
    """Return the path of an old checkpoint while ``write_checkpoint`` replaces it."""
    return path.with_name(path.name + REPLACED)


@contextmanager
def _reading(path: Path, name: str, file: str) -> Iterator[BinaryIO]:
    """Open a checkpoint file; raise ``RunError`` for damage, else ``SystemFailure``."""
    try:
        with open_regular_file(path / file) as stream:
            yield stream
    except ValueError as error:
        raise _damage(path, name, file, str(error)) from error
    except OSError as error:
        if error.errno in _DAMAGE:
            raise _damage(path, name, file, (error.strerror or str(error)).lower()) from error
        raise system_failure("read", path / file, error) from error


def _damage(path: Path, name: str, file: str | None, why: str) -> RunError:
    part = f"{file} of " if file else ""
    return RunError(f"{part}checkpoint {name} cannot be used: {why}", where=str(path / file if file else path))
