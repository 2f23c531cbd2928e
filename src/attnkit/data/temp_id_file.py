"""Numbers of words, line after line, in a file without a name: what is known of a text before its words are chosen."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from attnkit.kernels.words import Numbers

_AT_ONCE = 1 << 18  # numbers


class TempIdFile:
    """A row of numbers of words that may be larger than memory; ``kernels.words.LINE_END`` ends a line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._size = 0

    def __len__(self) -> int:
        return self._size // 4

    def add(self, numbers: Numbers) -> None:
        """Append numbers."""
        self._size = self._put(self._size, numbers)

    def __iter__(self) -> Iterator[Numbers]:
        """Yield all numbers, block by block."""
        at = 0
        while at < self._size:
            numbers = np.empty(min(_AT_ONCE, (self._size - at) // 4), np.int32)
            view = numbers.data.cast("B")
            self._stream.seek(at)
            at += len(view)
            while view:
                if not (n_read := self._stream.readinto(view)):
                    raise OSError(errno.EIO, "what was written a moment ago is not there")
                view = view[n_read:]
            yield numbers

    def rewrite(self, change: Callable[[Numbers], Numbers]) -> None:
        """Replace the numbers by what ``change`` makes of each block; it never gives more than it has taken so far."""
        end = 0
        for block in self:
            end = self._put(end, change(block))
        self._size = end

    def _put(self, at: int, numbers: Numbers) -> int:
        """Write numbers at a place and return where they end."""
        self._stream.seek(at)
        view = np.ascontiguousarray(numbers, np.int32).data.cast("B") if len(numbers) else memoryview(b"")
        at += len(view)
        while view:
            view = view[self._stream.write(view) :]
        return at
