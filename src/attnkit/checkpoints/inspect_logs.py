"""Looking a run folder over without changing anything in it. Knows nothing of what its files mean."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path

from attnkit.checkpoints import lock, logs
from attnkit.errors import system_failure
from attnkit.io.safe_read import is_file_fault, open_regular_file

_MAX_RANGES = 3


@dataclass(frozen=True)
class LogSummary:
    """What lies in a log."""

    size: int
    """Bytes."""
    n_lines: int
    n_damaged: int
    """Lines that are not as they were written, among those asked for."""
    damaged: tuple[int, ...]
    """Numbers of the first few of them."""
    n_truncated: int
    """Lines that are no damage: cut short by a power cut, or after those asked for."""


def lock_holder(folder: Path) -> str | None:
    """Return who holds the lock of a run folder, as "process 12 on host since ...", None if nobody does."""
    try:
        # A shared lock, let go at once: a run that begins in that very microsecond is refused.
        with open_regular_file(folder / lock.FILE_NAME) as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = lock.read_owner(folder)
        return f"process {owner.pid} on {owner.host} since {owner.since}" if owner else "another process"
    except (OSError, ValueError):
        return None
    return None


def read_log(path: Path, size: int | None) -> LogSummary:
    """Check every line of a log; ``size`` is how many bytes of it have to be right.

    With None it is a log that nothing depends on, of which nobody cuts what a power cut tore: such lines are no damage.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It cannot be read, for a reason that lies in itself.
    """
    damaged: list[int] = []
    number = place = n_damaged = n_torn = 0
    try:
        with open_regular_file(path) as stream:
            while line := stream.readline(logs.MAX_LINE):
                number += 1
                if logs.parse_line(line) is None:
                    if is_truncated_write(line) if size is None else place >= size:
                        n_torn += 1
                    else:
                        n_damaged += 1
                        damaged += [number] if n_damaged <= _MAX_RANGES else []
                place += len(line)
    except FileNotFoundError:
        raise
    except OSError as error:
        if not is_file_fault(error):
            raise system_failure("read", path, error) from error
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"cannot be read: {error}") from error
    return LogSummary(place, number, n_damaged, tuple(damaged), n_torn)


def is_truncated_write(line: bytes) -> bool:
    """Return whether a line begins as one that was not written to its end, after which at most a whole one follows.

    A power cut leaves such a line, with zeros where nothing had reached the disk; the next one is appended to it. No
    flipped bit makes a line look like that.
    """
    begun = line
    if line.endswith(b"\n"):
        begun, sign, rest = line.rpartition(b"{")
        if logs.parse_line(sign + rest) is None:
            return False
    elif len(line) >= logs.MAX_LINE:
        return False
    begun = begun.rstrip(b"\0")
    return b'"}' not in begun or logs.parse_line(begun + b"\n") is not None


def line_ranges(numbers: tuple[int, ...], n_all: int) -> str:
    """Return in words which lines, of which the first few are numbered.

    >>> numbered((3, 7, 9), 4)
    'lines 3, 7, 9 and 1 more'
    """
    shown = [str(number) for number in numbers]
    if n_all > len(numbers):
        shown.append(f"{n_all - len(numbers)} more")
    words = " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)
    return f"line{'s' if n_all > 1 else ''} {words}"
