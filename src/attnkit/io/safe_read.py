"""Safe reads of untrusted files: size limits, JSON, tensor headers, checksums."""

import contextlib
import errno
import gzip
import hashlib
import json
import lzma
import math
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple, TypeAlias

from pydantic import BaseModel, Field, StringConstraints

from attnkit.errors import UsageError, system_failure

MAX_JSON_VALUES = 1 << 22  #: limit on the values of one JSON text; each takes about 60 bytes in memory


@contextlib.contextmanager
def open_regular_file(path: Path, *, follow: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file for reading; never wait for a pipe or touch a device.

    ``follow`` allows symbolic links, for paths typed by a user; otherwise a link raises ``OSError``. Raises
    ``ValueError`` if the path is not a regular file, ``OSError`` if opening or reading fails.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    # Check before fdopen: fdopen of a folder raises and leaks the descriptor.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("not a regular file")
    with os.fdopen(descriptor, "rb") as stream:
        yield stream


def is_file_fault(error: OSError) -> bool:
    """Return whether an error is due to the file, not permissions or resources."""
    return error.errno not in (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def check_system(path: Path, error: Exception) -> None:
    """Raise ``SystemFailure`` if a read lacked permissions, descriptors or memory."""
    if isinstance(error, OSError) and not is_file_fault(error):
        raise system_failure("read", path, error) from error


def read_regular_file(path: Path, most: int, *, follow: bool = False) -> bytes:
    """Read a regular file; raise ``ValueError`` if it has more than ``most`` bytes."""
    with open_regular_file(path, follow=follow) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            raise ValueError(f"it has {size:,} bytes, more than the maximum of {most:,}")
        return stream.read(min(most, size + 4096))  # read(n) allocates n bytes first


def read_attribute(path: Path, name: str) -> bytes | None:
    """Return an extended attribute of a file, which a file system limits to 64 KiB.

    None if it has none, or the system has no such attributes.
    """
    if sys.platform != "linux":
        return None
    try:
        return os.getxattr(path, f"user.{name}")
    except (OSError, ValueError):
        return None


def file_equals(path: Path, content: bytes) -> bool:
    """Return whether ``path`` is a regular file with this content."""
    try:
        return read_regular_file(path, len(content)) == content
    except (OSError, ValueError):
        return False


def parse_json(raw: bytes) -> Any:
    """Parse JSON; raise ``ValueError`` for duplicate keys, NaN or excessive size."""
    # Counted first: 1 MB of brackets would take 40 MB as lists. Characters inside strings count too.
    if sum(raw.count(sign) for sign in (b",", b"[", b"{")) > MAX_JSON_VALUES:
        raise ValueError(f"it has more than {MAX_JSON_VALUES:,} values")
    try:
        return _DECODER.decode(raw.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is {'too large' if text[-1].isdigit() else 'not a number'}")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_mapping, parse_float=_finite, parse_constant=_finite)


class TensorEntry(NamedTuple):
    """Dtype, shape and byte range of a tensor in a safetensors file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int  #: byte offset from the start of the file
    end: int


ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def tensor_entries(header: Any, begin: int, size: int) -> dict[str, TensorEntry]:
    """Return the entries of a safetensors header; the data starts at byte ``begin``.

    Raises ``ValueError`` unless the byte ranges match the shapes and fill the file of ``size`` bytes without gaps.
    """
    if not isinstance(header, dict):
        raise ValueError("the header describes no tensors")
    entries: dict[str, TensorEntry] = {}
    for name, value in header.items():
        if name == "__metadata__":
            continue
        if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"the header entry '{name[:80]}' does not describe a tensor")
        shape, span, dtype = value["shape"], value["data_offsets"], value["dtype"]
        numbers = [*shape, *span] if isinstance(shape, list) and isinstance(span, list) else [None]
        integers = all(type(number) is int and number >= 0 for number in numbers)
        if not integers or len(span) != 2 or len(shape) > 8:  # a product of many long integers would take minutes
            raise ValueError(f"'{name[:80]}' has no shape or no byte range")
        if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
            raise ValueError(f"'{name[:80]}' has the unsupported dtype {str(dtype)[:20]}")
        if span[1] - span[0] != math.prod(shape) * ITEM_BYTES[dtype]:
            raise ValueError(f"the byte range of '{name[:80]}' does not match its shape")
        entries[name] = TensorEntry(dtype, tuple(shape), begin + span[0], begin + span[1])
    last = begin
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != last:
            raise ValueError("the tensors overlap or leave gaps")
        last = entry.end
    if last != size:
        raise ValueError(f"the tensors end at byte {last:,}, but the file has {size:,} bytes")
    return entries


_CHUNK = 1 << 20
_PART = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
# A path below the folder: no hidden parts, no "..".
Below = Annotated[str, StringConstraints(pattern=f"^{_PART}(/{_PART}){{0,3}}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Entry(BaseModel, frozen=True, extra="forbid", strict=True):
    """Expected size and digest of one file."""

    size: int = Field(ge=0)
    """Size in bytes."""
    sha256: Digest
    """SHA-256 of the whole file, in hexadecimal."""


Contents: TypeAlias = dict[Below, Entry]  #: expected entry per path


def digest(stream: BinaryIO) -> str:
    """Return the hexadecimal SHA-256 of the rest of a stream, using 1 MB of memory."""
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
    """Return ``index`` as JSON with its own SHA-256 under the key ``sha256``.

    An existing checksum is replaced. Parsing and rendering the result must give the same bytes.
    """
    body = {key: value for key, value in index.items() if key != "sha256"}
    return json.dumps({**body, "sha256": hashlib.sha256(json.dumps(body).encode()).hexdigest()}, indent=1).encode()


def find_mismatches(folder: Path, contents: Contents) -> Iterator[str]:
    """Yield a message for each file of a folder that does not match ``contents``.

    Symbolic links to folders are reported, not followed: their targets can change independently.
    """
    folders = {Path(), *(parent for name in contents for parent in Path(name).parents)}
    try:
        linked = [part for part in sorted(folders) if (folder / part).is_symlink()]  # outermost first
    except OSError as error:
        yield f"{folder.name} cannot be read: {error.strerror or error}"
        return
    if linked:
        yield from (f"{part.as_posix() if part.parts else folder.name} is a symbolic link" for part in linked)
        return
    for name, entry in contents.items():
        try:
            with open_regular_file(folder / name) as stream:
                size = os.fstat(stream.fileno()).st_size
                if size != entry.size:
                    yield f"{name} has {size:,} bytes instead of {entry.size:,}"
                elif digest(stream) != entry.sha256:
                    yield f"{name} is damaged: its checksum does not match"
        except (OSError, ValueError) as error:
            check_system(folder / name, error)
            yield f"{name} cannot be read: {getattr(error, 'strerror', None) or error}"


def is_damage(error: Exception) -> bool:
    """Return whether an error means a damaged compressed file; not for ``.bz2``."""
    # The error of Zstandard is known by its name, since its package may not be installed.
    known = isinstance(error, (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError))
    return known or type(error).__name__ == "ZstdError"


def open_zstd(file: Any) -> object:
    """Open a ``.zst`` file, by its path or as a binary stream, for reading."""
    return zstd_module().open(file)


def zstd_module() -> Any:
    """Return the module of Zstandard; raise ``UsageError`` if it is not installed."""
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            from backports import zstd
        except ImportError as error:
            what = ".zst files need the package backports.zstd, which is not installed"
            raise UsageError(what, help='pip install "attnkit[zst]"') from error
    return zstd
