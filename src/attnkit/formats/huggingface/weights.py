"""Reader of untrusted files of weights: all is checked before any tensor is read.

They are safetensors files, or ``pytorch_model.bin``, whose pickle is interpreted, never loaded.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from attnkit.errors import RunError, system_failure
from attnkit.formats.huggingface.pickled_weights import PickledTensors, read_pickled
from attnkit.io.safe_read import (
    TensorEntry,
    is_file_fault,
    open_regular_file,
    parse_json,
    read_regular_file,
    tensor_entries,
)

MAX_HEADER_BYTES = 1 << 25  #: limit on the header; ten thousand tensors take about 1 MB
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PICKLED = "pytorch_model.bin"
FILES = ("model.safetensors", PICKLED)  #: files of weights that are read, in order of preference
INDICES = tuple(f"{name}.index.json" for name in FILES)  #: lists of the shards of such files
MAX_INDEX_BYTES = 1 << 25  #: limit on such a list
MAX_SHARDS = 256  #: limit on the shards, which are open at the same time
OTHERS = ("tf_model.h5", "flax_model.msgpack")
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_PREFIX = 8  # bytes at the start of a file that encode the size of its header


def find_weights(folder: Path) -> Path:
    """Return the file of weights in a folder; raise ``RunError`` without one."""
    for name in (name for pair in zip(FILES, INDICES, strict=True) for name in pair):  # as transformers prefers them
        if (folder / name).exists():
            return folder / name
    others = [name for name in OTHERS if (folder / name).exists()]
    if others:
        help = "convert it: AutoModel.from_pretrained(DIR, from_tf=True).save_pretrained(DIR)"
        what = f"{others[0]} is not supported; read are {' and '.join(FILES)}"
        raise RunError(what, where=str(folder), help=help)
    help = "use a folder written by save_pretrained"
    raise RunError(f"no {' or '.join(FILES)} in {folder}", help=help)


class TensorFile:
    """Open file of weights."""

    def __init__(self, stream: BinaryIO, tensors: PickledTensors, where: str) -> None:
        self._stream, self._where = stream, where
        self.entries: Mapping[str, TensorEntry] = tensors.entries
        self._strides = tensors.strides

    def check_size(self, names: Iterable[str]) -> None:
        """Raise ``RunError`` if these tensors share parts, thus exceed the file."""
        n_bytes = sum(self.entries[name].end - self.entries[name].begin for name in names)
        if n_bytes > os.fstat(self._stream.fileno()).st_size:
            raise RunError("different weights share parts of the file", where=self._where)

    def read(self, name: str) -> Tensor:
        """Return a tensor as float32; raise ``RunError`` if truncated or not finite."""
        entry = self.entries[name]
        raw = bytearray(entry.end - entry.begin)
        self._fill(memoryview(raw), entry.begin)
        plain = torch.frombuffer(raw, dtype=DTYPES[entry.dtype])
        strides = self._strides.get(name)
        tensor = plain.reshape(entry.shape) if strides is None else plain.as_strided(entry.shape, strides)
        return self._checked(name, tensor.contiguous())

    def read_rows(self, name: str, rows: Sequence[int]) -> Tensor:
        """Return rows as float32, without the others in memory; raise as ``read``.

        Of a tensor that does not lie row by row in the file, all is read.
        """
        entry = self.entries[name]
        n_rows, *shape = entry.shape
        if name in self._strides:
            return self.read(name)[torch.tensor(rows)]
        size = (entry.end - entry.begin) // n_rows
        raw = bytearray(size * len(rows))
        view, first = memoryview(raw), 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or rows[end] != rows[end - 1] + 1:  # the end of rows that lie together
                self._fill(view[first * size : end * size], entry.begin + rows[first] * size)
                first = end
        return self._checked(name, torch.frombuffer(raw, dtype=DTYPES[entry.dtype]).reshape(len(rows), *shape))

    def _fill(self, place: memoryview, begin: int) -> None:
        self._stream.seek(begin)
        if self._stream.readinto(place) != len(place):  # type: ignore[attr-defined]
            raise RunError("the weights file is truncated", where=self._where)

    def _checked(self, name: str, tensor: Tensor) -> Tensor:
        tensor = tensor.to(torch.float32)
        if not bool(torch.isfinite(tensor).all()):
            raise RunError(f"the weight '{name}' has values that are not finite", where=self._where)
        return tensor


class ShardedTensors(TensorFile):
    """Open shards of weights, read as one file."""

    def __init__(self, shards: Mapping[str, TensorFile]) -> None:
        """Join shards by name; raise ``ValueError`` if two have the same tensor."""
        self._shard_of: dict[str, TensorFile] = {}
        for file, shard in shards.items():
            for name in shard.entries:
                if self._shard_of.setdefault(name, shard) is not shard:
                    raise ValueError(f"'{name[:80]}' is in {file[:80]} and in another shard")
        self.entries = {name: entry for shard in shards.values() for name, entry in shard.entries.items()}

    def check_size(self, names: Iterable[str]) -> None:
        """Raise ``RunError`` if tensors share parts, thus exceed their shard."""
        of_shard: dict[TensorFile, list[str]] = {}
        for name in names:
            of_shard.setdefault(self._shard_of[name], []).append(name)
        for shard, own in of_shard.items():
            shard.check_size(own)

    def read(self, name: str) -> Tensor:
        """Return a tensor as float32; raise ``RunError`` if truncated or not finite."""
        return self._shard_of[name].read(name)

    def read_rows(self, name: str, rows: Sequence[int]) -> Tensor:
        """Return rows as float32, without the others in memory; raise as ``read``."""
        return self._shard_of[name].read_rows(name, rows)


@contextmanager
def opened(path: Path) -> Iterator[TensorFile]:
    """Open a file of weights or listed shards, and check what they say of tensors.

    Raises ``RunError`` if a file is missing, invalid or damaged, ``SystemFailure`` for other read errors.
    """
    if path.name not in INDICES:
        with _opened_file(path) as file:
            yield file
        return
    with ExitStack() as stack:
        listed = _read_index(path)
        shards = {name: stack.enter_context(_opened_file(path.parent / name)) for name in sorted({*listed.values()})}
        try:
            joined = ShardedTensors(shards)
            for tensor, name in listed.items():
                if tensor not in shards[name].entries:
                    raise ValueError(f"'{tensor[:80]}' is not in {name[:80]}")
            if extra := sorted(joined.entries.keys() - listed.keys()):
                raise ValueError(f"'{extra[0][:80]}' is in a shard, but not in the list")
        except ValueError as error:
            raise RunError(f"the shards do not match their list: {error}", where=str(path)) from error
        yield joined


def _read_index(path: Path) -> dict[str, str]:
    """Return tensor name -> shard of an index; raise ``RunError`` if it is invalid."""
    kind = ".safetensors" if path.name == INDICES[0] else ".bin"
    with _faults(path, "the list of shards"):
        tree = parse_json(read_regular_file(path, MAX_INDEX_BYTES, follow=True))
        listed = tree.get("weight_map") if isinstance(tree, dict) else None
        if not isinstance(listed, dict) or not listed or not all(isinstance(file, str) for file in listed.values()):
            raise ValueError("it has no weight_map of tensor names to files")
        files = {*listed.values()}
        # A bare name: a path could leave the folder.
        odd = sorted(file for file in files if not _SHARD.fullmatch(file) or not file.endswith(kind))
        if odd:
            raise ValueError(f"{odd[0][:80]!r} is not the name of a {kind} file in the folder")
        if len(files) > MAX_SHARDS:
            raise ValueError(f"it names {len(files):,} files, more than {MAX_SHARDS}")
    return listed


@contextmanager
def _faults(path: Path, what: str) -> Iterator[None]:
    """Raise ``RunError`` for a fault of a file, ``SystemFailure`` for others."""
    try:
        yield
    except ValueError as error:
        raise RunError(f"{what} cannot be used: {error}", where=str(path)) from error
    except OSError as error:
        if is_file_fault(error):
            raise RunError(f"{what} cannot be read: {error.strerror}", where=str(path)) from error
        raise system_failure("read", path, error) from error


@contextmanager
def _opened_file(path: Path) -> Iterator[TensorFile]:
    """Open a file of weights and check what it says of its tensors.

    Raises ``RunError`` if the file is invalid or damaged, ``SystemFailure`` for other read errors.
    """
    with ExitStack() as stack:
        with _faults(path, "the weights"):
            stream = stack.enter_context(open_regular_file(path, follow=True))
            tensors = read_pickled(stream) if path.suffix == ".bin" else PickledTensors(_header(stream), {})
        yield TensorFile(stream, tensors, str(path))


def _header(stream: BinaryIO) -> dict[str, TensorEntry]:
    size = os.fstat(stream.fileno()).st_size
    n_header = int.from_bytes(stream.read(_PREFIX), "little")
    begin = _PREFIX + n_header
    if size < begin or n_header > MAX_HEADER_BYTES:
        raise ValueError("this is not a safetensors file")
    return tensor_entries(parse_json(stream.read(n_header)), begin, size)
