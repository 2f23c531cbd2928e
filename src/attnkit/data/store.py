"""On-disk stores of encoded lines: memory-mapped, ragged rows of ids.

A store is a folder of three files: ``ids.bin`` (the ids of all rows, concatenated), ``offsets.bin`` (the start of each
row, and the end) and ``index.json``. A damaged store is rejected, not repaired: it can be rebuilt from text.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from attnkit.data.permutation import Ids, Sizes
from attnkit.errors import RunError
from attnkit.io import atomic
from attnkit.io.safe_read import check_system, open_regular_file, parse_json, read_regular_file
from attnkit.text.encoding import EncodedLines

FORMAT = 1
_CHUNK = 1 << 20  # rows per chunk
_MAX_INDEX_BYTES = 1 << 20  # bytes


Index = TypeVar("Index", bound=BaseModel)


class StoreIndex(BaseModel, extra="forbid", strict=True):
    """Schema of ``index.json``."""

    format: Literal[1]
    lines: int = Field(ge=0, lt=1 << 40)
    ids: int = Field(ge=0, lt=1 << 50)
    dtype: Literal["<u2", "<u4"]
    vocab_size: int = Field(gt=0, le=1 << 32)
    sha256: dict[Literal["ids.bin", "offsets.bin"], str]
    fingerprint: str


class Store:
    """Memory-mapped rows of ids: only the pages that are read take memory."""

    def __init__(self, folder: Path, ids: npt.NDArray[Any], offsets: Ids, index: StoreIndex) -> None:
        self._folder = folder
        self.ids = ids
        """(N,) view of the file: the ids of all rows, concatenated; little-endian, two or four bytes each."""
        self.offsets = offsets
        """(n + 1,) view of the file: the start of each row in ``ids``, followed by the end."""
        self.vocab_size: int = index.vocab_size
        self.fingerprint: str = index.fingerprint
        """Hash of all ids and row boundaries, computed while writing; opening does not read the ids."""

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Map a store and check its file sizes; raise ``RunError`` if a file is damaged."""
        index = read_index(folder / "index.json", StoreIndex)
        if index.fingerprint != _fingerprint(index.model_dump()) or index.dtype != _dtype(index.vocab_size):
            raise _damaged(folder / "index.json", "does not describe this folder")
        ids = _map(folder / "ids.bin", np.dtype(index.dtype), index.ids)
        offsets = _map(folder / "offsets.bin", np.dtype("<i8"), index.lines + 1)
        if offsets[0] != 0 or offsets[-1] != index.ids:
            raise _damaged(folder / "offsets.bin", "does not match ids.bin")
        return cls(folder, ids, offsets, index)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> npt.NDArray[Any]:
        """Return row ``i``, a view of the file."""
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        row: npt.NDArray[Any] = self.ids[self.offsets[i] : self.offsets[i + 1]]
        return row

    def release(self, begin: int, end: int) -> None:
        """Release the memory pages of ids [begin, end); they can be read again."""
        base: Any = self.ids.base
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            first = begin * self.ids.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
            base.madvise(mmap.MADV_DONTNEED, first, end * self.ids.itemsize - first)

    @property
    def lengths(self) -> Sizes:
        """Return row lengths (n,), reread on every access; raise ``RunError`` if invalid."""
        lengths = np.empty(len(self), np.int32)
        last = np.zeros(1, np.int64)
        # Read the file, not the map, whose pages would stay resident.
        for start in range(0, len(self), _CHUNK):
            rows = lengths[start : start + _CHUNK]
            ends = np.fromfile(self._folder / "offsets.bin", "<i8", len(rows), offset=8 * (start + 1))
            sizes = np.diff(ends, prepend=last)
            if len(ends) != len(rows) or sizes.min() < 0 or sizes.max() >= 1 << 31:
                raise _damaged(self._folder / "offsets.bin", "has row offsets that are out of order or beyond the ids")
            rows[:] = sizes
            last = ends[-1:]
        return lengths

    def gather(self, rows: Ids) -> tuple[Ids, Ids]:
        """Return the concatenated ids of rows, and the length of each row.

        Raises:
            RunError: Row offsets are invalid, or an id is outside the vocabulary.
        """
        starts = self.offsets[rows]
        return self._gather(starts, self.offsets[rows + 1] - starts)

    def gather_parts(self, rows: Ids, skip: Ids, lengths: Ids) -> Ids:
        """Return ``lengths`` ids per row from ``skip`` on, concatenated; see ``gather``."""
        starts = self.offsets[rows] + skip
        if len(rows) and ((lengths < 0).any() or (starts + lengths > self.offsets[rows + 1]).any()):
            raise _damaged(self._folder / "offsets.bin", "has shorter rows than requested")
        return self._gather(starts, lengths)[0]

    def _gather(self, starts: Ids, lengths: Ids) -> tuple[Ids, Ids]:
        if len(lengths) and (lengths.min() < 0 or starts.min() < 0 or (starts + lengths).max() > len(self.ids)):
            raise _damaged(self._folder / "offsets.bin", "has row offsets that are out of order or beyond the ids")
        ids = self.ids[ranges(starts, lengths)].astype(np.int64)
        # Ids outside the vocabulary have no embedding: the lookup would fail and, on a GPU, break the CUDA context.
        if len(ids) and ids.max() >= self.vocab_size:
            raise _damaged(self._folder / "ids.bin", f"has id {ids.max()}, vocabulary size {self.vocab_size}")
        return ids, lengths


class StoreWriter:
    """Streaming writer of a store that keeps only counts and two running hashes."""

    def __init__(self, ids: BinaryIO, offsets: BinaryIO, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._dtype = np.dtype(_dtype(vocab_size))
        self._streams = (ids, offsets)
        self._hashes = (hashlib.sha256(), hashlib.sha256())
        self._n_rows = 0
        self._n_ids = 0
        self._end = 0
        self._write(1, np.zeros(1, "<i8"))

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        """Append rows; raise ``ValueError`` for an id outside the vocabulary."""
        ends = self._n_ids + np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        self.append(np.fromiter(itertools.chain.from_iterable(rows), np.int64), ends)

    def add_encoded(self, rows: EncodedLines) -> None:
        """Append rows; raise ``ValueError`` for an id outside the vocabulary."""
        self.append(rows.ids, self._n_ids + np.cumsum(rows.lengths, dtype=np.int64))

    def append(self, ids: npt.NDArray[Any], ends: Ids) -> None:
        """Append ids, possibly of partial rows, and row ends as offsets in the store.

        Raises:
            ValueError: An id is outside the vocabulary, or ends do not ascend or lie beyond the ids.
        """
        if len(ids) and not (ids.min() >= 0 and ids.max() < self._vocab_size):
            raise ValueError(f"ids from {ids.min()} to {ids.max()} for a vocabulary of {self._vocab_size}")
        self._write(0, ids.astype(self._dtype))
        self._n_ids += len(ids)
        if len(ends):
            if ends[0] < self._end or ends[-1] > self._n_ids or (np.diff(ends) < 0).any():
                raise ValueError(f"invalid row ends {ends} after {self._end}, for {self._n_ids} ids")
            self._write(1, ends.astype("<i8"))
            self._n_rows += len(ends)
            self._end = int(ends[-1])

    def index(self) -> dict[str, Any]:
        """Return the current index; raise ``ValueError`` if the last row is incomplete."""
        if self._end != self._n_ids:
            raise ValueError(f"the last row is incomplete: {self._end} of {self._n_ids} ids")
        index: dict[str, Any] = {
            "format": FORMAT,
            "lines": self._n_rows,
            "ids": self._n_ids,
            "dtype": self._dtype.str,
            "vocab_size": self._vocab_size,
            "sha256": {"ids.bin": self._hashes[0].hexdigest(), "offsets.bin": self._hashes[1].hexdigest()},
        }
        return {**index, "fingerprint": _fingerprint(index)}

    def _write(self, stream: int, values: npt.NDArray[Any]) -> None:
        data = values.tobytes()
        self._streams[stream].write(data)
        self._hashes[stream].update(data)


@contextlib.contextmanager
def store_writer(folder: Path, vocab_size: int) -> Iterator[StoreWriter]:
    """Yield a writer for an empty folder in an ``atomic_dir``; write the index last."""
    with atomic.create_exclusive(folder / "ids.bin") as ids, atomic.create_exclusive(folder / "offsets.bin") as offsets:
        writer = StoreWriter(ids, offsets, vocab_size)
        yield writer
    atomic.write_new_file(folder / "index.json", json.dumps(writer.index(), indent=1).encode())


def write_store(folder: Path, batches: Iterable[Sequence[Sequence[int]]], vocab_size: int) -> Store:
    """Write a store atomically, with one batch in memory at a time, and open it."""
    with atomic.atomic_dir(folder) as temporary, store_writer(temporary, vocab_size) as writer:
        for rows in batches:
            writer.add(rows)
    return Store.open(folder)


def read_index(path: Path, schema: type[Index]) -> Index:
    """Read the JSON index of an encoded folder; raise ``RunError`` if it is unusable."""
    try:
        index = parse_json(read_regular_file(path, _MAX_INDEX_BYTES))
    except (OSError, ValueError) as error:
        check_system(path, error)
        raise _damaged(path, "cannot be read") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise _damaged(path, f"is not in format {FORMAT}")
    try:
        return schema.model_validate_json(json.dumps(index))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "does not describe this folder") from error


def _map(path: Path, dtype: np.dtype[Any], n: int) -> npt.NDArray[Any]:
    try:
        with open_regular_file(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != n * dtype.itemsize:
                raise _damaged(path, f"has {size:,} bytes instead of {n * dtype.itemsize:,}")
            # A plain view, since slicing np.memmap costs a microsecond each time. An empty file cannot be mapped.
            return np.memmap(stream, dtype, "r").view(np.ndarray) if n else np.empty(0, dtype)
    except (OSError, ValueError) as error:
        check_system(path, error)
        raise _damaged(path, "cannot be read") from error


def _damaged(path: Path, what: str) -> RunError:
    # Only the caller knows what to remove: a store is one part of the encoded data.
    return RunError(f"the encoded data is damaged: {path.name} {what}", where=str(path))


def ranges(starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Ids:
    """Return concatenated ranges of ``lengths[i]`` integers, each from ``starts[i]``."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(int(ends[-1]) if len(ends) else 0)


def _dtype(vocab_size: int) -> str:
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def _fingerprint(index: dict[str, Any]) -> str:
    named = {key: value for key, value in index.items() if key != "fingerprint"}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
