"""On-disk co-occurrence counts, computed in bounded memory and memory-mapped.

A folder contains ``low.bin`` and ``high.bin`` (the word ids of each pair, the smaller id first), ``counts.bin`` and
``index.json``. Pairs are shuffled in an order that depends only on the pairs: the same text gives the same bytes for
any memory limit.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from attnkit.data.store import FORMAT, Store, read_index
from attnkit.errors import RunError
from attnkit.io import atomic
from attnkit.io.safe_read import open_regular_file
from attnkit.kernels.cooccurrence import Counter, Run, merge, words_of
from attnkit.kernels.glove import Cooccurrences

_STRETCH = 1 << 18  # words counted at a time
_PAIR_BYTES = 80  # memory per pair while runs are merged
_MEETING_BYTES = 64  # counter memory per co-occurrence if all pairs are different
_PARTS = {"low": "<u4", "high": "<u4", "counts": "<f4"}


class _CountsIndex(BaseModel, extra="forbid", strict=True):
    """Schema of ``index.json``."""

    format: Literal[1]
    pairs: int = Field(ge=0, lt=1 << 48)
    window: int
    text: str
    """Fingerprint of the text."""
    sha256: dict[Literal["low.bin", "high.bin", "counts.bin"], str]


def count_pairs(folder: Path, store: Store, window: int, memory: int, tell: Callable[[str], None]) -> Cooccurrences:
    """Count co-occurrences within ``window`` words of a line, weighted 1 / distance.

    Existing counts of the same text and window are reused; any others are replaced atomically.

    Args:
        folder: Folder of the counts; temporary runs that exceed ``memory`` take about 16 bytes per pair there.
        store: The text, one row per line.
        window: Maximum distance on either side, in words.
        memory: Bytes available for counting and merging.
        tell: Called with progress messages.
    """
    wanted = (window, store.fingerprint)
    if (found := _open(folder, wanted, store.vocab_size)) is None:
        atomic.remove_tree(folder)
        atomic.make_dirs(folder.parent)
        with atomic.atomic_dir(folder) as temporary:
            _write(temporary, store, window, memory, tell)
        found = _open(folder, wanted, store.vocab_size)
    if found is None:
        raise RunError("the co-occurrence counts are damaged", where=str(folder), help="remove this folder")
    return found


def _open(folder: Path, wanted: tuple[int, str], n_words: int) -> Cooccurrences | None:
    """Map existing counts; return None if missing, damaged or of other text or window."""
    try:
        known = read_index(folder / "index.json", _CountsIndex)
        if (known.window, known.text) != wanted:
            return None
        found = Cooccurrences(*(_map(folder / f"{name}.bin", dtype, known.pairs) for name, dtype in _PARTS.items()))
    except (OSError, RunError, ValueError):
        return None
    digests = {f"{name}.bin": hashlib.sha256() for name in _PARTS}
    for begin in range(0, len(found.counts), _STRETCH):
        parts = low, high, counts = [part[begin : begin + _STRETCH] for part in found]
        # The training loop has no checks: word ids must be in the vocabulary, and counts need a logarithm.
        if max(low.max(), high.max()) >= n_words or not (np.isfinite(counts) & (counts > 0)).all():
            return None
        for digest, part in zip(digests.values(), parts, strict=True):
            digest.update(part.data)
    return found if {name: digest.hexdigest() for name, digest in digests.items()} == known.sha256 else None


def _map(path: Path, dtype: str, n: int, offset: int = 0) -> NDArray[Any]:
    with open_regular_file(path) as stream:
        if os.fstat(stream.fileno()).st_size < offset + n * np.dtype(dtype).itemsize:
            raise ValueError("it is too short")
        return np.memmap(stream, dtype, "r", offset, (n,)).view(np.ndarray) if n else np.empty(0, dtype)


def _write(folder: Path, store: Store, window: int, memory: int, tell: Callable[[str], None]) -> None:
    runs: list[Run] = []
    counter = Counter(store.vocab_size, min(memory, _MEETING_BYTES * window * len(store.ids)))
    for run in _count(counter, store, window, tell):
        # Runs that exceed the memory are written to disk and mapped.
        path, n = folder / f"run-{len(runs)}.bin", len(run.hashes)
        with atomic.create_exclusive(path) as stream:
            for part in run:
                stream.write(np.ascontiguousarray(part, "<u8").data)
        runs.append(Run(_map(path, "<u8", n), _map(path, "<u8", n, 8 * n)))
    rest = counter.rest()
    del counter
    tell("merging co-occurrences")
    if runs:
        blocks = merge([*runs, rest], max(1, memory // _PAIR_BYTES))
    else:
        slices = (slice(begin, begin + _STRETCH) for begin in range(0, len(rest.hashes), _STRETCH))
        blocks = (Run(*(part[stretch] for part in rest)) for stretch in slices)
    n, digests = 0, {name: hashlib.sha256() for name in _PARTS}
    with ExitStack() as opened:
        streams = {name: opened.enter_context(atomic.create_exclusive(folder / f"{name}.bin")) for name in _PARTS}
        for block in blocks:
            for (name, dtype), values in zip(_PARTS.items(), words_of(block, store.vocab_size), strict=True):
                data = np.ascontiguousarray(values, dtype).tobytes()
                streams[name].write(data)
                digests[name].update(data)
            n += len(block.hashes)
    for number in range(len(runs)):
        atomic.remove_tree(folder / f"run-{number}.bin")
    sha256 = {f"{name}.bin": digest.hexdigest() for name, digest in digests.items()}
    index = {"format": FORMAT, "pairs": n, "window": window, "text": store.fingerprint, "sha256": sha256}
    atomic.write_new_file(folder / "index.json", json.dumps(index, indent=1).encode())


def _count(counter: Counter, store: Store, window: int, tell: Callable[[str], None]) -> Iterator[Run]:
    """Count the whole text; yield a run whenever the counter is full."""
    ids, offsets = store.ids, store.offsets
    n = len(ids)
    for begin in range(0, n, _STRETCH):
        end, before = min(begin + _STRETCH, n), max(0, begin - window)
        lines = offsets[np.searchsorted(offsets, begin, "right") - 1 : np.searchsorted(offsets, end, "left")]
        places = np.arange(begin, end)
        reach = np.zeros(end - before, np.int32)
        reach[begin - before :] = np.minimum(window, places - lines[np.searchsorted(lines, places, "right") - 1])
        yield from counter.add(ids[before:end].astype(np.uint32), reach)
        tell(f"counting co-occurrences, {100 * end // n} %")
