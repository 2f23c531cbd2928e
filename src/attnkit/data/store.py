"""Encoded lines on disk: ragged rows of ids, mapped into memory and read by index. Knows no text and no special ids.

A store is a folder of three files: ``ids.bin`` (all ids, row after row), ``offsets.bin`` (where each row begins, and
the end) and ``index.json``. It can always be rebuilt from text, so a damaged one is refused, never mended.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from attnkit import files
from attnkit.errors import RunError

FORMAT = 1
_CHUNK = 1 << 20  # rows


class Store:
    """Rows of ids in a folder written by ``write_store`` or ``writing``; only the pages that are read take memory."""

    def __init__(
        self, folder: Path, ids: npt.NDArray[Any], offsets: npt.NDArray[np.int64], index: dict[str, Any]
    ) -> None:
        self._folder = folder
        self._ids = ids
        self._offsets = offsets
        self.vocab_size: int = index["vocab_size"]
        self.fingerprint: str = index["fingerprint"]
        """Changes with any id or row border. Taken while writing; opening does not read the ids."""

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Map a store, checking the sizes of its files. Raises ``RunError`` naming the file that is wrong."""
        index = read_index(folder / "index.json")
        try:
            n, n_ids, dtype = int(index["lines"]), int(index["ids"]), np.dtype(index["dtype"])
            if index["fingerprint"] != _fingerprint(index):
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(folder / "index.json", "does not describe a store") from error
        ids = _map(folder / "ids.bin", dtype, n_ids)
        offsets = _map(folder / "offsets.bin", np.dtype("<i8"), n + 1)
        if offsets[0] != 0 or offsets[-1] != n_ids:
            raise _damaged(folder / "offsets.bin", "does not fit ids.bin")
        return cls(folder, ids, offsets, index)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, i: int) -> npt.NDArray[Any]:
        """Return row ``i``, a view of the file."""
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        row: npt.NDArray[Any] = self._ids[self._offsets[i] : self._offsets[i + 1]]
        return row

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """(n,) ids in each row, read from the file anew at each call."""
        lengths = np.empty(len(self), np.int32)
        last = np.zeros(1, np.int64)
        # Not through the map, of which every page read once would stay resident.
        for start in range(0, len(self), _CHUNK):
            rows = lengths[start : start + _CHUNK]
            ends = np.fromfile(self._folder / "offsets.bin", "<i8", len(rows), offset=8 * (start + 1))
            rows[:] = np.diff(ends, prepend=last)
            last = ends[-1:]
        return lengths

    def gather(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the ids of several rows laid end to end, and the length of each row."""
        starts = self._offsets[rows]
        lengths = self._offsets[rows + 1] - starts
        ends = np.cumsum(lengths)
        places = np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
        return self._ids[places].astype(np.int64), lengths


class StoreWriter:
    """Appends rows to the open files of a store and remembers no more than counts and two running hashes."""

    def __init__(self, ids: BinaryIO, offsets: BinaryIO, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
        self._streams = (ids, offsets)
        self._hashes = (hashlib.sha256(), hashlib.sha256())
        self._n_rows = 0
        self._n_ids = 0
        self._write(1, np.zeros(1, "<i8"))

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        """Append rows. Raises ``ValueError`` for an id outside the vocabulary."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int64, int(lengths.sum()))
        if len(ids) and not (ids.min() >= 0 and ids.max() < self._vocab_size):
            raise ValueError(f"ids from {ids.min()} to {ids.max()} for a vocabulary of {self._vocab_size}")
        self._write(0, ids.astype(self._dtype))
        self._write(1, (self._n_ids + np.cumsum(lengths)).astype("<i8"))
        self._n_rows += len(rows)
        self._n_ids += len(ids)

    def index(self) -> dict[str, Any]:
        """Return the content of ``index.json`` for the rows so far."""
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
def writing(folder: Path, vocab_size: int) -> Iterator[StoreWriter]:
    """Give a writer for a store in ``folder``, an empty one below a ``files.new_folder``; the index is written last."""
    with files.create(folder / "ids.bin") as ids, files.create(folder / "offsets.bin") as offsets:
        writer = StoreWriter(ids, offsets, vocab_size)
        yield writer
    files.write_into(folder / "index.json", json.dumps(writer.index(), indent=1).encode())


def write_store(folder: Path, batches: Iterable[Sequence[Sequence[int]]], vocab_size: int) -> Store:
    """Write a store in the time and memory of one batch; the folder appears when it is complete, or not at all."""
    with files.new_folder(folder) as temporary, writing(temporary, vocab_size) as writer:
        for rows in batches:
            writer.add(rows)
    return Store.open(folder)


def read_index(path: Path) -> dict[str, Any]:
    """Return the JSON index of an encoded folder. Raises ``RunError`` if it is missing, damaged or another format's."""
    try:
        index = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(path, "cannot be read") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise _damaged(path, f"is not of format {FORMAT}")
    return index


def _map(path: Path, dtype: np.dtype[Any], n: int) -> npt.NDArray[Any]:
    try:
        size = path.stat().st_size
        if size != n * dtype.itemsize:
            raise _damaged(path, f"has {size:,} bytes instead of {n * dtype.itemsize:,}")
        # A plain view: slices of np.memmap itself cost a microsecond each. An empty file cannot be mapped.
        return np.memmap(path, dtype, "r").view(np.ndarray) if n else np.empty(0, dtype)
    except OSError as error:
        raise _damaged(path, "cannot be read") from error


def _damaged(path: Path, what: str) -> RunError:
    # What to remove for it, only the caller knows: a store is one part of what was encoded together.
    return RunError(f"the encoded text is damaged: {path.name} {what}", where=str(path))


def _fingerprint(index: dict[str, Any]) -> str:
    named = {key: value for key, value in index.items() if key != "fingerprint"}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
