"""Scripts of lines, and languages by character trigrams of the corpus.

Letters: N lines, C characters of all lines, G hashed trigrams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attnkit.quality.lines import Floats, Ints

SIZE = 1 << 15  #: hashed trigrams, G
_SHIFT = np.uint32(32 - 15)
_FACTORS = np.array([2654435761, 2246822519, 3266489917], np.uint32)  # odd, of random bits
MAX_SAMPLE = 50_000  #: lines of a side that a model is learnt from
_MIN_LETTERS = 5  # of a line whose script is judged
_MIN_MAIN_SHARE = 0.1  # of letters in the main script that a line of it has at least
_BATCH = 4096  # lines whose characters are in memory at once
_MAX_CHARACTERS = 400  # of a line; the rest is left out

# First code points of ranges, and the script of each; letters of other ranges belong to "other".
_RANGES = (
    (0x41, "Latin"), (0x5B, ""), (0x61, "Latin"), (0x7B, ""), (0xC0, "Latin"), (0x250, "other"), (0x370, "Greek"),
    (0x400, "Cyrillic"), (0x530, "Armenian"), (0x590, "Hebrew"), (0x600, "Arabic"), (0x700, "other"),
    (0x750, "Arabic"), (0x780, "other"), (0x900, "Devanagari"), (0x980, "Bengali"), (0xA00, "other"), (0xB80, "Tamil"),
    (0xC00, "other"), (0xE00, "Thai"), (0xE80, "other"), (0x10A0, "Georgian"), (0x1100, "Hangul"), (0x1200, "Ethiopic"),
    (0x13A0, "other"), (0x1E00, "Latin"), (0x1F00, "Greek"), (0x2000, ""), (0x3040, "Han or kana"), (0x3130, "Hangul"),
    (0x3190, ""), (0x3400, "Han or kana"), (0xA000, "other"), (0xAC00, "Hangul"), (0xD7B0, ""), (0xFB50, "Arabic"),
    (0xFE00, ""), (0x20000, "Han or kana"), (0x30000, ""),
)  # fmt: skip
_STARTS = np.array([start for start, _ in _RANGES])
SCRIPTS = sorted({name for _, name in _RANGES if name})
_SCRIPT = np.array([SCRIPTS.index(name) if name else -1 for _, name in _RANGES])


def count_scripts(lines: Sequence[str]) -> NDArray[np.int64]:
    """Return how many letters each line has of each of ``SCRIPTS`` (N, len(SCRIPTS))."""
    return np.concatenate([_counts(part) for part in _parts(lines)] or [np.zeros((0, len(SCRIPTS)), np.int64)])


def _counts(lines: Sequence[str]) -> NDArray[np.int64]:
    codes, lengths = _codes(lines)
    script = np.append(-1, _SCRIPT)[np.searchsorted(_STARTS, codes, side="right")]
    owner = np.repeat(np.arange(len(lines)), lengths)
    letters = script >= 0
    cells = np.bincount(owner[letters] * len(SCRIPTS) + script[letters], minlength=len(lines) * len(SCRIPTS))
    return cells.reshape(len(lines), len(SCRIPTS))


def find_other_scripts(lines: Sequence[str]) -> tuple[str, NDArray[np.bool_]]:
    """Return the script of most lines, and flags (N,) of lines in another one.

    Such a line has less than a tenth of its letters in the main script: names in Latin letters do not make a Japanese
    line another one. Without a main script there are no flags.
    """
    flags = np.zeros(len(lines), np.bool_)
    sample = count_scripts(lines[:: max(1, len(lines) // MAX_SAMPLE)])
    known = sample.argmax(1)[sample.max(1, initial=0) >= _MIN_LETTERS]
    main = int(np.bincount(known).argmax()) if len(known) else 0
    # Lines of ASCII are Latin: most need not be looked at.
    is_latin = SCRIPTS[main] == "Latin"
    looked_at = np.fromiter((i for i, line in enumerate(lines) if not (is_latin and line.isascii())), np.int64)
    counts = count_scripts([lines[i] for i in looked_at])
    wrong = (counts.max(1, initial=0) >= _MIN_LETTERS) & (counts[:, main] < _MIN_MAIN_SHARE * counts.sum(1))
    if wrong.sum() < 0.2 * len(lines):
        flags[looked_at[wrong]] = True
    return SCRIPTS[main], flags


class Trigrams:
    """A model of character trigrams with add-one smoothing."""

    def __init__(self, lines: Sequence[str]) -> None:
        """Learn from at most ``MAX_SAMPLE`` lines, spread evenly."""
        stride = -(-len(lines) // MAX_SAMPLE) or 1
        counts = np.ones(SIZE)
        for part in _parts(lines[::stride]):
            counts += np.bincount(_trigrams(part)[0], minlength=SIZE)
        self.log_probs = np.log(counts / counts.sum())


def mean_scores(lines: Sequence[str], values: Floats) -> tuple[Floats, Ints]:
    """Return means of ``values`` (G,) over the trigrams of lines, and counts (N,)."""
    sums: list[Floats] = [np.zeros(0)]
    counts: list[Ints] = [np.zeros(0, np.int64)]
    for part in _parts(lines):
        ids, owner = _trigrams(part)
        counts.append(np.bincount(owner, minlength=len(part)).astype(np.int64))
        sums.append(np.bincount(owner, weights=values[ids], minlength=len(part)).astype(np.float64))
    n = np.concatenate(counts)
    return np.concatenate(sums) / np.maximum(n, 1), n


def mean_score(lines: Sequence[str], values: Floats) -> float:
    """Return the mean of values over all trigrams of some lines."""
    means, counts = mean_scores(lines, values)
    return float((means * counts).sum() / max(1, counts.sum()))


def trigrams(lines: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the hashed trigrams of lines in lower case, and the line of each."""
    found = [(ids, owner + _BATCH * number) for number, (ids, owner) in enumerate(map(_trigrams, _parts(lines)))]
    ids, owners = zip(*found, strict=True) if found else ((np.zeros(0, np.int64),),) * 2
    return np.concatenate(ids), np.concatenate(owners)


def _parts(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(lines), _BATCH):
        yield lines[begin : begin + _BATCH]


def _trigrams(lines: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the hashed trigrams of lines in lower case, and the line of each."""
    codes, lengths = _codes(lines)
    if len(codes) < 3:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # A multiplicative hash in 32 bits, whose upper bits count.
    ids = (codes[:-2] * _FACTORS[0] + codes[1:-1] * _FACTORS[1] + codes[2:] * _FACTORS[2]) >> _SHIFT
    owner = np.repeat(np.arange(len(lines)), lengths)[1:-1]
    inside = codes[1:-1] != 10  # the middle may not be a line's end; the first and the last mark its edges
    return ids[inside].astype(np.int64), owner[inside]


def _codes(lines: Sequence[str]) -> tuple[NDArray[np.uint32], Ints]:
    """Return the code points of lines in lower case, each ended by 10, and lengths."""
    text = "".join([f"{line[:_MAX_CHARACTERS]}\n" for line in lines]).lower()
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return codes, np.diff(np.flatnonzero(codes == 10), prepend=-1)
