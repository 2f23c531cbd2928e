"""One checkpoint folder: every byte handed out has been checked against the manifest.

Knows nothing of what the files mean. Nothing is unpickled, no link is followed, no size believed before it is checked.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from attnkit.checkpoints import manifest as manifests
from attnkit.checkpoints.manifest import Content, Manifest
from attnkit.errors import RunError, system_failure
from attnkit.io import atomic
from attnkit.io.dir_digest import Entry, digest
from attnkit.io.safe_read import open_regular_file

# These say that the file on disk is not what was saved. Any other cause (no permission, too many open files) says
# nothing about the checkpoint, and must not make a run fall back to an older one.
_DAMAGE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EIO, errno.ENODATA)
REPLACED = ".replaced"


class Checkpoint:
    """Files of one moment of a run, with their manifest.

    ``name`` is how a user calls it ("step-40", "averaged"); ``step`` is the number of training steps taken.
    """

    def __init__(self, path: Path, name: str, manifest: Manifest) -> None:
        self.path = path
        self.name = name
        self.manifest = manifest

    @property
    def step(self) -> int:
        """Training steps taken when it was saved."""
        return self.manifest.step

    def entry(self, file: str) -> Entry:
        """Return what a file must look like. Raises ``RunError`` when the checkpoint has no such file."""
        if file not in self.manifest.files:
            held = ", ".join(sorted(self.manifest.files))
            raise RunError(f"checkpoint {self.name} has no {file}", where=str(self.path), help=f"it holds {held}")
        return self.manifest.files[file]

    def read(self, file: str) -> bytes:
        """Return the content of a file. Raises ``RunError`` when it is not what was saved."""
        with self._opened(file) as stream:
            data = stream.read(self.entry(file).size)
        if hashlib.sha256(data).hexdigest() != self.entry(file).sha256:
            raise self._damaged(file, "its checksum does not match the manifest")
        return data

    def verify(self) -> None:
        """Check every file in bounded memory. Raises ``RunError`` naming the first that is not what was saved."""
        for fault in self.find_mismatches():
            raise fault

    def find_mismatches(self) -> Iterator[RunError]:
        """Check every file in bounded memory; yield an error for each that is not what was saved."""
        for file, entry in self.manifest.files.items():
            try:
                with self._opened(file) as stream:
                    if digest(stream) != entry.sha256:
                        raise self._damaged(file, "its checksum does not match the manifest")
            except RunError as error:
                yield error

    @contextmanager
    def _opened(self, file: str) -> Iterator[BinaryIO]:
        expected = self.entry(file).size
        with _reading(self.path, self.name, file) as stream:
            found = os.fstat(stream.fileno()).st_size
            if found != expected:
                raise self._damaged(file, f"it has {found} bytes, the manifest says {expected}")
            yield stream

    def _damaged(self, file: str, why: str) -> RunError:
        return _damage(self.path, self.name, file, why)


def open_checkpoint(path: Path, name: str) -> Checkpoint:
    """Open a checkpoint folder and check its manifest, not yet the files. Raises ``RunError`` when it is damaged."""
    if path.is_symlink():
        raise _damage(path, name, None, "it is a symbolic link")
    with _reading(path, name, manifests.FILE_NAME) as stream:
        raw = stream.read(manifests.MAX_BYTES + 1)
    if len(raw) > manifests.MAX_BYTES:
        raise _damage(path, name, manifests.FILE_NAME, "it is far too long")
    try:
        manifest = manifests.parse(raw)
    except ValueError as error:
        raise _damage(path, name, manifests.FILE_NAME, str(error)) from error
    if name.startswith("step-") and name != f"step-{manifest.step}":
        raise _damage(path, name, manifests.FILE_NAME, f"it belongs to step {manifest.step}")
    return Checkpoint(path, name, manifest)


def write_checkpoint(path: Path, name: str, step: int, contents: Mapping[str, Content]) -> Checkpoint:
    """Write a whole checkpoint durably, or nothing.

    One that stands at ``path`` already stays loadable until the new one is durable: for the moment between two renames
    it is called ``<name>.replaced``, where discovery finds it after a crash.
    """
    manifest = manifests.describe(step, contents)
    replaced = replaced_path(path)
    with atomic.atomic_dir(path) as folder:
        for file, content in contents.items():
            if callable(content):
                with atomic.create_exclusive(folder / file) as stream:
                    stream.writelines(content())
            else:
                atomic.write_new_file(folder / file, content)
        atomic.write_new_file(folder / manifests.FILE_NAME, manifest.render())
        if os.path.lexists(path):
            atomic.remove_tree(replaced)
            atomic.move(path, replaced)
    atomic.remove_tree(replaced)
    return Checkpoint(path, name, manifest)


def replaced_path(path: Path) -> Path:
    """Return where ``write_checkpoint`` keeps the old checkpoint while it puts a new one in its place."""
    return path.with_name(path.name + REPLACED)


@contextmanager
def _reading(path: Path, name: str, file: str) -> Iterator[BinaryIO]:
    """Open a file of a checkpoint; what is wrong with it is told apart from what is wrong with this process."""
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
