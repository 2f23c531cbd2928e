"""Terminal output: results to stdout, everything else to stderr.

``--quiet`` silences messages and progress; results, warnings, errors and prompts stay.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Protocol

from attnkit.errors import AttnkitError
from attnkit.io import atomic

# Control characters except tab and line feed, line separators, bidirectional controls, surrogates.
_STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def result(text: str = "") -> None:
    """Print a result to stdout; nothing else is printed there.

    Raises:
        SystemFailure: Standard output is closed or cannot be written.
        BrokenOutputError: The reader of standard output has closed it.
    """
    with atomic.open_output(None) as stream:
        stream.write(f"{text}\n")


_settings = {"quiet": False}  # of this process: a command line has one --quiet


def set_quiet(quiet: bool) -> bool:
    """Silence messages and progress from here on; the callback of ``--quiet``."""
    _settings["quiet"] = quiet
    return quiet


def info(text: str = "") -> None:
    """Print a message to stderr, unless ``--quiet`` was given."""
    if not _settings["quiet"]:
        alert(text)


def alert(text: str = "") -> None:
    """Print an error or a question to stderr, even with ``--quiet``."""
    _write(f"{printable(text)}\n")


def _write(text: str) -> None:
    """Write to stderr; ignore failures, because a lost message must not end a run."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()


def printable(text: str) -> str:
    """Escape control and text-direction characters, e.g. as ``<U+001B>``."""
    return _STEERING.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def warn(text: str) -> None:
    """Print a warning to stderr, even with ``--quiet``."""
    alert(f"warning: {text}")


@contextmanager
def quiet(when: bool) -> Iterator[None]:
    """Discard all output inside the block if ``when``, e.g. on ranks other than 0."""
    if not when:
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


@contextmanager
def prompting(reads_stdin: bool, greeting: str) -> Iterator[Callable[[], None]]:
    """Yield a function that prompts on stderr if stdin is a terminal, else a no-op."""
    if not (reads_stdin and sys.stdin is not None and sys.stdin.isatty()):
        yield lambda: None
        return
    greetings = iter([greeting])

    def prompt() -> None:
        for text in greetings:
            alert(text)
        _write("> ")

    yield prompt
    alert()  # start the shell's prompt on a new line


def confirm(question: str) -> bool:
    """Ask on stderr and return whether the answer is yes; False without a terminal."""
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    _write(f"{printable(question)} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def command(*words: str | Path) -> str:
    """Return an attnkit command line as the user would type it in this shell."""
    called = Path(sys.argv[0])
    found = shutil.which("attnkit")
    if found is not None and called.exists() and Path(found).samefile(called):
        program = ["attnkit"]
    elif called.name == "attnkit" and called.exists():
        program = [os.path.relpath(called)]
    else:
        program = ["python", "-m", "attnkit"]
    return shlex.join([*program, *map(str, words)])


def supports_color() -> bool:
    """Return whether stdout is a terminal with colours enabled (NO_COLOR unset)."""
    wanted = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return wanted and sys.stdout is not None and sys.stdout.isatty()


def width() -> int:
    """Return the terminal width in columns, or 80 if there is no terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def table(rows: Sequence[Sequence[str]], indent: str = "  ", right: Collection[int] = ()) -> str:
    """Format rows as columns, without trailing spaces; those in ``right`` end flush."""
    n_columns = max((len(row) for row in rows), default=0)
    widths = [max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(n_columns)]
    return "\n".join(
        indent + "  ".join(f"{cell:{'>' if i in right else '<'}{widths[i]}}" for i, cell in enumerate(row)).rstrip()
        for row in rows
    )


class LineOfProgress(Protocol):
    """A line of progress that later ones replace."""

    def update(self, text: str) -> None:
        """Show ``text``, unless the last update was only a moment ago."""

    def clear(self) -> None:
        """Erase the line, before anything else is printed."""


PATIENCE = 3.0  #: seconds before progress is shown


class StatusLine:
    """Status line, redrawn on a terminal; elsewhere, a plain line every few seconds."""

    def __init__(self, plain_every: float = 10.0) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._every = 0.2 if self._live else plain_every
        self._last = 0.0
        self._shown = ""

    def update(self, text: str) -> None:
        """Show ``text``, unless the last update was only a moment ago."""
        now = time.monotonic()
        if _settings["quiet"] or now - self._last < self._every:
            return
        self._last = now
        if self._live:
            text = printable(text)[: width() - 1]
            _write(f"\r{text}\x1b[K")
            self._shown = text
        else:
            info(text)

    def say(self, text: str) -> None:
        """Print a permanent line above the status line."""
        self.clear()
        info(text)

    def warn(self, text: str) -> None:
        """Print a warning above the status line."""
        self.clear()
        warn(text)

    def clear(self) -> None:
        """Erase the status line."""
        if self._live and self._shown:
            _write("\r\x1b[K")
            self._shown = ""

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()


def follow_lines(
    status: LineOfProgress, sources: Sequence[Path] = (), n_before: int = 0, n_lines: int = -1
) -> Callable[[int], None]:
    """Return a function that shows progress, given the number of lines done so far.

    ``n_before`` lines were done by an earlier process. Nothing is shown in the first seconds. For the time left, the
    lines of plain files are counted, unless ``n_lines`` says how many there are.
    """
    from attnkit.plotting.progress_text import duration, progress_bar
    from attnkit.text.files import OPENERS
    from attnkit.text.lines import count_lines

    began, total = 0.0, n_lines

    def show(n_done: int) -> None:
        nonlocal began, total
        began = began or time.monotonic()  # the first call comes before the first batch
        spent = time.monotonic() - began
        if spent < PATIENCE or n_done <= n_before:
            return
        if total < 0:
            total = 0  # unknown: a pipe, or a file that whoever reads it will complain of
            with contextlib.suppress(AttnkitError):
                if all(source.is_file() and source.suffix.lower() not in OPENERS for source in sources):
                    total = sum(count_lines(source) for source in sources if source.stat().st_size)
        rate = (n_done - n_before) / spent
        text = f"{n_done:,} lines  {rate:,.0f} lines/s"
        if total > 0:
            done = min(1.0, n_done / total)
            text = f"{progress_bar(done)}  {text}  {duration(max(0, total - n_done) / rate)} left"
        status.update(text)

    return show
