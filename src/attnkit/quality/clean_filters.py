"""Filters of a cleaning: what becomes of each source line of a span.

Lines are judged in chunks, each of which holds all that its filters need, so that other processes can judge them.
Repeats depend on all earlier lines and are found afterwards.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnkit.quality.check import is_copy
from attnkit.quality.config import CleanConfig
from attnkit.quality.damage import repair_letters, repair_mojibake, strip_tags
from attnkit.quality.judgement import MIN_ODDS, Span, judge_span, kinds_of
from attnkit.quality.lines import Floats, Ints
from attnkit.quality.near_duplicates import MAX_PAIRS, NearDuplicateFinder
from attnkit.quality.overlap import OverlapIndex
from attnkit.quality.pair_filters import Pair, find_fault, usual_ratio
from attnkit.quality.repetition import fold, has_repeats
from attnkit.text.lines import read_lines

CHUNK = 1 << 13  #: lines judged at once
Score = Callable[[list[str], list[str]], list[float]]
"""Function from source and target lines to log-probabilities per target token."""


@dataclass(frozen=True)
class Judged:
    """A source line and what became of it."""

    line: int  #: from 1
    original: Pair
    pair: Pair  #: repaired, if that was asked for
    reason: str | None  #: why it is dropped; None: kept
    moved: bool = False  #: its target was in another line


class Pairing:
    """Target line of each source line of a span, or the reason to drop it."""

    def __init__(self, span: Span, config: CleanConfig) -> None:
        self.span = span
        judged = judge_span(span)
        self.evidence = judged.alignment.evidence if judged.alignment.is_judged else None
        n = len(span.src)
        self.partners: Ints = np.arange(n)
        self.reasons: list[str | None] = [None] * n
        for kind, segment in kinds_of(judged):
            if segment.shift is not None and config.realign:
                self.partners[segment.begin : segment.end] += segment.shift
            else:
                reason = "misaligned" if segment.shift is not None else kind
                self.reasons[segment.begin : segment.end] = [reason] * segment.n_lines
        outside = (self.partners < 0) | (self.partners >= len(span.tgt))
        for line in np.flatnonzero(outside).tolist():
            self.partners[line] = -1
            self.reasons[line] = self.reasons[line] or "no_target"
        used = np.unique(self.partners[self.partners >= 0])
        self.n_unused = len(span.tgt) - len(used)
        self.against = judged.languages.against
        self.scripts = judged.languages.wrong_scripts
        self.foreign = [flags for flags, _ in judged.languages.foreign]


@dataclass(frozen=True)
class Chunk:
    """Source lines with their targets, and what the span showed of them."""

    first: int  #: line of the file, from 1
    pairs: list[Pair]
    moved: list[bool]
    reasons: list[str | None]
    against: tuple[Floats, Floats]  #: evidence in nats of each side for the other side's language
    strange: list[str | None]  #: reason to drop a line in a third language or another script


def chunks_of(plan: Pairing, begin: int, end: int) -> Iterator[Chunk]:
    """Yield the source lines [begin, end) of a span in chunks."""
    span = plan.span
    for first in range(begin, end, CHUNK):
        lines = np.arange(first, min(end, first + CHUNK))
        partners = plan.partners[lines]
        numbers = list(zip(lines.tolist(), partners.tolist(), strict=True))
        inside = np.maximum(partners, 0)
        tgt_against = plan.against[1][inside] if len(span.tgt) else np.zeros(len(lines))
        yield Chunk(
            span.start + first + 1,
            [(span.src[line], span.tgt[partner] if partner >= 0 else "") for line, partner in numbers],
            (partners != lines).tolist(),
            plan.reasons[first : first + len(lines)],
            (plan.against[0][lines], tgt_against),
            [_strange(plan, source, target) for source, target in numbers],
        )


def _strange(plan: Pairing, source: int, target: int) -> str | None:
    for side, line in zip(("source", "target"), (source, target), strict=True):
        number = side == "target"
        if line >= 0 and plan.foreign[number][line]:
            return f"{side}_in_other_language"
        if line >= 0 and plan.scripts[number][line]:
            return "other_script"
    return None


def judge_chunk(chunk: Chunk, config: CleanConfig, ratio: float) -> list[Judged]:
    """Return the lines of a chunk, judged by all that depends on no other line."""
    judged = []
    for number, (pair, known) in enumerate(zip(chunk.pairs, chunk.reasons, strict=True)):
        mended = (repair(pair[0]), repair(pair[1])) if config.repair else pair
        if config.strip_tags:
            mended = strip_tags(mended[0]), strip_tags(mended[1])
        reason = known or _reason(mended, config, ratio)
        if reason is None and config.check_languages:
            against = float(chunk.against[0][number]), float(chunk.against[1][number])
            reason = chunk.strange[number] or _wrong_language(against)
        judged.append(Judged(chunk.first + number, pair, mended, reason, chunk.moved[number]))
    return judged


def _reason(pair: Pair, config: CleanConfig, ratio: float) -> str | None:
    src, tgt = pair
    fault = find_fault(src, tgt, ratio, config.max_ratio)
    if fault is not None and fault != "odd_ratio":
        return fault
    if "\ufffd" in src or "\ufffd" in tgt:
        return "undecodable"
    lengths = len(src), len(tgt)
    if max(lengths) > config.max_characters or min(lengths) < config.min_characters:
        return "long" if max(lengths) > config.max_characters else "short"
    if fault is not None:
        return fault
    if config.drop_repeated and any(has_repeats(side, side.split()) for side in pair):
        return "repeated"
    return "copied" if config.drop_copies and is_copy(src, tgt) else None


def _wrong_language(against: tuple[float, float]) -> str | None:
    if min(against) > 0 and sum(against) > MIN_ODDS:
        return "swapped"
    if max(against) > MIN_ODDS:
        return "source_in_target_language" if against[0] > against[1] else "target_in_source_language"
    return None


class CleanFilters:
    """Filters of pairs, in the order in which they are asked."""

    def __init__(
        self,
        config: CleanConfig,
        kept: Iterable[Pair],
        score: Score | None,
        test: tuple[Path, ...],
        near: Collection[int] = (),
    ) -> None:
        """Take the pairs kept so far, and test sets that nothing kept may overlap.

        ``near`` are lines, from 1, whose pair nearly repeats an earlier one (``find_near_lines``).
        """
        self._config, self._score, self._near = config, score, near
        self._seen: set[bytes] = set()
        self._uses: tuple[Counter[int], Counter[int]] = Counter(), Counter()
        self._ratio: float | None = None
        self._tests = [OverlapIndex(read_lines(path, on_bad="replace")) for path in test]
        self._test_lines = {fold(line) for path in test for line in read_lines(path, on_bad="replace")}
        for pair in kept:
            self._seen.add(self._key(pair))
            self._count(pair)

    def begin_span(self, span: Span, plan: Pairing | None) -> None:
        """Take the usual ratio of lengths from the first span."""
        if self._ratio is None:
            judged = plan or Pairing(span, self._config)
            lines = np.flatnonzero(judged.partners >= 0)[:10_000].tolist()
            self._ratio = usual_ratio((span.src[i], span.tgt[int(judged.partners[i])]) for i in lines)

    def judge(
        self, plan: Pairing, begin: int, end: int, run: Callable[..., Iterable[list[Judged]]]
    ) -> Iterator[Judged]:
        """Yield the lines [begin, end) of a span, judged.

        ``run`` is ``map`` or that of other processes.
        """
        judge = partial(judge_chunk, config=self._config, ratio=self._ratio or 1.0)
        judged = [one for part in run(judge, chunks_of(plan, begin, end)) for one in part]
        evidence = self._evidence(plan, begin, end)
        if evidence is not None:
            low = evidence < (self._config.min_evidence or 0)
            judged = [
                replace(one, reason="low_evidence") if is_low and one.reason is None else one
                for one, is_low in zip(judged, low.tolist(), strict=True)
            ]
        if self._tests:
            judged = self._without_test_lines(judged)
        if self._score is not None and self._config.min_log_prob is not None:
            judged = self._scored(judged, self._score, self._config.min_log_prob)
        yield from map(self._without_repeats, judged)

    def _evidence(self, plan: Pairing, begin: int, end: int) -> NDArray[np.float64] | None:
        if self._config.min_evidence is None or plan.evidence is None:
            return None
        lines = np.arange(begin, end)
        scores = np.full(len(lines), np.inf)
        paired = np.flatnonzero(plan.partners[lines] >= 0)
        scores[paired] = plan.evidence.of(lines[paired], plan.partners[lines[paired]])
        return scores

    def _without_test_lines(self, judged: list[Judged]) -> list[Judged]:
        near: set[int] = set()
        for side in (0, 1):
            lines = [one.pair[side] for one in judged]
            near.update(number for number, line in enumerate(lines) if fold(line) in self._test_lines)
            for index in self._tests:
                for begin in range(0, len(lines), CHUNK):
                    near.update((begin + index.find(lines[begin : begin + CHUNK])[:, 0]).tolist())
        return [
            replace(one, reason="test_overlap") if one.reason is None and number in near else one
            for number, one in enumerate(judged)
        ]

    def _scored(self, judged: list[Judged], score: Score, least: float) -> list[Judged]:
        kept = [one for one in judged if one.reason is None]
        scores = score([one.pair[0] for one in kept], [one.pair[1] for one in kept])
        low = {one.line for one, value in zip(kept, scores, strict=True) if value < least}
        return [replace(one, reason="low_log_prob") if one.line in low else one for one in judged]

    def _without_repeats(self, one: Judged) -> Judged:
        if one.reason is not None:
            return one
        if self._config.duplicates != "keep":
            key = self._key(one.pair)
            # A pair whose target was in another line is not the one that was compared.
            if key in self._seen or (one.line in self._near and not one.moved):
                return replace(one, reason="duplicate" if self._config.duplicates == "exact" else "near_duplicate")
            self._seen.add(key)
        most = self._config.max_uses
        if most is not None and max(uses[_hash(line)] for uses, line in zip(self._uses, one.pair, strict=True)) >= most:
            return replace(one, reason="boilerplate")
        self._count(one.pair)
        return one

    def _count(self, pair: Pair) -> None:
        if self._config.max_uses is not None:
            for uses, line in zip(self._uses, pair, strict=True):
                uses[_hash(line)] += 1

    def _key(self, pair: Pair) -> bytes:
        is_exact = self._config.duplicates == "exact"
        sides = (side.encode("utf-8", "surrogatepass") if is_exact else fold(side) for side in pair)
        return blake2b(b"\n".join(sides), digest_size=12).digest()


def find_near_lines(src: Path, tgt: Path, config: CleanConfig) -> frozenset[int]:
    """Return the lines, from 1, of pairs that nearly repeat an earlier one.

    Pairs that are dropped for what they are count neither as repeating nor as repeated.
    """
    lines = zip(*(read_lines(path, on_bad="replace") for path in (src, tgt)), strict=False)
    pairs = islice(lines, MAX_PAIRS)
    finder, loose = NearDuplicateFinder(), config.model_copy(update={"max_ratio": None})
    while batch := list(islice(pairs, CHUNK)):
        finder.add([pair if _reason(pair, loose, 1.0) is None else ("", "") for pair in batch])
    return frozenset((finder.repeats() + 1).tolist())


def _hash(line: str) -> int:
    return int.from_bytes(blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


# With its semicolon: in an address, &copy=1 is no reference.
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def repair(line: str) -> str:
    """Return a line without mojibake, references, odd spaces and letters, in NFC."""
    if not line.isascii() or "&" in line:
        unescaped = _REFERENCE.sub(lambda found: html.unescape(found[0]), repair_mojibake(line))
        line = unicodedata.normalize("NFC", unescaped)
    line = repair_letters(line)
    return " ".join(line.split()) if not line.isprintable() or "\xa0" in line else line
