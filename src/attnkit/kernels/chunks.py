"""Numbering of chunks, the text between spaces of lines, in a compiled loop.

Chunks are those of ``text.tokenizer.cut``: a line is split before each run of spaces, or at each space, and one space
is dropped. Each new chunk gets the next id. Memory grows with the number of distinct chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels import words
from attnkit.kernels.jit import compiled
from attnkit.kernels.words import MAX_SPAN_BYTES, CompiledNumberer, NoTextError, Numbers, byte_steps

LINE_END = words.LINE_END  #: id that marks the end of a line
SET_APART = -3  #: id in place of all chunks of a line that is returned as text instead
_TOO_LONG, _WRONG = -1, -2


def _cut_chunks(steps: Any, data: Any, end: int, rules: Any, at: Any, spans: Any) -> int:
    """Write (begin, end) of each chunk to ``spans``; return their number.

    A begin of -1 is a line end. A begin of -3 is a line set apart; the end is the offset of that line. Return -1 if a
    chunk is too long, and -2 if a character is invalid; ``at[0]`` is its offset.

    ``rules``: whether runs of spaces stay together, maximum bytes of a chunk, whether blank lines are skipped, whether
    a line is set apart if other white space is beside a space or at an end of it.
    """
    runs, most, skips_blank, sets_apart = rules
    # before: class of the last character: 0 is none in this line, 1 a space, 2 other white space, 3 anything else.
    n, state, i, character, begin, before = 0, 0, 0, 0, 0, 0
    line, first, is_blank, is_apart = 0, 0, True, False  # line: where it begins; first: its first span
    while i < end:
        byte = data[i]
        state = steps[state, byte]
        i += 1
        if state > 3:
            continue
        if state == 3:
            at[0] = character
            return -2
        if state == 2:
            if is_apart or before == 2:
                is_apart = sets_apart
            if is_blank and skips_blank:
                n = first
            elif is_apart:
                n = first
                spans[n, 0], spans[n, 1] = -3, line
                n += 1
            else:
                if character > line:
                    if character - begin > most:
                        return -1
                    spans[n, 0], spans[n, 1] = begin, character
                    n += 1
                spans[n, 0] = -1
                n += 1
            line, first, begin, before, is_blank, is_apart = i, n, i, 0, True, False
        elif byte == 32:
            is_apart = is_apart or before == 2
            if not runs or before > 1:
                if character - begin > most:
                    return -1
                spans[n, 0], spans[n, 1] = begin, character
                n += 1
                begin = i
            before = 1
        elif state == 1:
            is_apart = is_apart or before < 2
            before = 2
        else:
            is_blank = False
            before = 3
        state = 0
        character = i
    return n


@cache
def compiled_loop() -> Callable[..., Any] | None:
    """Return the compiled loop, or None without numba."""
    data, spans, at = np.empty(1, np.uint8), np.empty((1, 2), np.int32), np.empty(1, np.int64)
    rules = (True, 1, True, True)
    arguments = (np.empty((1, 1), np.uint8), data, 1, rules, at, spans)
    loop: Callable[..., Any] | None = compiled(_cut_chunks, arguments, ("chunks", "compiled_loop"))
    return loop


class ChunkCounter:
    """Counter of chunks in a hash table of 20 to 50 bytes per chunk, plus the chunk."""

    def __init__(self) -> None:
        """Make an empty table; raise ``RuntimeError`` without numba."""
        self._cut, loops = compiled_loop(), words.compiled_loops()
        if self._cut is None or loops is None:
            raise RuntimeError("counting chunks needs numba")
        self._loops = loops
        self._table = CompiledNumberer(False, loops)
        self._steps = byte_steps()
        self._at = np.zeros(1, np.int64)
        self._data, self._spans = np.empty(0, np.uint8), np.empty((0, 2), np.int32)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Count of each chunk."""
        return self._table.counts

    def texts(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return the chunks of the given ids."""
        return self._table.words(numbers)

    def feed(
        self, block: bytes, *, runs: bool, most: int = MAX_SPAN_BYTES, skips_blank: bool = False, apart: bool = False
    ) -> tuple[Numbers, list[bytes]] | None:
        """Count the chunks of whole lines, each with its line feed.

        Return the ids of the chunks, with ``LINE_END`` after each line, and the lines set apart. Return None, with
        nothing counted, if a chunk has more than ``most`` bytes. Raises ``NoTextError`` if a line is not valid UTF-8.

        Args:
            block: Lines; a ``\\r`` is a character as any other.
            runs: Keep runs of spaces together, as ``cut`` does.
            most: Maximum length of a chunk in bytes, at most ``MAX_SPAN_BYTES``.
            skips_blank: Skip lines of white space only.
            apart: Set a line apart if other white space is beside a space or at an end of the line.
        """
        assert self._cut is not None
        if len(self._data) < len(block):
            # At most a span per byte and one more per line.
            self._data, self._spans = np.empty(len(block), np.uint8), np.empty((2 * len(block), 2), np.int32)
        self._data[: len(block)] = np.frombuffer(block, np.uint8)
        rules = (runs, most, skips_blank, apart)
        n = self._cut(self._steps, self._data, len(block), rules, self._at, self._spans)
        if n == _TOO_LONG:
            return None
        if n == _WRONG:
            raise NoTextError(int(self._at[0]), block[int(self._at[0])])
        spans = self._spans[:n]
        lines = [block[begin : block.index(b"\n", begin)] for begin in spans[spans[:, 0] == SET_APART, 1].tolist()]
        return self._table.number(self._data, spans), lines

    def add(self, chunks: list[str]) -> list[str]:
        """Count chunks in this order; return those too long for the table, which are not."""
        raw = [chunk.encode() for chunk in chunks]
        fit = [chunk for chunk in raw if len(chunk) <= MAX_SPAN_BYTES]
        ends = np.cumsum(np.fromiter(map(len, fit), np.int32, len(fit)), dtype=np.int32)
        spans = np.stack([np.concatenate([np.zeros(1, np.int32), ends[:-1]])[: len(ends)], ends], axis=1)
        self._table.number(np.frombuffer(b"".join(fit), np.uint8).copy(), spans)
        return [chunk for chunk, one in zip(chunks, raw, strict=True) if len(one) > MAX_SPAN_BYTES]

    def drop_single(self) -> None:
        """Drop the chunks that have been counted once; the others keep their order."""
        old, counts = self._table, self._table.counts
        kept = np.flatnonzero(counts > 1)
        self._table = CompiledNumberer(False, self._loops)
        for begin in range(0, len(kept), 1 << 16):
            some = kept[begin : begin + (1 << 16)]
            self.add(old.words(some))
        self.counts[:] = counts[kept]
