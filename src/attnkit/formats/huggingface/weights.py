"""Reader of untrusted safetensors files: the header is checked before any tensor."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from attnkit.errors import RunError, system_failure
from attnkit.io.safe_read import TensorEntry, is_file_fault, open_regular_file, parse_json, tensor_entries

MAX_HEADER_BYTES = 1 << 25  #: limit on the header; ten thousand tensors take about 1 MB
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PICKLES = ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack")
_PREFIX = 8  # bytes at the start of a file that encode the size of its header


def find_weights(folder: Path) -> Path:
    """Return the file of weights in a folder; raise ``RunError`` if attnkit reads none of them."""
    path = folder / "model.safetensors"
    if path.exists():
        return path
    pickles = [name for name in PICKLES if (folder / name).exists()]
    if pickles:
        help = "convert it: AutoModel.from_pretrained(DIR).save_pretrained(DIR, safe_serialization=True)"
        raise RunError(f"{pickles[0]} is not supported; only safetensors files are read", where=str(folder), help=help)
    if (folder / "model.safetensors.index.json").exists():
        help = 'write it as one file: save_pretrained(DIR, max_shard_size="100GB")'
        raise RunError("sharded weights are not supported", where=str(folder), help=help)
    raise RunError(f"no model.safetensors in {folder}", help="use a folder written by save_pretrained")


class TensorFile:
    """Open safetensors file."""

    def __init__(self, stream: BinaryIO, entries: Mapping[str, TensorEntry], where: str) -> None:
        self._stream, self.entries, self._where = stream, entries, where

    def read(self, name: str) -> Tensor:
        """Return a tensor as float32; raise ``RunError`` if truncated or not finite."""
        entry = self.entries[name]
        self._stream.seek(entry.begin)
        raw = bytearray(entry.end - entry.begin)
        if self._stream.readinto(raw) != len(raw):  # type: ignore[attr-defined]
            raise RunError("the weights file is truncated", where=self._where)
        tensor = torch.frombuffer(raw, dtype=DTYPES[entry.dtype]).reshape(entry.shape).to(torch.float32)
        if not bool(torch.isfinite(tensor).all()):
            raise RunError(f"the weight '{name}' has values that are not finite", where=self._where)
        return tensor


@contextmanager
def opened(path: Path) -> Iterator[TensorFile]:
    """Open a safetensors file and check its header.

    Raises ``RunError`` if the file is invalid or damaged, ``SystemFailure`` for other read errors.
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
    return tensor_entries(parse_json(stream.read(n_header)), begin, size)
