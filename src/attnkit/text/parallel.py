"""Line-aligned files: reading pairs, and locating where unequal files diverge."""

import re
import zlib
from array import array
from collections import deque
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from shlex import quote

import numpy as np

from attnkit.errors import DataError, UsageError
from attnkit.text.files import STDIN, only_once
from attnkit.text.lines import LineReader, read_lines

_CHUNK = 1 << 18
_DIGITS = re.compile(r"[0-9]+")
_ENDS = {".": 1, "。": 1, "?": 2, "？": 2, "!": 3, "！": 3}


def read_parallel(src_path: Path, tgt_path: Path) -> Iterator[tuple[str, str]]:
    """Yield pairs of lines from two line-aligned files.

    Raises ``DataError`` for invalid UTF-8 and, after the last pair, for different numbers of lines; ``UsageError`` if
    both files are standard input.
    """
    if src_path == STDIN and tgt_path == STDIN:
        raise UsageError("standard input cannot be both files of a pair")
    src, tgt = LineReader(src_path), LineReader(tgt_path)
    yield from to_the_end(iter(src), iter(tgt))
    if src.counts.n_lines != tgt.counts.n_lines:
        raise mismatch(src_path, tgt_path, src.counts.n_lines, tgt.counts.n_lines)


def to_the_end(src: Iterator[str], tgt: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs until one side ends, then read the rest of the other."""
    for src_line, tgt_line in zip_longest(src, tgt):
        if src_line is None or tgt_line is None:
            break
        yield src_line, tgt_line
    for rest in (src, tgt):
        deque(rest, maxlen=0)


def mismatch(src_path: Path, tgt_path: Path, n_src: int, n_tgt: int, line: int | None = None) -> DataError:
    """Return the error for unequal line counts.

    The files are read again to guess the line, unless it is known.
    """
    where = None if line is None else f"line {line:,}, from which on lines are misaligned"
    if line is None and not (only_once(src_path) or only_once(tgt_path)):
        line = first_suspicious_line(src_path, tgt_path)
        where = f"near line {line:,} (estimated from lengths, digits and punctuation)"
        if line > min(n_src, n_tgt):
            where = f"line {line:,}, which has no partner (the lines before it look aligned)"
    command = f"attnkit check {quote(str(src_path))} {quote(str(tgt_path))}"
    help = f"a line was split, merged, deleted or inserted there; {command}"
    return DataError(f"{src_path} has {n_src:,} lines and {tgt_path} has {n_tgt:,}", where=where, help=help)


def first_suspicious_line(src_path: Path, tgt_path: Path) -> int:
    """Guess the line (from 1) at which the longer of two files has extra lines.

    Each line has a cost of being paired without a shift, and a cost of being paired with a shift by the difference in
    line counts. The shift should start where the running sum of (unshifted - shifted) is lowest. Costs compare log
    lengths, digits and final punctuation. Takes 5 bytes of memory per line.
    """
    src, tgt = _signatures(src_path), _signatures(tgt_path)
    (long_lengths, long_marks), (lengths, marks) = (src, tgt) if len(src[0]) > len(tgt[0]) else (tgt, src)
    n, shift = len(lengths), len(long_lengths) - len(lengths)
    if not n:
        return 1
    usual = float(np.log((long_lengths.mean() + 4.0) / (lengths.mean() + 4.0)))

    def costs(begin: int, end: int, shift: int) -> np.ndarray:
        """Return the cost of pairing each line with the one ``shift`` lines later."""
        moved = slice(begin + shift, end + shift)
        ratio = np.log((long_lengths[moved] + 4.0) / (lengths[begin:end] + 4.0)) - usual
        other = long_marks[moved] ^ marks[begin:end]
        cost: np.ndarray = np.minimum(np.abs(ratio), 2.0) + ((other & 0x3F) != 0) * 1.0 + (other >> 6 != 0) * 0.5
        return cost

    best, best_line, running = 0.0, 0, 0.0
    for begin in range(0, n, _CHUNK):
        end = min(n, begin + _CHUNK)
        sums = running + np.cumsum(costs(begin, end, 0) - costs(begin, end, shift))
        lowest = int(np.argmin(sums))
        if sums[lowest] < best:
            best, best_line = float(sums[lowest]), begin + lowest + 1
        running = float(sums[-1])
    return best_line + 1


def _signatures(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return each line's length, and a byte that encodes its digits and final mark."""
    lengths, marks = array("I"), array("B")
    for line in read_lines(path, on_bad="replace"):
        lengths.append(len(line))
        digits = zlib.crc32("".join(_DIGITS.findall(line)).encode()) & 0x3F
        marks.append(digits | _ENDS.get(line.rstrip()[-1:], 0) << 6)
    return np.frombuffer(lengths, dtype=np.uint32), np.frombuffer(marks, dtype=np.uint8)
