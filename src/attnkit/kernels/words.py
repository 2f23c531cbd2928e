r"""Conversion of text to word ids, block by block; each new word gets the next id.

Words are those of ``str.split``; lines end only at ``\n``. Compiled if numba is installed, else in plain Python, with
the same results. Memory grows only with the number of distinct words, not with the length of lines or words.
"""

import codecs
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled

LINE_END = -1  #: id that marks the end of a line
TOO_LONG = -2  #: id of every word longer than ``MAX_WORD_BYTES``
MAX_WORD_BYTES = 1000
MAX_SPAN_BYTES = 4096  #: maximum length of what ``CompiledNumberer.number`` takes

Numbers = NDArray[np.int32]


class NoTextError(ValueError):
    """Invalid UTF-8 at byte ``at`` of a block; negative if in an earlier block."""

    def __init__(self, at: int, byte: int) -> None:
        super().__init__(f"byte {at}")
        self.at = at
        self.byte = byte


class PlainNumberer:
    """Word numberer in plain Python, with a dictionary."""

    def __init__(self, lower: bool = False) -> None:
        self._lower = lower
        # Keeps the bytes of a character that is split between blocks.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""
        self._skips = False
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._as_read: dict[str, int] = {}
        self.counts = np.empty(0, np.int64)  #: count of each word

    def __len__(self) -> int:
        return len(self._names)

    def feed(self, block: bytes) -> Numbers:
        """Return the ids of words that end in this block, and ``LINE_END`` per line end.

        A word that is split between blocks is returned with the next block, so the last block must end with a line
        feed. Raises ``NoTextError`` if the block is not valid UTF-8.
        """
        # Bytes of a character that is split between blocks: an error may be in them, before this block.
        pending = len(self._decoder.getstate()[0])
        try:
            text = self._rest + self._decoder.decode(block)
        except UnicodeDecodeError as error:
            raise NoTextError(error.start - pending, error.object[error.start]) from error
        out: list[int] = []
        if self._skips:
            # Skip the rest of an overlong word, up to the next white space.
            space = re.search(r"\s", text)
            if space is None:
                return np.empty(0, np.int32)
            text = text[space.start() :]
            self._skips = False
            out.append(TOO_LONG)
        # \Z, not $: a line feed at the end is white space that ends the word.
        cut = re.search(r"\S*\Z", text)
        assert cut is not None
        self._rest = cut[0]
        for number, line in enumerate(text[: cut.start()].split("\n")):
            if number:
                out.append(LINE_END)
            # `or`: numbers count from 1 here, so that 0 means unknown.
            out += [self._as_read.get(word) or self._number(word) for word in line.split()]
        numbers = np.array(out, np.int32)
        numbers[numbers > 0] -= 1  # the dictionary counts from 1
        if len(self._rest.encode()) > MAX_WORD_BYTES:
            self._rest, self._skips = "", True
        # LINE_END and TOO_LONG are below 0.
        counts = np.bincount(numbers[numbers >= 0], minlength=len(self._numbers))
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        return numbers

    def _number(self, word: str) -> int:
        # At most four bytes per character: short words need not be encoded to be measured.
        if len(word) > MAX_WORD_BYTES // 4 and len(word.encode()) > MAX_WORD_BYTES:
            return TOO_LONG
        # Lower-casing may lengthen a word: measured again.
        known = word.lower() if self._lower else word
        if len(known) > MAX_WORD_BYTES // 4 and len(known.encode()) > MAX_WORD_BYTES:
            return TOO_LONG
        number = self._as_read[word] = self._numbers.setdefault(known, len(self._numbers) + 1)
        if number > len(self._names):
            self._names.append(known)
        return number

    def words(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return the words of the given ids."""
        return [self._names[number] for number in numbers.tolist()]

    def settle(self) -> Numbers | None:
        """Return the new id of each id if lower-casing merged words, else None."""
        return None  # words are lower-cased before they are numbered

    @property
    def first(self) -> NDArray[np.int64]:
        """Return each word's rank by first occurrence."""
        return np.arange(len(self.counts))


# --- compiled: a hash table with the bytes of every word


CHARACTER, SPACE, LINE, WRONG, INSIDE = range(5)
"""States after a byte: word character, white space, line end, invalid UTF-8, incomplete character."""


@cache
def byte_steps() -> NDArray[np.uint8]:
    """Return the transitions (states, 256) of an automaton of UTF-8 and white space.

    White space is as in ``str.isspace``. States from ``INSIDE`` on encode the bytes of a character so far.
    """
    # All of Unicode's white space lies below U+3001.
    spaces = {character.encode() for code in range(0x3001) if (character := chr(code)).isspace()}
    # Row 0 is between characters; others are within one.
    steps = np.full((64, 256), WRONG, np.uint8)
    known: dict[tuple[bytes, ...], int] = {}

    def spread(row: int, begun: bytes) -> None:
        for byte in range(256):
            raw = begun + bytes([byte])
            try:
                raw.decode()
                steps[row, byte] = (LINE if raw == b"\n" else SPACE) if raw in spaces else CHARACTER
            except UnicodeDecodeError as error:
                if not error.reason.startswith("unexpected end"):
                    continue  # not a prefix of a character
                n_missing = 2 + (raw[0] >= 0xE0) + (raw[0] >= 0xF0) - len(raw)
                ahead = sorted(space[len(raw) :] for space in spaces if space.startswith(raw))
                rule = raw[:1] if len(raw) == 1 and raw[0] in (0xE0, 0xED, 0xF0, 0xF4) else b""
                key = (bytes([n_missing]), rule, *ahead)
                if key not in known:
                    known[key] = INSIDE + len(known)
                    spread(known[key], raw)
                steps[row, byte] = known[key]

    spread(0, b"")
    return steps[: INSIDE + len(known)]


def _cut_words(steps: Any, data: Any, end: int, at: Any, spans: Any) -> int:
    """Write (begin, end) of each word to ``spans``; return the number of spans.

    A begin of -1 is a line end, -2 an overlong word. ``at`` receives the start of the remaining bytes, whether they
    continue an overlong word, and the start of an invalid character (-1 if all are valid).
    """
    # state: of the automaton; begin: start of the word; character: start of the character.
    n, state, i, character, begin, skips = 0, 0, 0, 0, 0, at[1]
    at[2] = -1
    while i < end:
        # One table look-up per byte.
        state = steps[state, data[i]]
        i += 1
        if state == 0:
            character = i
        elif state < 3:
            if character > begin or skips:
                spans[n, 0] = -2 if skips or character - begin > 1000 else begin
                spans[n, 1] = character
                n += 1
                skips = 0
            if state == 2:
                spans[n, 0] = -1
                n += 1
            begin = character = i
            state = 0
        elif state == 3:
            at[2] = character
            break
    # Overlong: its bytes are dropped block by block, so that memory stays bounded.
    if character - begin > 1000:
        skips = 1
    at[0], at[1] = character if skips else begin, skips
    return n


def _number_words(data: Any, spans: Any, lower: Any, table: Any, out: Any) -> Any:
    """Write ids of ``spans`` to ``out`` until memory is full; return the number done.

    A slot holds the upper half of a word's hash and its id + 1. The bytes of word k start at ``starts[k]`` in
    ``arena``. The last item of ``starts`` is the number of words.
    """
    # arena holds the bytes of all words, end to end.
    slots, starts, arena, counts = table
    # The number of slots is a power of two: a mask replaces the remainder.
    mask, last, n = np.uint64(len(slots) - 1), len(starts) - 1, starts[-1]
    number: Any = 0
    for span in range(len(spans)):
        begin, end, number = spans[span, 0], spans[span, 1], np.int64(spans[span, 0])
        if begin >= 0:
            # Checked before the word, whose length is at most MAX_SPAN_BYTES.
            if n == len(counts) or len(arena) - starts[n] < 4096:
                starts[last] = n
                return span
            # FNV-1a, then a round of mixing: the upper half, which is kept, depends on every byte.
            key = np.uint64(0xCBF29CE484222325)
            for i in range(begin, end):
                # ASCII only; other letters are lower-cased in ``settle``.
                if lower and 65 <= data[i] <= 90:
                    data[i] += np.uint8(32)
                key = (key ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
            key = ((key ^ (key >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(32)
            place, number = key & mask, np.int64(-1)
            while slots[place] != 0 and number < 0:
                if slots[place] >> np.uint64(32) == key:
                    number = np.int64(slots[place] & np.uint64(0xFFFFFFFF)) - 1
                    start, at = starts[number], np.int64(begin)
                    # Equal half hashes do not prove equality: compare length and bytes.
                    if starts[number + 1] - start != end - begin:
                        number = np.int64(-1)
                    while number >= 0 and at < end:
                        number = number if arena[start + at - begin] == data[at] else np.int64(-1)
                        at += 1
                place = (place + np.uint64(1)) & mask
            if number < 0:
                number = n
                slots[place] = (key << np.uint64(32)) | np.uint64(n + 1)
                arena[starts[n] : starts[n] + end - begin] = data[begin:end]
                starts[n + 1] = starts[n] + end - begin
                n += 1
            counts[number] += 1
        out[span] = number
    starts[last] = n
    return len(spans)


def _move_slots(old: Any, new: Any) -> None:
    """Move the entries of a slot table to a larger one."""
    mask = np.uint64(len(new) - 1)
    for entry in old:
        if entry != 0:
            place = (entry >> np.uint64(32)) & mask
            while new[place] != 0:
                place = (place + np.uint64(1)) & mask
            new[place] = entry


@cache
def compiled_loops() -> tuple[Callable[..., Any], ...] | None:
    """Return the three compiled loops, or None without numba."""
    data, spans, at = np.empty(1, np.uint8), np.empty((1, 2), np.int32), np.empty(1, np.int64)
    slots, out, child = np.empty(1, np.uint64), np.empty(1, np.int32), ("words", "compiled_loops")
    cut = compiled(_cut_words, (np.empty((1, 1), np.uint8), data, 1, at, spans), child)
    if cut is None:
        return None
    number = compiled(_number_words, (data, spans, True, (slots, at, data, at), out), child)
    return cut, number, compiled(_move_slots, (slots, slots), child)


class CompiledNumberer:
    """Compiled word numberer: a hash table of 20 to 50 bytes per word, plus the word."""

    def __init__(self, lower: bool, loops: tuple[Callable[..., Any], ...]) -> None:
        self._lower = lower
        self._cut, self._number, self._move = loops
        self._steps = byte_steps()
        self._data = np.empty(0, np.uint8)
        self._at = np.zeros(3, np.int64)
        self._n_rest = 0
        self._slots = np.zeros(1 << 14, np.uint64)
        # Three words per four slots at most, plus the end of the last word and the number of words.
        self._starts = np.zeros((3 << 12) + 2, np.int64)
        self._arena = np.empty(1 << 17, np.uint8)
        self._counts = np.zeros(3 << 12, np.int64)
        self._first: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return int(self._starts[-1])

    def feed(self, block: bytes) -> Numbers:
        """Return word ids and line ends of a block, as ``PlainNumberer.feed`` does."""
        # The rest of the last block comes first.
        end = self._n_rest + len(block)
        if len(self._data) < end:
            room = np.empty(len(block) + 2 * MAX_WORD_BYTES, np.uint8)
            self._data = np.concatenate([self._data[: self._n_rest], room])
        self._data[self._n_rest : end] = np.frombuffer(block, np.uint8)
        # At most one span per byte.
        spans = np.empty((end + 1, 2), np.int32)
        n = self._cut(self._steps, self._data, end, self._at, spans)
        # Position of the first byte that is not UTF-8.
        if (bad := int(self._at[2])) >= 0:
            raise NoTextError(bad - self._n_rest, int(self._data[bad]))
        numbers = self.number(self._data, spans[:n])
        rest = int(self._at[0])
        # The incomplete word at the end of the block comes first in the next one; copy() since the ranges may overlap.
        self._data[: end - rest] = self._data[rest:end].copy()
        self._n_rest = end - rest
        return numbers

    def number(self, data: NDArray[np.uint8], spans: NDArray[np.int32]) -> Numbers:
        """Return the ids of words, given as (begin, end) in ``data``, and count them.

        A negative begin is copied. Words have at most ``MAX_SPAN_BYTES``.
        """
        n = len(spans)
        numbers, done = np.empty(n, np.int32), 0
        while True:
            table = (self._slots, self._starts, self._arena, self._counts)
            done += self._number(data, spans[done:], self._lower, table, numbers[done:])
            if done == n:
                break
            n_words, used = len(self), int(self._starts[len(self)])
            if n_words < len(self._counts):
                # The arena is full, not the table. Pages that are not written yet take no memory.
                arena = np.empty(2 * len(self._arena), np.uint8)
                arena[:used] = self._arena[:used]
                self._arena = arena
                continue
            # Doubled: amortized constant time per word.
            slots = np.zeros(2 * len(self._slots), np.uint64)
            self._move(self._slots, slots)
            starts, counts = np.zeros(len(slots) // 4 * 3 + 2, np.int64), np.zeros(len(slots) // 4 * 3, np.int64)
            starts[: n_words + 1], starts[-1], counts[:n_words] = self._starts[: n_words + 1], n_words, self._counts
            self._slots, self._starts, self._counts = slots, starts, counts
        return numbers

    def words(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return the words of the given ids."""
        starts, ends = self._starts[numbers].tolist(), self._starts[numbers + 1].tolist()
        arena = self._arena.data
        return [str(arena[start:end], "utf-8") for start, end in zip(starts, ends, strict=True)]

    def settle(self) -> Numbers | None:
        """Lower-case non-ASCII words and merge their counts; return new ids or None."""
        n = len(self)
        if not self._lower or not n:
            return None
        # Words with a byte outside of ASCII.
        wide = np.flatnonzero(np.logical_or.reduceat(self._arena[: self._starts[n]] >= 128, self._starts[:n]))
        names = zip(wide.tolist(), self.words(wide), strict=True)
        pairs = [(number, low) for number, word in names if (low := word.lower()) != word]
        if not pairs:
            return None
        changed, before = np.array([number for number, _ in pairs]), self._counts[:n].copy()
        blocks = ("".join(f"{low} " for _, low in pairs[i : i + 4096]) for i in range(0, len(pairs), 4096))
        # The lower-cased words go through the same table, in blocks of bounded size.
        targets = np.concatenate([self.feed(block.encode()) for block in blocks])
        self._counts[:n] = before
        self._counts[n:] = 0
        self._counts[changed] = 0
        fit = targets >= 0
        np.add.at(self._counts, targets[fit], before[changed[fit]])
        self._first, same = np.arange(len(self)), np.arange(len(self), dtype=np.int32)
        # The first occurrence of a word is that of its earliest spelling.
        np.minimum.at(self._first, targets[fit], changed[fit])
        same[changed] = targets
        return same

    @property
    def counts(self) -> NDArray[np.int64]:
        """Count of each word."""
        return self._counts[: len(self)]

    @property
    def first(self) -> NDArray[np.int64]:
        """Return each word's rank by first occurrence."""
        return np.arange(len(self)) if self._first is None else self._first


Numberer: TypeAlias = PlainNumberer | CompiledNumberer


def fastest(lower: bool = False) -> Numberer:
    """Return a compiled word numberer if numba is installed, else a plain Python one."""
    loops = compiled_loops()
    return PlainNumberer(lower) if loops is None else CompiledNumberer(lower, loops)
