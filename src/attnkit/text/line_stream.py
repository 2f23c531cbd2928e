"""Lines in batches as they arrive, from a file, a pipe or a keyboard, and what to say of odd bytes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from attnkit.text.lines import LineCounts, LineReader, is_stream

MAX_CHARACTERS = 1 << 22
"""Maximum number of characters of the lines held at once, one line more aside."""
_FLUSH_SECONDS = 0.02

Item = TypeVar("Item")


def flush_interval(source: Path) -> float | None:
    """Return after how many seconds without a further line the lines so far are translated; None: never.

    Nobody waits for the lines of a file. However slowly it is read, its windows are full, and the same in every call.
    """
    return _FLUSH_SECONDS if is_stream(source) else None


def read_line_batches(source: Path, most: int, strict: bool, warn: Callable[[str], None]) -> Iterator[list[str]]:
    """Yield the lines of a file or of standard input in lists of at most ``most``, soon after the last of them came.

    Args:
        source: ``-`` is standard input.
        most: maximum number of lines of a list.
        strict: refuse bytes that are not UTF-8 instead of replacing them by U+FFFD.
        warn: receives the warnings about replaced and dropped bytes, after the last list.
    """
    lines = LineReader(source, on_bad="refuse" if strict else "replace")
    yield from line_batches(lines, most, flush_interval(source))
    for message in encoding_warnings(lines.counts, source):
        warn(message)


def line_batches(
    items: Iterable[Item],
    most: int,
    patience: float | None = _FLUSH_SECONDS,
    size: Callable[[Item], int] | None = None,
) -> Iterator[list[Item]]:
    """Group lines, or other items, into lists of at most ``most``, ended early by ``MAX_CHARACTERS`` characters.

    With ``patience``, a list also ends when nothing comes for that many seconds. An error in reading is raised after
    the items before it.

    Args:
        size: the number of characters of an item; by default the length of a line, and 0 for other items.
    """
    measure = size or (lambda item: len(item) if isinstance(item, str) else 0)
    arrivals = ((item,) for item in items) if patience is None else _read_ahead(items, 2 * most, patience, measure)
    window: list[Item] = []
    n_characters = 0
    try:
        for arrival in arrivals:
            window.extend(arrival)
            n_characters += sum(map(measure, arrival))
            if window and (len(window) == most or n_characters >= MAX_CHARACTERS or not arrival):
                yield window
                window, n_characters = [], 0
    except Exception:
        if window:
            yield window
        raise
    if window:
        yield window


def _read_ahead(
    items: Iterable[Item], most: int, patience: float, measure: Callable[[Item], int]
) -> Iterator[tuple[Item, ...]]:
    """Yield each item in a tuple, and an empty one when no further item comes for ``patience`` seconds.

    A thread reads, since a blocked read cannot be given a time limit. It is ahead by at most ``most`` items, and not by
    many more than ``MAX_CHARACTERS`` characters.
    """
    waiting: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue(maxsize=most)
    taken = threading.Condition()
    n_characters = 0

    def read() -> None:
        nonlocal n_characters
        try:
            for item in items:
                with taken:
                    while n_characters >= MAX_CHARACTERS:
                        taken.wait()
                    n_characters += measure(item)
                waiting.put((item,))
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True, name="attnkit reader").start()
    timeout = None  # nothing to flush yet
    while True:
        try:
            arrival = waiting.get(timeout=timeout)
        except queue.Empty:
            timeout = None
            yield ()
            continue
        if isinstance(arrival, BaseException):
            raise arrival
        if arrival is None:
            return
        with taken:
            n_characters -= measure(arrival[0])
            taken.notify()
        timeout = patience
        yield arrival


def encoding_warnings(counts: LineCounts, source: Path) -> list[str]:
    """Return the warnings about bytes that were replaced or dropped."""
    name = "standard input" if str(source) == "-" else str(source)
    warnings = []
    if counts.n_bad:
        where = f"{name}:{counts.first_bad}"
        warnings.append(f"{counts.n_bad} lines are not UTF-8, the first at {where}; bad bytes became U+FFFD")
    if counts.n_carriage_returns:
        warnings.append(f"{counts.n_carriage_returns} lines of {name} ended in a carriage return, which was dropped")
    return warnings
