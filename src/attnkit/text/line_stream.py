"""Lines in batches as they arrive, from a file, a pipe or a keyboard, and what to say of odd bytes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from attnkit.errors import AttnkitError
from attnkit.text.lines import LineCounts, is_stream

ROOM = 1 << 22
"""Characters of lines that are held at once, and those of one line more."""


_PATIENCE = 0.02  # seconds


Item = TypeVar("Item")


def flush_interval(source: Path) -> float | None:
    """Return after how many seconds without a further line the lines so far are translated; None: never.

    Nobody waits for the lines of a file. However slowly it is read, its windows are full, and the same in every call.
    """
    return _PATIENCE if is_stream(source) else None


def line_batches(
    items: Iterable[Item],
    most: int,
    patience: float | None = _PATIENCE,
    size: Callable[[Item], int] | None = None,
) -> Iterator[list[Item]]:
    """Group lines, or what else is read, into lists of at most ``most``, ended early by ``ROOM`` characters.

    A list ends too when nothing comes for ``patience`` seconds. What is read is read by a thread, since a blocked
    read cannot be given a time limit. Its errors are raised here.

    Args:
        size: the characters of an item; without it a line has its own, and nothing else any.
    """
    measure = size or _characters
    if patience is None:
        yield from _full_windows(items, most, measure)
        return
    ahead = _Ahead(items, 2 * most, measure)
    window: list[Item] = []
    n_characters = 0
    while True:
        try:
            given = ahead.get(patience if window else None)
        except queue.Empty:
            yield window
            window, n_characters = [], 0
            continue
        if isinstance(given, tuple):
            window.append(given[0])
            n_characters += measure(given[0])
        if window and (len(window) == most or n_characters >= ROOM or not isinstance(given, tuple)):
            yield window
            window, n_characters = [], 0
        if isinstance(given, BaseException):
            raise given
        if given is None:
            return


class _Ahead(Generic[Item]):
    """What a thread has read that nobody has taken yet: so many items, and not many more than ``ROOM`` characters."""

    def __init__(self, items: Iterable[Item], most: int, measure: Callable[[Item], int]) -> None:
        self._items, self._measure = items, measure
        self._waiting: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue(maxsize=most)
        self._taken = threading.Condition()
        self._n_characters = 0
        threading.Thread(target=self._read, daemon=True, name="attnkit reader").start()

    def get(self, timeout: float | None) -> tuple[Item] | BaseException | None:
        """Return an item, in a tuple, or what ended them. Raises ``queue.Empty`` when none comes in time."""
        given = self._waiting.get(timeout=timeout)
        if isinstance(given, tuple):
            with self._taken:
                self._n_characters -= self._measure(given[0])
                self._taken.notify()
        return given

    def _read(self) -> None:
        try:
            for item in self._items:
                with self._taken:
                    self._taken.wait_for(lambda: self._n_characters < ROOM)
                    self._n_characters += self._measure(item)
                self._waiting.put((item,))
            self._waiting.put(None)
        except BaseException as error:
            self._waiting.put(error)


def _characters(item: object) -> int:
    return len(item) if isinstance(item, str) else 0


def _full_windows(items: Iterable[Item], most: int, measure: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Group what is read into lists of ``most``, or of ``ROOM`` characters; those before an error come before it."""
    window: list[Item] = []
    n_characters = 0
    try:
        for item in items:
            window.append(item)
            n_characters += measure(item)
            if len(window) == most or n_characters >= ROOM:
                yield window
                window, n_characters = [], 0
    except AttnkitError:
        if window:
            yield window
        raise
    if window:
        yield window


def encoding_warnings(counts: LineCounts, source: Path) -> list[str]:
    """Return what should be said of the bytes that were read."""
    name = "standard input" if str(source) == "-" else str(source)
    found = []
    if counts.n_bad:
        found.append(
            f"{counts.n_bad} lines are not UTF-8, the first at {name}:{counts.first_bad}; bad bytes became U+FFFD"
        )
    if counts.n_carriage_returns:
        found.append(f"{counts.n_carriage_returns} lines of {name} ended in a carriage return, which was dropped")
    return found
