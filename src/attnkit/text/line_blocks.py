"""Files as blocks of whole lines in bytes, for loops over bytes.

Lines are those of ``text.lines``: only line feeds end a line; a ``\\r`` before one is dropped, and so is a byte-order
mark at the start.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnkit.errors import DataError
from attnkit.text.files import BOM, MAX_BYTES, LineCounts, endless, undecodable
from attnkit.text.lines import detect_utf16, opened

_BLOCK = 1 << 18  # bytes read at once
_BOM = BOM.encode()


@dataclass(frozen=True)
class LineBlock:
    """Lines of a file, each with its line feed, also the last one."""

    path: Path
    raw: bytes
    n_before: int  #: lines of the file before this block
    had_mark: bool = False  #: whether a byte-order mark was dropped from the first line

    def lines(self) -> list[str]:
        """Return the lines; raise ``DataError`` if one is not valid UTF-8."""
        try:
            return self.raw.decode().split("\n")[:-1]
        except UnicodeDecodeError as error:
            raise self.fault() from error

    def fault(self) -> DataError:
        """Return the error for the first line that is not valid UTF-8."""
        for number, raw in enumerate(self.raw.split(b"\n"), self.n_before + 1):
            whole = _BOM + raw if self.had_mark and number == 1 else raw
            try:
                whole.decode()
            except UnicodeDecodeError as error:
                return undecodable(self.path, number, whole + b"\n", error)
        raise AssertionError("all lines are valid UTF-8")


def read_blocks(path: Path) -> Iterator[LineBlock]:
    """Yield the lines of a file in blocks of about 256 kB.

    Raises ``DataError`` for text in UTF-16, a line of more than ``MAX_BYTES`` and a damaged file, and the errors of
    ``open_binary``. Other invalid text is found by who decodes it.
    """
    counts = LineCounts()
    rest: list[bytes] = []
    n_rest = 0
    with opened(path, counts) as stream:
        while True:
            block = stream.read(_BLOCK)
            if not block and not n_rest:
                return
            end = block.rfind(b"\n") + 1 if block else 0
            if n_rest + (block.find(b"\n") + 1 or len(block)) > MAX_BYTES:
                raise endless(path, counts.n_lines + 1)
            if block and not end:
                rest.append(block)
                n_rest += len(block)
                continue
            raw = b"".join([*rest, block[:end] if block else b"\n"])
            rest, n_rest = [block[end:]], len(block) - end
            had_mark = not counts.n_lines and raw.startswith(_BOM)
            if not counts.n_lines:
                _check_utf16(path, raw)
            lines = LineBlock(path, raw.removeprefix(_BOM) if had_mark else raw, counts.n_lines, had_mark)
            if b"\r\n" in raw:
                lines = LineBlock(path, lines.raw.replace(b"\r\n", b"\n"), counts.n_lines, had_mark)
            counts.n_lines += raw.count(b"\n")
            yield lines


def _check_utf16(path: Path, raw: bytes) -> None:
    """Raise ``DataError`` if the first lines look like UTF-16."""
    end = raw.find(b"\n") + 1
    if b"\0" not in raw[:end]:
        return
    is_wide, _ = detect_utf16(line + b"\n" for line in raw.split(b"\n")[:-1])
    if is_wide:
        line = raw[:end]
        error = UnicodeDecodeError("utf-16", line, line.index(b"\0"), line.index(b"\0") + 1, "by its NULs")
        raise undecodable(path, 1, line, error)
