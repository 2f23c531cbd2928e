"""Encoded lines on disk: ragged rows of ids, mapped into memory and read by index.

A store is a folder of three files: ``ids.bin`` (all ids, row after row), ``offsets.bin`` (where each row begins, and
the end) and ``index.json``. It can always be rebuilt from text, so a damaged one is refused, never mended.
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

FORMAT = 1
_CHUNK = 1 << 20  # rows
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
    """Rows of ids in a folder written by ``write_store``, memory-mapped: only pages that are read take memory."""

    def __init__(self, folder: Path, ids: npt.NDArray[Any], offsets: Ids, index: StoreIndex) -> None:
        self._folder = folder
        self.ids = ids
        """(N,) the ids of all rows, row after row, a view of the file: little-endian, two bytes each or four."""
        self.offsets = offsets
        """(n + 1,) the start of each row in ``ids``, and the end, a view of the file."""
        self.vocab_size: int = index.vocab_size
        self.fingerprint: str = index.fingerprint
        """Hash that changes with any id or row border. Taken while writing; opening does not read the ids."""

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Map a store, checking the sizes of its files. Raises ``RunError`` naming the file that is wrong."""
        index = read_index(folder / "index.json", StoreIndex)
        if index.fingerprint != _fingerprint(index.model_dump()) or index.dtype != _dtype(index.vocab_size):
            raise _damaged(folder / "index.json", "does not describe this folder")
        ids = _map(folder / "ids.bin", np.dtype(index.dtype), index.ids)
        offsets = _map(folder / "offsets.bin", np.dtype("<i8"), index.lines + 1)
        if offsets[0] != 0 or offsets[-1] != index.ids:
            raise _damaged(folder / "offsets.bin", "does not fit ids.bin")
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
        """Drop the pages of the ids [begin, end) from this process's memory; they can be read again."""
        base: Any = self.ids.base
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            first = begin * self.ids.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
            base.madvise(mmap.MADV_DONTNEED, first, end * self.ids.itemsize - first)

    @property
    def lengths(self) -> Sizes:
        """(n,) ids in each row, read from the file anew at each call. Raises ``RunError`` where rows overlap."""
        lengths = np.empty(len(self), np.int32)
        last = np.zeros(1, np.int64)
        # Not through the map, of which every page read once would stay resident.
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
        """Return the ids of several rows laid end to end, and the length of each row.

        Raises:
            RunError: A row has no ids of its own, or an id is none of the vocabulary.
        """
        starts = self.offsets[rows]
        return self._gather(starts, self.offsets[rows + 1] - starts)

    def gather_parts(self, rows: Ids, skip: Ids, lengths: Ids) -> Ids:
        """Return ids laid end to end: ``lengths`` of each row after the first ``skip``. Raises as ``gather`` does."""
        starts = self.offsets[rows] + skip
        if len(rows) and ((lengths < 0).any() or (starts + lengths > self.offsets[rows + 1]).any()):
            raise _damaged(self._folder / "offsets.bin", "has shorter rows than requested")
        return self._gather(starts, lengths)[0]

    def _gather(self, starts: Ids, lengths: Ids) -> tuple[Ids, Ids]:
        if len(lengths) and (lengths.min() < 0 or starts.min() < 0 or (starts + lengths).max() > len(self.ids)):
            raise _damaged(self._folder / "offsets.bin", "has row offsets that are out of order or beyond the ids")
        ids = self.ids[ranges(starts, lengths)].astype(np.int64)
        # Beyond the vocabulary lies no embedding: torch ends such a look-up with an error, and a GPU is lost with it.
        if len(ids) and ids.max() >= self.vocab_size:
            raise _damaged(self._folder / "ids.bin", f"has id {ids.max()}, vocabulary size {self.vocab_size}")
        return ids, lengths


class StoreWriter:
    """Appends rows to the open files of a store and remembers no more than counts and two running hashes."""

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
        """Append rows. Raises ``ValueError`` for an id outside the vocabulary."""
        ends = self._n_ids + np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        self.append(np.fromiter(itertools.chain.from_iterable(rows), np.int64), ends)

    def append(self, ids: npt.NDArray[Any], ends: Ids) -> None:
        """Append ids, and ends of rows, counted in ids from the first of the store: a row may come in several parts.

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
        """Return the content of ``index.json`` for the rows so far. Raises ``ValueError`` if the last has no end."""
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
    """Give a writer for a store in ``folder`` (empty, below an ``atomic.atomic_dir``); the index is written last."""
    with atomic.create_exclusive(folder / "ids.bin") as ids, atomic.create_exclusive(folder / "offsets.bin") as offsets:
        writer = StoreWriter(ids, offsets, vocab_size)
        yield writer
    atomic.write_new_file(folder / "index.json", json.dumps(writer.index(), indent=1).encode())


def write_store(folder: Path, batches: Iterable[Sequence[Sequence[int]]], vocab_size: int) -> Store:
    """Write a store in the time and memory of one batch; the folder appears when it is complete, or not at all."""
    with atomic.atomic_dir(folder) as temporary, store_writer(temporary, vocab_size) as writer:
        for rows in batches:
            writer.add(rows)
    return Store.open(folder)


def read_index(path: Path, schema: type[Index]) -> Index:
    """Return the JSON index of an encoded folder. Raises ``RunError`` if it is missing, damaged or another format's."""
    try:
        index = parse_json(read_regular_file(path, _MAX_INDEX_BYTES))
    except (OSError, ValueError) as error:
        check_system(path, error)
        raise _damaged(path, "cannot be read") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise _damaged(path, f"is not of format {FORMAT}")
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
            # A plain view: slices of np.memmap itself cost a microsecond each. An empty file cannot be mapped.
            return np.memmap(stream, dtype, "r").view(np.ndarray) if n else np.empty(0, dtype)
    except (OSError, ValueError) as error:
        check_system(path, error)
        raise _damaged(path, "cannot be read") from error


def _damaged(path: Path, what: str) -> RunError:
    # What to remove for it, only the caller knows: a store is one part of what was encoded together.
    return RunError(f"the encoded data is damaged: {path.name} {what}", where=str(path))


def ranges(starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Ids:
    """Return ``starts[i], starts[i] + 1, ...``, ``lengths[i]`` numbers each, end to end."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(int(ends[-1]) if len(ends) else 0)


def _dtype(vocab_size: int) -> str:
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def _fingerprint(index: dict[str, Any]) -> str:
    named = {key: value for key, value in index.items() if key != "fingerprint"}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
