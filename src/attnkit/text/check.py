"""Checks of two line-aligned files: findings, duplicates and dropped pairs."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Literal, get_args
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import NDArray

from attnkit.protocols import UNK_ID
from attnkit.text.config import CheckConfig
from attnkit.text.lines import LineReader, check_not_streams, open_binary, read_lines
from attnkit.text.parallel import first_suspicious_line, read_parallel, to_the_end
from attnkit.text.tokenizer import Tokenizer

Side = Literal["source", "target", "pair"]
Pair = tuple[str, str]
Fault = Literal["blank", "blank_source", "blank_target", "odd_ratio"]  #: reasons to drop a pair from training
SAMPLE = 52  #: width of a sample in columns
_SIDES: tuple[Side, Side] = ("source", "target")
_PAIR: tuple[Side, ...] = ("pair",)
_FINDINGS: dict[str, tuple[str, tuple[Side, ...]]] = {
    "mismatch": ("lines without a partner", _PAIR),
    "empty": ("no lines", _SIDES),
    "nothing_left": ("pairs, none usable for training", _PAIR),
    "undecodable": ("lines with bytes that are not UTF-8", _SIDES),
    "blank": ("pairs of blank lines", _PAIR),
    "blank_source": ("pairs with a blank source", _PAIR),
    "blank_target": ("pairs with a blank target", _PAIR),
    "odd_ratio": ("pairs whose length ratio deviates from the typical one by more than a factor of {times:g}", _PAIR),
    "long": ("lines of more than {limit}", _SIDES),
    "duplicate": ("pairs that repeat an earlier pair", _PAIR),
    "source_overlap": ("lines that also occur in the training source", ("source",)),
    "pair_overlap": ("pairs that also occur in the training corpus", _PAIR),
    "separator": ("lines that other tools would split (U+2028, U+0085, VT, FF...)", _SIDES),
    "carriage_return": (r"lines that end in \r\n; the \r is dropped", _SIDES),
    "inner_return": (r"lines with a \r inside", _SIDES),
    "byte_order_mark": ("byte-order mark at the start; it is dropped", _SIDES),
    "inner_mark": ("lines with a U+FEFF inside", _SIDES),
    "replacement": ("lines with U+FFFD, the replacement for damaged characters", _SIDES),
    "control": ("lines with control characters", _SIDES),
}
"""All findings, in the order of a report: description, and the sides that can have it."""
_FATAL = ("mismatch", "empty", "nothing_left", "undecodable")
_ODD = {
    "separator": re.compile("[\u2028\u2029\x85\x0b\x0c\x1c-\x1e]"),
    "inner_return": re.compile("\r"),
    "inner_mark": re.compile("\ufeff"),
    "replacement": re.compile("\ufffd"),
    "control": re.compile("[\0-\x08\x0e-\x1b\x1f\x7f]"),
}


@dataclass
class Finding:
    """One kind of problem, with its number of occurrences."""

    name: str  #: identifier in JSON, such as ``blank``
    text: str  #: description, such as "pairs of blank lines"
    side: Side
    fatal: bool = False  #: whether the problem prevents training
    dropped: bool = False  #: whether training drops these pairs
    count: int = 0
    first_line: int | None = None  #: counted from 1; None if the finding concerns no single line
    sample: str | None = None

    def add(self, line: int | None, text: str | tuple[str, str], at: int = 0, count: int = 1) -> None:
        """Count occurrences; the first sets the line and the sample of ``text`` at ``at``."""
        if not self.count and count:
            self.first_line = line
            half = SAMPLE // 2 - 1
            texts = [shorten(text, at)] if isinstance(text, str) else [shorten(part, width=half) for part in text]
            self.sample = " | ".join(texts)
        self.count += count


@dataclass
class CheckReport:
    """Sizes and findings of two line-aligned files."""

    src: str
    tgt: str
    n_src: int = 0  #: number of source lines
    n_tgt: int = 0
    n_src_words: int = 0  #: number of source words, separated by white space
    n_tgt_words: int = 0
    usual_ratio: float = 1.0  #: median of source / target characters (16 added to each) in the first lines
    src_unknown_rate: float | None = None  #: share of unknown source tokens, if a vocabulary is given
    tgt_unknown_rate: float | None = None
    findings: list[Finding] = field(default_factory=list)  #: findings that occurred, the most serious first

    @property
    def trainable(self) -> bool:
        """Whether training is possible: no finding is fatal."""
        return not any(finding.fatal for finding in self.findings)


def shorten(line: str, at: int = 0, width: int = SAMPLE) -> str:
    """Return ``width`` columns of a line around ``at``; escape unprintable characters.

    >>> shorten("a" * 99, width=5)
    'aaaa…'
    """
    begin = max(0, at - width // 3) if len(line) > width else 0
    shown, used = ("…", 1) if begin else ("", 0)
    for character in line[begin : begin + width]:
        piece = character if character.isprintable() else f"<U+{ord(character):04X}>"
        used += sum(2 if east_asian_width(c) in "WF" else 1 for c in piece)
        if used >= width:
            return shown + "…"
        shown += piece
    return shown


_BATCH = 1 << 16  # items hashed at once
Positions = NDArray[np.int64]  #: ascending indices of items, from 0


class DuplicateFinder:
    """Finder of duplicate items by their hashes, which take 8 bytes each."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def add(self, item: object) -> None:
        """Record the hash of the next item; string hashes are valid in one process only."""
        self._hashes.append(hash(item))

    def repeats(self) -> Positions:
        """Return the positions of items that repeat an earlier item."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")  # stable: equal hashes stay in file order
        return np.sort(order[1:][hashes[order[1:]] == hashes[order[:-1]]])

    def overlap(self, others: Iterable[object]) -> Positions:
        """Return the positions of items that occur in ``others``, which is iterated once."""
        known, inverse = np.unique(np.frombuffer(self._hashes, dtype=np.int64), return_inverse=True)
        in_others = np.zeros(len(known), dtype=np.bool_)
        remaining = iter(others)
        while len(known) and (batch := [hash(item) for item in islice(remaining, _BATCH)]):
            hashes = np.array(batch, dtype=np.int64)
            nearest = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            in_others[nearest[known[nearest] == hashes]] = True
        return np.flatnonzero(in_others[inverse])


BATCH = 4096  #: pairs encoded at once
N_SAMPLED = 10_000  #: number of first pairs that determine the usual length ratio
PADDING = 16  #: characters added to both lengths, so that short lines are not flagged by chance


class LengthRatioFilter:
    """Line pairs, each with a reason to drop it or None; can be iterated once."""

    def __init__(self, pairs: Iterable[Pair], max_ratio: float | None) -> None:
        """Determine the usual ratio of source to target length from the first pairs.

        Lengths are characters plus ``PADDING``. ``max_ratio`` is the maximum factor of deviation; None: no limit.
        """
        remaining = iter(pairs)
        first = list(islice(remaining, N_SAMPLED))
        ratios = [(len(src) + PADDING) / (len(tgt) + PADDING) for src, tgt in first if src.strip() and tgt.strip()]
        self.usual_ratio = median(ratios) if ratios else 1.0
        self._pairs, self._max_ratio = chain(first, remaining), max_ratio

    def __iter__(self) -> Iterator[tuple[Pair, Fault | None]]:
        for src, tgt in self._pairs:
            fault: Fault | None = None
            if not src or src.isspace():
                fault = "blank" if not tgt or tgt.isspace() else "blank_source"
            elif not tgt or tgt.isspace():
                fault = "blank_target"
            elif self._max_ratio is not None:
                ratio = (len(src) + PADDING) / (len(tgt) + PADDING) / self.usual_ratio
                fault = None if 1 / self._max_ratio <= ratio <= self._max_ratio else "odd_ratio"
            yield (src, tgt), fault


@dataclass
class PairDrops:
    """Numbers of pairs dropped from training, by reason."""

    blank: int = 0  #: both lines are blank
    blank_source: int = 0
    blank_target: int = 0
    odd_ratio: int = 0  #: the length ratio in characters deviates too far from the usual ratio


def clean_pairs(
    src_path: Path, tgt_path: Path, drops: PairDrops, config: CheckConfig | None = None
) -> Iterator[tuple[int, Pair]]:
    """Yield usable pairs with their 0-based line numbers; count others in ``drops``.

    Lengths in tokens are not checked, and duplicates are kept. Raises ``DataError`` as ``read_parallel`` does.
    """
    pairs = LengthRatioFilter(read_parallel(src_path, tgt_path), (config or CheckConfig()).max_ratio)
    for line, (pair, fault) in enumerate(pairs):
        if fault is None:
            yield line, pair
        else:
            setattr(drops, fault, getattr(drops, fault) + 1)


def check_pair(
    src_path: Path,
    tgt_path: Path,
    config: CheckConfig | None = None,
    *,
    others: tuple[Path, Path | None] | None = None,
    vocabularies: tuple[Tokenizer, Tokenizer] | None = None,
) -> CheckReport:
    """Read two files to their ends and report every problem.

    Args:
        src_path: Source text.
        tgt_path: Target text.
        config: Limits.
        others: Source and optional target file of another corpus, which should share no lines with these two. Other
            problems of that corpus are ignored.
        vocabularies: Tokenizers of source and target, to count tokens and unknown tokens.
    """
    other_paths = [path for path in others or () if path is not None]
    check_not_streams([src_path, tgt_path, *other_paths])
    for path in other_paths:
        open_binary(path).close()  # report a missing file before reading starts
    inspection = _Inspection((src_path, tgt_path), config or CheckConfig(), vocabularies)
    inspection.read(DuplicateFinder(), DuplicateFinder() if others else None, other_paths)
    inspection.report.findings = [finding for finding in inspection.findings.values() if finding.count]
    return inspection.report


class _Inspection:
    """State of a check of two files: the report and the findings so far."""

    def __init__(
        self, paths: tuple[Path, Path], config: CheckConfig, vocabularies: tuple[Tokenizer, Tokenizer] | None
    ) -> None:
        self.report = CheckReport(str(paths[0]), str(paths[1]))
        self._paths, self._config, self._vocabularies = paths, config, vocabularies
        limit = f"{config.max_length:,} tokens" if vocabularies else f"{config.max_characters:,} characters"
        times, dropped = config.max_ratio or 0, get_args(Fault)
        self.findings = {
            (name, side): Finding(name, text.format(limit=limit, times=times), side, name in _FATAL, name in dropped)
            for name, (text, sides) in _FINDINGS.items()
            for side in sides
        }

    def read(self, pairs: DuplicateFinder, sources: DuplicateFinder | None, others: Sequence[Path]) -> None:
        """Read the files and record all findings, including overlap with other files."""
        report, findings = self.report, self.findings
        n_kept = self._read_pairs(pairs, sources)
        n_src, n_tgt = report.n_src, report.n_tgt
        for side, n_lines in zip(_SIDES, (n_src, n_tgt), strict=True):
            if not n_lines:
                findings["empty", side].add(None, "")
        if n_src != n_tgt and n_src and n_tgt:
            self._note_pairs("mismatch", abs(n_src - n_tgt), first_suspicious_line(*self._paths))
        if not n_kept:
            findings["nothing_left", "pair"].add(None, "", count=min(n_src, n_tgt))
        if len(repeated := pairs.repeats()):
            self._note_pairs("duplicate", len(repeated), int(repeated[0]) + 1)
        if sources is not None:
            shared = sources.overlap(read_lines(others[0], on_bad="replace"))
            if len(shared):
                line = int(shared[0]) + 1
                findings["source_overlap", "source"].add(line, self._pair_at(line)[0], count=len(shared))
        if len(others) == 2:
            lines = (read_lines(path, on_bad="replace") for path in others)
            if len(shared := pairs.overlap(zip(*lines, strict=False))):
                self._note_pairs("pair_overlap", len(shared), int(shared[0]) + 1)

    def _read_pairs(self, seen_pairs: DuplicateFinder, seen_sources: DuplicateFinder | None) -> int:
        """Check every line and pair; return the number of usable pairs."""
        readers = [LineReader(path, on_bad="replace") for path in self._paths]
        src, tgt = (self._inspect_lines(reader, side) for reader, side in zip(readers, _SIDES, strict=True))
        pairs = LengthRatioFilter(to_the_end(src, tgt), self._config.max_ratio)
        judged = enumerate(pairs, 1)
        n_kept, n_tokens, n_unknown = 0, [0, 0], [0, 0]
        while batch := list(islice(judged, BATCH)):
            for number, (pair, fault) in batch:
                if fault is None:
                    n_kept += 1
                else:
                    self.findings[fault, "pair"].add(number, pair)
                # blank lines are not duplicates of each other: the line number replaces them
                seen_pairs.add(number if fault == "blank" else pair)
                if seen_sources is not None:
                    seen_sources.add(number if fault in ("blank", "blank_source") else pair[0])
            for side, tokenizer in enumerate(self._vocabularies or ()):
                lines = [pair[side] for _, (pair, _) in batch]
                for number, (line, ids) in enumerate(zip(lines, tokenizer.encode(lines), strict=True), batch[0][0]):
                    n_tokens[side] += len(ids)
                    n_unknown[side] += ids.count(UNK_ID)
                    if len(ids) > self._config.max_length:
                        self.findings["long", _SIDES[side]].add(number, line)
        report = self.report
        report.usual_ratio = pairs.usual_ratio
        report.n_src, report.n_tgt = (reader.counts.n_lines for reader in readers)
        if self._vocabularies is not None:
            rates = [unknown / max(1, total) for unknown, total in zip(n_unknown, n_tokens, strict=True)]
            report.src_unknown_rate, report.tgt_unknown_rate = rates
        return n_kept

    def _inspect_lines(self, reader: LineReader, side: Side) -> Iterator[str]:
        """Yield the lines of a file and record their problems."""
        counts, findings = reader.counts, self.findings
        n_bad = n_returns = n_words = 0
        most = self._config.max_characters if self._vocabularies is None else None
        for line in reader:
            if counts.n_bad > n_bad:
                n_bad += 1
                findings["undecodable", side].add(counts.n_lines, line, line.find("\ufffd"))
            elif not line.isprintable() or "\ufffd" in line:
                for name, pattern in _ODD.items():
                    if match := pattern.search(line):
                        findings[name, side].add(counts.n_lines, line, match.start())
            if counts.n_carriage_returns > n_returns:
                n_returns += 1
                findings["carriage_return", side].add(counts.n_lines, line)
            if most is not None and len(line) > most:
                findings["long", side].add(counts.n_lines, line)
            n_words += len(line.split())
            yield line
        if counts.guess:
            findings["undecodable", side].sample = counts.guess
        if counts.byte_order_mark:
            findings["byte_order_mark", side].add(1, "")
        setattr(self.report, "n_src_words" if side == "source" else "n_tgt_words", n_words)

    def _note_pairs(self, name: str, count: int, line: int) -> None:
        self.findings[name, "pair"].add(line, self._pair_at(line), count=count)

    def _pair_at(self, number: int) -> Pair:
        """Re-read line ``number`` of both files."""
        src, tgt = (next(islice(read_lines(path, on_bad="replace"), number - 1, None), "") for path in self._paths)
        return src, tgt
