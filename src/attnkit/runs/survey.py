"""Looking a run folder over without changing anything in it. Knows nothing of what its files mean."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path

from attnkit import files
from attnkit.reading import open_plain
from attnkit.runs import lock, logs

_MOST_NUMBERS = 3


@dataclass(frozen=True)
class Log:
    """What lies in a log."""

    size: int
    """Bytes."""
    n_lines: int
    damaged: tuple[int, ...]
    """Numbers of the lines that are not as they were written, among those asked for."""
    torn: bool
    """Whether a line after those is not as it was written."""


def user(folder: Path) -> str | None:
    """Return who holds the lock of a run folder, as "process 12 on host since ...", None if nobody does."""
    try:
        # A shared lock, let go at once: a run that begins in that very microsecond is refused.
        with open_plain(folder / lock.FILE_NAME) as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = lock.read_owner(folder)
        return f"process {owner.pid} on {owner.host} since {owner.since}" if owner else "another process"
    except (OSError, ValueError):
        return None
    return None


def read_log(path: Path, size: int | None) -> Log:
    """Check every line of a log; ``size`` is how many bytes of it have to be right, None for all.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is no plain file.
    """
    damaged: list[int] = []
    number = place = 0
    torn = False
    try:
        with open_plain(path) as stream:
            while line := stream.readline(logs.MAX_LINE):
                number += 1
                if logs.parse_line(line) is None:
                    if size is None or place < size:
                        damaged.append(number)
                    else:
                        torn = True
                place += len(line)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise files.failure("read", path, error) from error
    return Log(place, number, tuple(damaged), torn)


def numbered(numbers: tuple[int, ...]) -> str:
    """Return the lines in words.

    >>> numbered((3, 7, 9, 11))
    'lines 3, 7, 9 and 1 more'
    """
    shown = [str(number) for number in numbers[:_MOST_NUMBERS]]
    if len(numbers) > _MOST_NUMBERS:
        shown.append(f"{len(numbers) - _MOST_NUMBERS} more")
    words = " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)
    return f"line{'s' if len(numbers) > 1 else ''} {words}"
