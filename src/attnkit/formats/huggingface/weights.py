"""Tensors of a safetensors file that anybody may have made: its header is checked before anything is read or made."""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from attnkit.errors import RunError, system_failure
from attnkit.io.safe_read import is_file_fault, open_regular_file, parse_json

MAX_HEADER_BYTES = 1 << 25  #: bytes; ten thousand tensors take one megabyte
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_PREFIX = 8  # bytes, in which a file says how long its header is
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class TensorEntry:
    """Position, shape and dtype of a tensor in a file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int  #: bytes from the beginning of the file
    end: int


class TensorFile:
    """An open file of tensors."""

    def __init__(self, stream: BinaryIO, entries: Mapping[str, TensorEntry], where: str) -> None:
        self._stream, self.entries, self._where = stream, entries, where

    def read(self, name: str) -> Tensor:
        """Return a tensor in float32. Raises ``RunError`` where it is cut off, holds no numbers or any not finite."""
        entry = self.entries[name]
        self._stream.seek(entry.begin)
        raw = bytearray(entry.end - entry.begin)
        if self._stream.readinto(raw) != len(raw):  # type: ignore[attr-defined]
            raise RunError("the weights end too early", where=self._where)
        tensor = torch.frombuffer(raw, dtype=DTYPES[entry.dtype]).reshape(entry.shape).to(torch.float32)
        if not bool(torch.isfinite(tensor).all()):
            raise RunError(f"the weights '{name}' are not finite", where=self._where)
        return tensor


@contextmanager
def opened(path: Path) -> Iterator[TensorFile]:
    """Open a file of tensors.

    Raises ``RunError`` if it is none or damaged, ``SystemFailure`` if it cannot be read for another reason.
    """
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(open_regular_file(path, follow=True))
            entries = _header(stream)
        except ValueError as error:
            raise RunError(f"the weights cannot be used: {error}", where=str(path)) from error
        except OSError as error:
            if is_file_fault(error):
                raise RunError(f"the weights cannot be read: {error.strerror}", where=str(path)) from error
            raise system_failure("read", path, error) from error
        yield TensorFile(stream, entries, str(path))


def _header(stream: BinaryIO) -> dict[str, TensorEntry]:
    size = os.fstat(stream.fileno()).st_size
    n_header = int.from_bytes(stream.read(_PREFIX), "little")
    begin = _PREFIX + n_header
    if size < begin or n_header > MAX_HEADER_BYTES:
        raise ValueError("this is not a safetensors file")
    header = parse_json(stream.read(n_header))
    if not isinstance(header, dict):
        raise ValueError("its header describes no tensors")
    header.pop("__metadata__", None)
    entries: dict[str, TensorEntry] = {}
    for name, value in header.items():
        if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"'{name[:80]}' is not described as a tensor")
        shape, span, dtype = value["shape"], value["data_offsets"], value["dtype"]
        numbers = [*shape, *span] if isinstance(shape, list) and isinstance(span, list) else [None]
        if not all(type(number) is int and number >= 0 for number in numbers) or len(span) != 2:
            raise ValueError(f"'{name[:80]}' has no shape or no place")
        if not isinstance(dtype, str) or dtype not in _SIZES:
            raise ValueError(f"'{name[:80]}' is of the type {str(dtype)[:20]}")
        if span[1] - span[0] != math.prod(shape) * _SIZES[dtype]:
            raise ValueError(f"'{name[:80]}' does not take the bytes of its shape")
        entries[name] = TensorEntry(dtype, tuple(shape), begin + span[0], begin + span[1])
    last = begin
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != last:
            raise ValueError("its tensors overlap or leave gaps")
        last = entry.end
    if last != size:
        raise ValueError(f"its tensors take {last:,} bytes, and it has {size:,}")
    return entries
