"""Checks of two line-aligned files, line by line and pair by pair."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import get_args

import numpy as np

from attnkit.errors import DataError
from attnkit.protocols import UNK_ID
from attnkit.quality.damage import find_damage, has_word
from attnkit.quality.findings import FATAL, FINDINGS, MIN_OCCURRENCES, SIDES, CheckReport, Finding, OthersName, Side
from attnkit.quality.near_duplicates import MAX_PAIRS, NearDuplicateFinder
from attnkit.quality.overlap import MIN_SHARED, find_copies, find_seen
from attnkit.quality.pair_filters import DuplicateFinder, Fault, LengthRatioFilter, Pair
from attnkit.quality.repetition import MIN_REPEATS, fold, has_repeats
from attnkit.text.config import CheckConfig
from attnkit.text.lines import LineReader, check_not_streams, count_lines, open_binary, read_lines
from attnkit.text.parallel import first_suspicious_line, to_the_end
from attnkit.text.sources import find_source
from attnkit.text.tokenizer import Tokenizer

BATCH = 4096  #: pairs encoded at once
MIN_BOILERPLATE = 20  #: characters of such a line; short answers and titles may repeat


def is_copy(src: str, tgt: str) -> bool:
    """Return whether a target is a copy of a source that has words to translate."""
    return src == tgt and has_word(src)


def check_pair(
    src_path: Path,
    tgt_path: Path,
    config: CheckConfig | None = None,
    *,
    others: tuple[Path, Path | None] | None = None,
    others_name: OthersName = "training",
    vocabularies: tuple[Tokenizer, Tokenizer] | None = None,
) -> CheckReport:
    """Read two files to their ends and report every problem.

    Args:
        src_path: Source text.
        tgt_path: Target text.
        config: Limits.
        others: Source and optional target file of another corpus, which should share no lines with these two. Other
            problems of that corpus are ignored.
        others_name: What the other corpus is. Against a training corpus, these two files are the test set.
        vocabularies: Tokenizers of source and target, to count tokens and unknown tokens.
    """
    other_paths = [path for path in others or () if path is not None]
    check_not_streams([src_path, tgt_path, *other_paths])
    for path in other_paths:
        open_binary(path).close()  # report a missing file before reading starts
    inspection = _Inspection((src_path, tgt_path), config or CheckConfig(), vocabularies, others_name)
    inspection.read(DuplicateFinder(), DuplicateFinder() if others else None, other_paths)
    inspection.report.findings = [finding for finding in inspection.findings.values() if finding.count]
    return inspection.report


def _count_lines(path: Path) -> int:
    """Return the number of lines of a readable file, which may be empty."""
    with suppress(DataError):
        return count_lines(path)
    return 0


class _Inspection:
    """State of a check of two files: the report and the findings so far."""

    def __init__(
        self,
        paths: tuple[Path, Path],
        config: CheckConfig,
        vocabularies: tuple[Tokenizer, Tokenizer] | None,
        others_name: OthersName,
    ) -> None:
        self.report = CheckReport(str(paths[0]), str(paths[1]))
        self._paths, self._config, self._vocabularies = paths, config, vocabularies
        self._others_name = others_name
        self._lines = DuplicateFinder(), DuplicateFinder()  # of both sides, to find boilerplate
        limit = f"{config.max_length:,} tokens" if vocabularies else f"{config.max_characters:,} characters"
        dropped = get_args(Fault)
        words = {
            "limit": limit, "times": config.max_ratio or 0, "others": others_name, "share": 100 * MIN_SHARED,
            "least": MIN_OCCURRENCES, "repeats": MIN_REPEATS,
        }  # fmt: skip
        self.findings = {
            (name, side): Finding(name, text.format(**words), side, name in FATAL, name in dropped)
            for name, (text, sides) in FINDINGS.items()
            for side in sides
        }

    def read(self, pairs: DuplicateFinder, sources: DuplicateFinder | None, others: Sequence[Path]) -> None:
        """Read the files and record all findings, including overlap with other files."""
        report, findings = self.report, self.findings
        folded, near = DuplicateFinder(), NearDuplicateFinder()
        n_kept = self._read_pairs(pairs, (folded, near), sources)
        n_src, n_tgt = report.n_src, report.n_tgt
        for side, n_lines in zip(SIDES, (n_src, n_tgt), strict=True):
            if not n_lines:
                findings["empty", side].add(None, "")
        if n_src != n_tgt and n_src and n_tgt:
            self._note_pairs("mismatch", abs(n_src - n_tgt), first_suspicious_line(*self._paths))
        self._compare_shards()
        if not n_kept:
            findings["nothing_left", "pair"].add(None, "", count=min(n_src, n_tgt))
        repeated = pairs.repeats()
        if len(repeated):
            self._note_pairs("duplicate", len(repeated), int(repeated[0]) + 1)
        known = folded.repeats()
        alike = np.setdiff1d(np.union1d(known, near.repeats(known)), repeated, assume_unique=True)
        if len(alike):
            self._note_pairs("near_duplicate", len(alike), int(alike[0]) + 1)
            if min(n_src, n_tgt) > MAX_PAIRS:
                findings["near_duplicate", "pair"].text += f" (words: among the first {MAX_PAIRS:,} pairs)"
        for side, number in zip(SIDES, (0, 1), strict=True):
            if len(frequent := self._lines[number].frequent(MIN_OCCURRENCES)):
                line = int(frequent[0]) + 1
                findings["boilerplate", side].add(line, self._pair_at(line)[number], count=len(frequent))
        if sources is not None:
            self._compare(pairs, sources, others)

    def _compare_shards(self) -> None:
        """Record shards of the two sides that differ in their numbers of lines."""
        sources = [find_source(path) for path in self._paths]
        files = [source.files if source is not None and source.field is None else () for source in sources]
        if len(files[0]) != len(files[1]) or len(files[0]) < 2:
            return
        line = 1
        for shards in zip(*files, strict=True):
            n_src, n_tgt = map(_count_lines, shards)
            if n_src != n_tgt:
                names = f"{shards[0].name}: {n_src:,}", f"{shards[1].name}: {n_tgt:,}"
                self.findings["unequal_shards", "pair"].add(line + min(n_src, n_tgt), names)
            line += n_src

    def _compare(self, pairs: DuplicateFinder, sources: DuplicateFinder, others: Sequence[Path]) -> None:
        """Record what these files share with others."""
        findings = self.findings
        shared = sources.overlap(read_lines(others[0], on_bad="replace"))
        if len(shared):
            line = int(shared[0]) + 1
            findings["source_overlap", "source"].add(line, self._pair_at(line)[0], count=len(shared))
        if len(others) == 2:
            lines = (read_lines(path, on_bad="replace") for path in others)
            if len(both := pairs.overlap(zip(*lines, strict=False))):
                self._note_pairs("pair_overlap", len(both), int(both[0]) + 1)
        find = find_seen if self._others_name == "training" else find_copies
        for number, (own, other) in enumerate(zip(self._paths, others, strict=False)):
            near = find(*(read_lines(path, on_bad="replace") for path in (own, other)))
            near = np.setdiff1d(near, shared)  # known better than nearly
            if len(near):
                line = int(near[0]) + 1
                findings["near_overlap", SIDES[number]].add(line, self._pair_at(line)[number], count=len(near))

    def _read_pairs(
        self,
        seen_pairs: DuplicateFinder,
        near: tuple[DuplicateFinder, NearDuplicateFinder],
        seen_sources: DuplicateFinder | None,
    ) -> int:
        """Check every line and pair; return the number of usable pairs."""
        folded, near_pairs = near
        readers = [LineReader(path, on_bad="replace") for path in self._paths]
        src, tgt = (self._inspect_lines(reader, side) for reader, side in zip(readers, SIDES, strict=True))
        pairs = LengthRatioFilter(to_the_end(src, tgt), self._config.max_ratio)
        judged = enumerate(pairs, 1)
        n_kept, n_tokens, n_unknown = 0, [0, 0], [0, 0]
        while batch := list(islice(judged, BATCH)):
            for number, (pair, fault) in batch:
                if fault is None:
                    n_kept += 1
                else:
                    self.findings[fault, "pair"].add(number, pair)
                if fault is None and is_copy(*pair):
                    self.findings["copied", "pair"].add(number, pair)
                # blank lines are not duplicates of each other: the line number replaces them
                seen_pairs.add(number if fault == "blank" else pair)
                folded.add(number if fault == "blank" else (fold(pair[0]), fold(pair[1])))
                for side_lines, line in zip(self._lines, pair, strict=True):
                    side_lines.add(line if len(line) >= MIN_BOILERPLATE else number)
                if seen_sources is not None:
                    seen_sources.add(number if fault in ("blank", "blank_source") else pair[0])
            near_pairs.add([pair for _, (pair, _) in batch])
            for side, tokenizer in enumerate(self._vocabularies or ()):
                lines = [pair[side] for _, (pair, _) in batch]
                for number, (line, ids) in enumerate(zip(lines, tokenizer.encode(lines), strict=True), batch[0][0]):
                    n_tokens[side] += len(ids)
                    n_unknown[side] += ids.count(UNK_ID)
                    if len(ids) > self._config.max_length:
                        self.findings["long", SIDES[side]].add(number, line)
        report = self.report
        report.usual_ratio, report.n_usable = pairs.usual_ratio, n_kept
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
            else:
                for name, place in find_damage(line):
                    findings[name, side].add(counts.n_lines, line, place)
            if counts.n_carriage_returns > n_returns:
                n_returns += 1
                findings["carriage_return", side].add(counts.n_lines, line)
            if most is not None and len(line) > most:
                findings["long", side].add(counts.n_lines, line)
            words = line.split()
            n_words += len(words)
            if has_repeats(line, words):
                findings["repeated", side].add(counts.n_lines, line)
            yield line
        if counts.guess:
            findings["undecodable", side].sample = counts.guess
        if counts.n_line_breaks:
            findings["line_break", side].add(None, "", count=counts.n_line_breaks)
        if counts.byte_order_mark:
            findings["byte_order_mark", side].add(1, "")
        setattr(self.report, "n_src_words" if side == "source" else "n_tgt_words", n_words)

    def _note_pairs(self, name: str, count: int, line: int) -> None:
        self.findings[name, "pair"].add(line, self._pair_at(line), count=count)

    def _pair_at(self, number: int) -> Pair:
        """Re-read line ``number`` of both files."""
        src, tgt = (next(islice(read_lines(path, on_bad="replace"), number - 1, None), "") for path in self._paths)
        return src, tgt
