"""Alignment of two files by evidence: shifted, exchanged and unrelated lines.

1. A course of shifts by lengths, marks and shared words (`shifts.py`) says which pairs are presumably right.
2. These teach the evidence of a pair (`evidence.py`), which is then summed along the file as it is: where the sum
   falls, the pairs of a region do not belong together.
3. For such a region, shifts are tried: all near ones, and distant ones where the sequence of lengths agrees.
4. A Viterbi path over the shifts found gives the segments line by line. Where it finds none of them, shifts are tried
   again, closer together.
5. Between two shifts, the edge is put where the evidence of all lines around is largest. Source lines whose targets are
   missing there have no target: no target line belongs to two sources.

Letters: N lines of the source, D shifts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attnkit.quality.evidence import Evidence
from attnkit.quality.lines import Floats, Ints, Side
from attnkit.quality.shifts import MAX_SHIFT, WINDOW, find_course, viterbi

MIN_LINES = 20  #: corpora with fewer lines are not judged
MIN_SEPARATION = 2.0  #: nats between right and wrong pairs; below it, nothing is concluded
MIN_EVIDENCE = 25.0  #: nats that a segment must have against being aligned as it is
MIN_UNRELATED = 80.0  #: the same where no shift explains it
_CHANGE = 10.0  # nats that a change of shift costs, line by line
_SCORED = 100_000  # lines whose pairs are scored one by one; of larger corpora every second line, third line...
_BLOCK, _BLOCKS = 2048, 24  # lines per block of a large corpus, and blocks whose course of shifts is sought
_LARGE = 1 << 17  # lines of a corpus of which half as many blocks and lines are looked at
_SCORED_OF_LARGE = 40_000
_RUN = 200  # lines whose sequence is looked for elsewhere
MIN_RUN = 10.0  #: evidence in nats of a run of lines for a shift
_MAX_RUNS = 400  # runs per region
_DISTANT = 12  # distant shifts tried per run
_ROUNDS = 5  # of looking for shifts where none was found
_MIN_NOWHERE = 8  # lines without a shift that are looked at again
_EDGE = 12  # lines on both sides of a change of shift that are looked at
_CHANNELS = 8  # projections of words
MAX_PROJECTED = 300_000  #: lines up to which distant shifts are sought by words too


@dataclass(frozen=True)
class Segment:
    """Source lines [begin, end), from 0, and where their target lines are."""

    begin: int
    end: int
    shift: int | None  #: target line minus source line; None: no target line belongs to them
    evidence: float  #: nats in favour of this shift over 0

    @property
    def n_lines(self) -> int:
        """Number of source lines."""
        return self.end - self.begin


@dataclass(frozen=True)
class Alignment:
    """What was found about the alignment of two files."""

    evidence: Evidence | None  #: of pairs of these lines; None if there are too few to learn from
    segments: tuple[Segment, ...]  #: all source lines in order; one segment of shift 0 if nothing is wrong

    @property
    def is_judged(self) -> bool:
        """Whether right pairs differ from wrong ones at all."""
        return self.evidence is not None and self.evidence.separation >= MIN_SEPARATION

    @property
    def faults(self) -> tuple[Segment, ...]:
        """Segments whose shift is not 0."""
        return tuple(segment for segment in self.segments if segment.shift != 0)


def find_alignment(src: Side, tgt: Side) -> Alignment:
    """Return the segments of two sides of a corpus."""
    n = min(len(src), len(tgt))
    whole = (Segment(0, len(src), 0, 0.0),) if len(src) else ()
    if n < MIN_LINES:
        return Alignment(None, whole)
    pairs = presumed_pairs(src, tgt)
    if len(pairs[0]) < MIN_LINES:  # the others are blank
        return Alignment(None, whole)
    evidence = Evidence(src, tgt, pairs)
    if evidence.separation < MIN_SEPARATION:
        return Alignment(evidence, whole)
    segments: list[Segment] = []
    for begin, end in _doubtful(evidence, len(src), len(tgt)):
        segments += _resolve(evidence, begin, end)
    return Alignment(evidence, _with_exact_edges(evidence, _fill(_convincing(segments), len(src))))


def _convincing(segments: list[Segment]) -> list[Segment]:
    """Return the segments with enough evidence.

    Next to a shift, a few lines without a partner are enough.
    """
    shifted = {
        edge
        for segment in segments
        if segment.shift is not None and segment.evidence >= MIN_EVIDENCE
        for edge in (segment.begin, segment.end)
    }
    kept = []
    for segment in segments:
        is_gap = segment.shift is None and (segment.begin in shifted or segment.end in shifted)
        least = MIN_EVIDENCE if segment.shift is not None else _CHANGE if is_gap else MIN_UNRELATED
        if segment.evidence >= least:
            kept.append(segment)
    return kept


def presumed_pairs(src: Side, tgt: Side) -> tuple[Ints, Ints]:
    """Return line numbers of presumably right pairs.

    The course of shifts gives them; without one, the files are taken as they are. Of large corpora, blocks of lines
    are taken.
    """
    n = min(len(src), len(tgt))
    if n <= _BLOCKS * _BLOCK:
        return _pairs_of_course(src, tgt)
    n_blocks = _BLOCKS if n <= _LARGE else _BLOCKS // 2
    begins = np.linspace(0, n - _BLOCK, n_blocks).astype(np.int64)
    chosen = (begins[:, None] + np.arange(_BLOCK)).reshape(-1)
    pairs = _pairs_of_course(src.take(chosen), tgt.take(chosen))
    inside = pairs[0] // _BLOCK == pairs[1] // _BLOCK
    return chosen[pairs[0][inside]], chosen[pairs[1][inside]]


def _pairs_of_course(src: Side, tgt: Side) -> tuple[Ints, Ints]:
    course = find_course(src, tgt)
    sure = course.evidence > 4.0
    lines = np.flatnonzero(np.repeat(sure, WINDOW)[: len(src)])
    shifts = np.repeat(course.shifts, WINDOW)[: len(src)]
    if len(lines) < 0.1 * len(src):
        lines, shifts = np.arange(len(src)), np.zeros(len(src), np.int64)
    partners = lines + shifts[lines]
    used = (partners >= 0) & (partners < len(tgt))
    used[used] &= ~(src.blank[lines[used]] | tgt.blank[partners[used]])
    return lines[used], partners[used]


def _doubtful(evidence: Evidence, n_src: int, n_tgt: int) -> list[tuple[int, int]]:
    """Return regions of source lines that differ from their target lines."""
    n = min(n_src, n_tgt)
    stride = max(1, n // (_SCORED if n <= _LARGE else _SCORED_OF_LARGE))
    lines = np.arange(0, n, stride)
    scores = evidence.of(lines, lines)
    path = viterbi(np.stack([scores, np.zeros(len(lines))], axis=1), _CHANGE)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], path, [0]])))
    margin = 8 * stride
    regions = [
        (max(0, int(a) * stride - margin), min(n, int(b) * stride + margin))
        for a, b in edges.reshape(-1, 2)
        if -scores[a:b].sum() >= _CHANGE
    ]
    if n_src > n:
        regions.append((n, n_src))
    merged: list[tuple[int, int]] = []
    for begin, end in regions:
        if merged and begin <= merged[-1][1] + 2 * margin:
            begin, _ = merged.pop()
        merged.append((begin, end))
    return merged


def _resolve(evidence: Evidence, begin: int, end: int) -> list[Segment]:
    """Return the segments of a doubtful region that are not aligned as they are."""
    shifts = _find_shifts(evidence, begin, end)
    segments = _path(evidence, begin, end, shifts)
    for _ in range(_ROUNDS):  # short segments lie between the runs that were looked at
        more: list[int] = []
        for one in segments:
            if one.shift is None and one.n_lines >= _MIN_NOWHERE:
                for first in {one.begin, (one.begin + one.end) // 2, one.end - _MIN_NOWHERE}:
                    more += _near_shifts(evidence, np.arange(first, min(one.end, first + 2 * _MIN_NOWHERE)))
        if not (more := sorted(set(more) - set(shifts))):
            break
        shifts += more
        segments = _path(evidence, begin, end, shifts)
    return segments


def _path(evidence: Evidence, begin: int, end: int, shifts: list[int]) -> list[Segment]:
    """Return the segments of the best path over shifts, but for those of shift 0."""
    stride = max(1, (end - begin) * len(shifts) // (2 * _SCORED))
    lines = np.arange(begin, end, stride)
    emissions = np.zeros((len(lines), len(shifts) + 1))  # the last state, "nowhere", has evidence 0
    for column, tried in enumerate(shifts):
        emissions[:, column] = scores_at(evidence, lines, tried)
    path = viterbi(emissions, _CHANGE)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(path)) + 1, [len(path)]])
    found = []
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        state = int(path[a])
        if state != 0:
            shift = None if state == len(shifts) else shifts[state]
            gain = float((emissions[a:b, state] - emissions[a:b, 0]).sum()) * stride
            found.append(Segment(int(lines[a]), int(lines[b]) if b < len(lines) else end, shift, gain))
    return found


def _find_shifts(evidence: Evidence, begin: int, end: int) -> list[int]:
    """Return 0 and the shifts that explain parts of a region."""
    shifts = [0]
    distant: DistantShifts | None = None
    step = max(16, min(500, (end - begin) // 16), (end - begin) // _MAX_RUNS)
    for first in sorted({*range(begin, end, step), max(begin, end - _RUN)}):
        run = np.arange(first, min(end, first + _RUN))
        part = run[:16]
        if any(scores_at(evidence, part, shift).sum() > MIN_RUN for shift in shifts[1:]):
            continue  # explained by a shift found before
        found = _near_shifts(evidence, part)
        if not found:
            distant = distant or DistantShifts(evidence)
            found = distant.find(run)
        shifts += [shift for shift in found if shift not in shifts]
    return shifts


def _scores(evidence: Evidence, lines: Ints, partners: Ints) -> Floats:
    """Return the evidence of pairs; outside the target, that of a wrong pair."""
    inside = np.flatnonzero((partners >= 0) & (partners < len(evidence.tgt)))
    scores = np.full(len(lines), -1.0)
    if len(inside):
        scores[inside] = evidence.of(lines[inside], partners[inside])
    return scores


def scores_at(evidence: Evidence, lines: Ints, shift: int) -> Floats:
    """Return the evidence of lines at a shift."""
    return _scores(evidence, lines, lines + shift)


def _near_shifts(evidence: Evidence, lines: Ints) -> list[int]:
    """Return the near shift that explains a run of lines best, if any does."""
    near = np.arange(-MAX_SHIFT, MAX_SHIFT + 1)
    sources = np.repeat(lines, len(near))
    partners = sources + np.tile(near, len(lines))
    scores = _scores(evidence, sources, partners).reshape(len(lines), -1).sum(0)
    best = int(scores.argmax())
    return [int(near[best])] if scores[best] > MIN_RUN else []


class DistantShifts:
    """Search for shifts of any size by cross-correlation of lengths and words."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        src, tgt = evidence.src, evidence.tgt
        x, y = src.lengths[None], tgt.lengths[None]  # (C, N)
        if max(len(src), len(tgt)) <= MAX_PROJECTED:
            words = evidence.lexicons[0].channels(_CHANNELS)
            x, y = np.concatenate([x, words[0]]), np.concatenate([y, words[1]])
        self._x, self._y = ((v - v.mean(1, keepdims=True)) / (v.std(1, keepdims=True) + 1e-9) for v in (x, y))
        self._size = 1 << (len(tgt) + _RUN).bit_length()
        self._spectrum = np.fft.rfft(self._y, self._size)

    def find(self, lines: Ints) -> list[int]:
        """Return shifts at which a run of lines has its target lines."""
        spectrum = np.conj(np.fft.rfft(self._x[:, lines], self._size)) * self._spectrum
        products = np.fft.irfft(spectrum.sum(0), self._size)
        # Places of the first line, also where the run begins before the target or ends behind it.
        before = len(lines) // 2
        products = np.concatenate([products[-before:], products[: self._y.shape[1]]]) if before else products
        found = []
        probe = lines[:: max(1, len(lines) // 32)]
        for index in np.argsort(-products)[:_DISTANT].tolist():
            shift = index - before - int(lines[0])
            if scores_at(self._evidence, probe, shift).sum() > MIN_RUN:
                found.append(shift)
        return found


def _fill(faults: list[Segment], n_src: int) -> tuple[Segment, ...]:
    """Return all source lines as segments; lines outside of faults have shift 0."""
    segments: list[Segment] = []
    at = 0
    for fault in sorted(faults, key=lambda segment: segment.begin):
        if fault.begin > at:
            segments.append(Segment(at, fault.begin, 0, 0.0))
        last = segments[-1] if segments else None
        if last is not None and last.shift == fault.shift and last.end == fault.begin:
            segments[-1] = Segment(last.begin, fault.end, fault.shift, last.evidence + fault.evidence)
        else:
            segments.append(fault)
        at = fault.end
    if at < n_src:
        segments.append(Segment(at, n_src, 0, 0.0))
    return tuple(segments)


def _with_exact_edges(evidence: Evidence, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return segments with edges between shifts where the evidence is largest.

    From a shift to a smaller one, as many source lines have no target as the shifts differ by.
    """
    found = list(segments)
    number = 1
    while number < len(found):
        # The last segment before the edge, and the first behind it; what lies between has no shift.
        before, after = found[number - 1], found[number]
        n_between = 0
        if after.shift is None and number + 1 < len(found) and after.n_lines <= MAX_SHIFT:
            n_between, after = after.n_lines, found[number + 1]
        if before.shift is None or after.shift is None:
            number += 1
            continue
        n_lost = max(0, before.shift - after.shift)
        if n_lost > MAX_SHIFT or abs(n_between - n_lost) > max(2, n_lost):  # exchanged blocks, or other text between
            number += 1
            continue
        first, last = max(before.begin + 1, before.end - _EDGE), min(after.end - 1, after.begin + _EDGE)
        if last - first < n_lost:
            number += 1
            continue
        lines = np.arange(first, last)
        here, there = (scores_at(evidence, lines, shift) for shift in (before.shift, after.shift))
        # Evidence of the edge at each line: what lies before at one shift, what lies behind the gap at the other.
        left = np.concatenate([[0.0], np.cumsum(here)])
        right = np.concatenate([np.cumsum(there[::-1])[::-1], [0.0]])
        edge = first + int((left[: len(left) - n_lost] + right[n_lost:]).argmax())
        gap = [Segment(edge, edge + n_lost, None, 0.0)] if n_lost else []
        sides = replace(before, end=edge), *gap, replace(after, begin=edge + n_lost)
        found[number - 1 : number + (2 if n_between else 1)] = sides
        number += len(gap) + 1
    return tuple(found)
