"""Reader of untrusted files of weights: all is checked before any tensor is read.

They are safetensors files, or ``pytorch_model.bin``, whose pickle is interpreted, never loaded.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from attnkit.errors import RunError, system_failure
from attnkit.formats.huggingface.pickled_weights import PickledTensors, read_pickled
from attnkit.io.safe_read import TensorEntry, is_file_fault, open_regular_file, parse_json, tensor_entries

MAX_HEADER_BYTES = 1 << 25  #: limit on the header; ten thousand tensors take about 1 MB
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PICKLED = "pytorch_model.bin"
FILES = ("model.safetensors", PICKLED)  #: files of weights that are read, in order of preference
OTHERS = ("tf_model.h5", "flax_model.msgpack")
_PREFIX = 8  # bytes at the start of a file that encode the size of its header


def find_weights(folder: Path) -> Path:
    """Return the file of weights in a folder; raise ``RunError`` without one."""
    for name in FILES:
        if (folder / name).exists():
            return folder / name
    if (folder / "model.safetensors.index.json").exists() or (folder / f"{PICKLED}.index.json").exists():
        help = 'write it as one file: save_pretrained(DIR, max_shard_size="100GB")'
        raise RunError("sharded weights are not supported", where=str(folder), help=help)
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


@contextmanager
def opened(path: Path) -> Iterator[TensorFile]:
    """Open a file of weights and check what it says of its tensors.

    Raises ``RunError`` if the file is invalid or damaged, ``SystemFailure`` for other read errors.
    """
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(open_regular_file(path, follow=True))
            tensors = read_pickled(stream) if path.name == PICKLED else PickledTensors(_header(stream), {})
        except ValueError as error:
            raise RunError(f"the weights cannot be used: {error}", where=str(path)) from error
        except OSError as error:
            if is_file_fault(error):
                raise RunError(f"the weights cannot be read: {error.strerror}", where=str(path)) from error
            raise system_failure("read", path, error) from error
        yield TensorFile(stream, tensors, str(path))


def _header(stream: BinaryIO) -> dict[str, TensorEntry]:
    size = os.fstat(stream.fileno()).st_size
    n_header = int.from_bytes(stream.read(_PREFIX), "little")
    begin = _PREFIX + n_header
    if size < begin or n_header > MAX_HEADER_BYTES:
        raise ValueError("this is not a safetensors file")
    return tensor_entries(parse_json(stream.read(n_header)), begin, size)
