"""Check two line-aligned files: findings, duplicates, and which pairs training leaves out."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

from attnkit.protocols import UNK_ID
from attnkit.text.check_report import CheckReport, FindingCounter, Side, known_findings
from attnkit.text.config import CheckConfig
from attnkit.text.lines import LineReader, check_not_streams, open_binary, read_lines
from attnkit.text.parallel import first_suspicious_line, read_parallel, to_the_end
from attnkit.text.tokenizer import Tokenizer

_BATCH = 1 << 16


@dataclass(frozen=True)
class Repeats:
    """How many items occurred before, and the first of them; items are counted from 0."""

    count: int = 0
    first: int | None = None


class DuplicateFinder:
    """The hashes of the items of one file, 8 bytes each."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def add(self, item: object) -> None:
        """Note the next item (within one process: strings hash differently in each)."""
        self._hashes.append(hash(item))

    def repeats(self) -> Repeats:
        """Return what occurs twice among the items."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")  # equal ones stay in the order of the file
        later = order[1:][hashes[order[1:]] == hashes[order[:-1]]]
        return Repeats(len(later), int(later.min())) if len(later) else Repeats()

    def overlap(self, others: Iterable[object]) -> Repeats:
        """Return which items occur in ``others``, which are read once."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        known, which = np.unique(hashes, return_inverse=True)
        if not len(known):
            return Repeats()
        met = np.zeros(len(known), dtype=np.bool_)
        remaining = iter(others)
        while batch := [hash(item) for item in islice(remaining, _BATCH)]:
            theirs = np.array(batch, dtype=np.int64)
            places = np.minimum(np.searchsorted(known, theirs), len(known) - 1)
            met[places[known[places] == theirs]] = True
        found = np.flatnonzero(met[which])
        return Repeats(len(found), int(found[0])) if len(found) else Repeats()


Pair = tuple[str, str]
Fault = Literal["blank", "blank_source", "blank_target", "odd_ratio"]

SAMPLED = 10_000
"""Pairs at the beginning from which the usual ratio of lengths is taken."""
PADDING = 16
"""Characters added to both lengths, so that short lines are not judged by chance."""


@dataclass(frozen=True)
class LengthRatioFilter:
    """Knows what ratio of lengths is usual in a corpus: 1 for related languages, 10 for summaries."""

    usual_ratio: float
    """Source over target characters, ``PADDING`` added to each."""
    max_ratio: float | None
    """How many times more or less than usual is too much; None: nothing is."""

    def fault(self, src: str, tgt: str) -> Fault | None:
        """Return why a pair cannot be trained on, None if it can."""
        if not src or src.isspace():
            return "blank" if not tgt or tgt.isspace() else "blank_source"
        if not tgt or tgt.isspace():
            return "blank_target"
        if self.max_ratio is None:
            return None
        ratio = (len(src) + PADDING) / (len(tgt) + PADDING) / self.usual_ratio
        return None if 1 / self.max_ratio <= ratio <= self.max_ratio else "odd_ratio"


def fit_length_filter(pairs: Iterable[Pair], max_ratio: float | None) -> tuple[Iterator[Pair], LengthRatioFilter]:
    """Return the same pairs, and a judge that has read the first of them."""
    remaining = iter(pairs)
    first = list(islice(remaining, SAMPLED))
    ratios = [(len(src) + PADDING) / (len(tgt) + PADDING) for src, tgt in first if src.strip() and tgt.strip()]
    return chain(first, remaining), LengthRatioFilter(median(ratios) if ratios else 1.0, max_ratio)


BATCH = 4096
"""Pairs that are looked at, and encoded, together."""

_SIDES: tuple[Side, Side] = ("source", "target")
_ODD = {
    "separator": re.compile("[\u2028\u2029\x85\x0b\x0c\x1c-\x1e]"),
    "inner_return": re.compile("\r"),
    "inner_mark": re.compile("\ufeff"),
    "replacement": re.compile("\ufffd"),
    "control": re.compile("[\0-\x08\x0e-\x1b\x1f\x7f]"),
}


@dataclass
class PairDrops:
    """How many pairs were left out of training, by reason."""

    blank: int = 0
    """Both lines are blank."""
    blank_source: int = 0
    blank_target: int = 0
    odd_ratio: int = 0
    """Lengths in characters that go together unlike those of the rest."""


def clean_pairs(
    src_path: Path, tgt_path: Path, drops: PairDrops, config: CheckConfig | None = None
) -> Iterator[tuple[int, Pair]]:
    """Yield the pairs that can be trained on with their line numbers from 0; count the others in ``drops``.

    Lengths in tokens are for the caller to judge. Duplicates are kept.

    Raises:
        DataError: The files differ in their numbers of lines, or a byte is not UTF-8.
    """
    pairs, judge = fit_length_filter(read_parallel(src_path, tgt_path), (config or CheckConfig()).max_ratio)
    for line, pair in enumerate(pairs):
        fault = judge.fault(*pair)
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
    """Read two files to their ends and say everything that is odd about them.

    Args:
        src_path: Source text.
        tgt_path: Target text.
        config: Limits.
        others: Source and perhaps target file of another corpus, which should share no lines with these two. Whatever
            else is wrong with them is not looked at.
        vocabularies: Of source and target, to count tokens and unknown ones.
    """
    check_not_streams([src_path, tgt_path, *filter(None, others or ())])
    for path in filter(None, others or ()):
        open_binary(path).close()  # a missing file is better said before the reading than after
    inspection = _Inspection((src_path, tgt_path), config or CheckConfig(), vocabularies, overlap=others is not None)
    inspection.read()
    inspection.compare_counts()
    inspection.find_repeats()
    if others is not None:
        inspection.find_overlap(*others)
    return inspection.finish()


class _Inspection:
    """One reading of two files, and what it has found so far."""

    def __init__(
        self,
        paths: tuple[Path, Path],
        config: CheckConfig,
        vocabularies: tuple[Tokenizer, Tokenizer] | None,
        *,
        overlap: bool,
    ) -> None:
        self.report = CheckReport(str(paths[0]), str(paths[1]))
        self._paths = paths
        self._readers = tuple(LineReader(path, on_bad="replace") for path in self._paths)
        self._config = config
        self._vocabularies = vocabularies
        self._tally = FindingCounter(known_findings(config, vocabularies is not None))
        self._n_kept = 0
        self._pairs, self._sources = DuplicateFinder(), DuplicateFinder() if overlap else None
        self._tokens, self._unknown = [0, 0], [0, 0]

    def read(self) -> None:
        """Look at every line and every pair."""
        src, tgt = (self._watch(reader, side) for reader, side in zip(self._readers, _SIDES, strict=True))
        pairs, judge = fit_length_filter(to_the_end(src, tgt), self._config.max_ratio)
        self.report.usual_ratio = judge.usual_ratio
        n_before = 0
        while batch := list(islice(pairs, BATCH)):
            for number, pair in enumerate(batch, n_before + 1):
                fault = judge.fault(*pair)
                if fault is None:
                    self._n_kept += 1
                else:
                    self._tally.add(fault, "pair", number, pair)
                # a blank pair is no repetition of another: its number represents it
                self._pairs.add(number if fault == "blank" else pair)
                if self._sources is not None:
                    self._sources.add(number if fault in ("blank", "blank_source") else pair[0])
            if self._vocabularies is not None:
                self._count_tokens(batch, n_before)
            n_before += len(batch)

    def compare_counts(self) -> None:
        """Note missing lines, that there are none at all, or none that can be trained on."""
        n_src, n_tgt = (reader.counts.n_lines for reader in self._readers)
        self.report.n_src, self.report.n_tgt = n_src, n_tgt
        for side, n_lines in zip(_SIDES, (n_src, n_tgt), strict=True):
            if not n_lines:
                self._tally.put("empty", side, 1, None, "")
        if n_src != n_tgt and n_src and n_tgt:
            line = first_suspicious_line(*self._paths)
            self._tally.put("mismatch", "pair", abs(n_src - n_tgt), line, self._pair_at(line))
        if not self._n_kept:
            self._tally.put("nothing_left", "pair", min(n_src, n_tgt), None, "")

    def find_repeats(self) -> None:
        """Note pairs that occur more than once."""
        found = self._pairs.repeats()
        if found.first is not None:
            self._tally.put("duplicate", "pair", found.count, found.first + 1, self._pair_at(found.first + 1))

    def find_overlap(self, src_path: Path, tgt_path: Path | None) -> None:
        """Note sources, and pairs if both files are given, that also occur in another corpus."""
        assert self._sources is not None
        found = self._sources.overlap(read_lines(src_path, on_bad="replace"))
        if found.first is not None:
            line = found.first + 1
            self._tally.put("source_overlap", "source", found.count, line, self._pair_at(line)[0])
        if tgt_path is not None:
            lines = (read_lines(path, on_bad="replace") for path in (src_path, tgt_path))
            found = self._pairs.overlap(zip(*lines, strict=False))
            if found.first is not None:
                self._tally.put("pair_overlap", "pair", found.count, found.first + 1, self._pair_at(found.first + 1))

    def finish(self) -> CheckReport:
        """Return the report."""
        if self._vocabularies is not None:
            rates = [
                unknown / tokens if tokens else 0.0 for unknown, tokens in zip(self._unknown, self._tokens, strict=True)
            ]
            self.report.src_unknown_rate, self.report.tgt_unknown_rate = rates
        self.report.findings = self._tally.found()
        return self.report

    def _watch(self, reader: LineReader, side: Side) -> Iterator[str]:
        """Yield the lines of a file and note what is odd about each alone."""
        counts, tally = reader.counts, self._tally
        n_bad = n_returns = n_words = 0
        most = self._config.max_characters if self._vocabularies is None else None
        for line in reader:
            if counts.n_bad > n_bad:
                n_bad += 1
                tally.add("undecodable", side, counts.n_lines, line, line.find("\ufffd"))
            elif not line.isprintable() or "\ufffd" in line:
                self._note_characters(line, side, counts.n_lines)
            if counts.n_carriage_returns > n_returns:
                n_returns += 1
                tally.add("carriage_return", side, counts.n_lines, line)
            if most is not None and len(line) > most:
                tally.add("long", side, counts.n_lines, line)
            n_words += len(line.split())
            yield line
        if counts.guess:
            tally.explain("undecodable", side, counts.guess)
        if counts.byte_order_mark:
            tally.put("byte_order_mark", side, 1, 1, "")
        setattr(self.report, "n_src_words" if side == "source" else "n_tgt_words", n_words)

    def _note_characters(self, line: str, side: Side, number: int) -> None:
        for name, pattern in _ODD.items():
            found = pattern.search(line)
            if found is not None:
                self._tally.add(name, side, number, line, found.start())

    def _count_tokens(self, batch: list[Pair], n_before: int) -> None:
        assert self._vocabularies is not None
        for k, lines in enumerate(zip(*batch, strict=True)):
            for offset, ids in enumerate(self._vocabularies[k].encode(lines)):
                self._tokens[k] += len(ids)
                self._unknown[k] += ids.count(UNK_ID)
                if len(ids) > self._config.max_length:
                    self._tally.add("long", _SIDES[k], n_before + offset + 1, lines[offset])

    def _pair_at(self, number: int) -> Pair:
        """Read line ``number`` of both files again."""
        src, tgt = (next(islice(read_lines(path, on_bad="replace"), number - 1, None), "") for path in self._paths)
        return src, tgt
