"""Judgement of a span of lines: alignment, languages and scripts.

Files are judged in spans, so that memory is bounded: beside the text of a span, 400 bytes per pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from attnkit.quality.alignment import Alignment, Segment, find_alignment
from attnkit.quality.findings import CheckReport, Finding, StretchKind
from attnkit.quality.findings import Side as FindingSide
from attnkit.quality.foreign_lines import find_foreign_lines
from attnkit.quality.languages import MAX_SAMPLE, Trigrams, find_other_scripts, mean_score, mean_scores
from attnkit.quality.lines import Floats, Ints, Side, WordNumbers
from attnkit.text.lines import read_lines

SPAN = 1 << 19  #: lines judged together
MIN_ODDS = 12.0  #: nats in favour of the other side's language
MIN_DIFFERENCE = 0.2  #: nats per trigram between the sides if they are two languages
_MIN_LETTERS = 15  # characters of a line whose language is judged
_MIN_SHARE = 0.002  # of lines in the other side's language that are reported: names and titles are below it
_MIN_DISTANCE = 0.7  # nats per trigram by which another language is less probable
_ROUNDS = 8  # of learning a side again without lines of the other side's language
_MIN_FOREIGN = 0.02  # share of such lines from which a side is learnt again


@dataclass(frozen=True)
class Span:
    """Lines of both files from a common line number on."""

    start: int  #: number of lines before
    src: list[str]
    tgt: list[str]


def read_spans(src_path: Path, tgt_path: Path) -> Iterator[Span]:
    """Yield the lines of two files in spans; damaged bytes are replaced by U+FFFD."""
    lines = [iter(read_lines(path, on_bad="replace")) for path in (src_path, tgt_path)]
    start = 0
    while True:
        src, tgt = (list(islice(side, SPAN)) for side in lines)
        if not src and not tgt:
            return
        yield Span(start, src, tgt)
        start += SPAN


@dataclass(frozen=True)
class Judgement:
    """What a span shows of itself."""

    alignment: Alignment
    languages: Languages


def judge_span(span: Span) -> Judgement:
    """Judge alignment and languages of a span."""
    words = WordNumbers()
    alignment = find_alignment(Side(span.src, words), Side(span.tgt, words))
    return Judgement(alignment, Languages(span, alignment))


def kinds_of(judgement: Judgement) -> Iterator[tuple[StretchKind, Segment]]:
    """Yield the faulty segments of a span with their kinds."""
    segments = judgement.alignment.segments
    for number, segment in enumerate(segments):
        before = segments[number - 1].shift if number else None
        after = segments[number + 1].shift if number + 1 < len(segments) else None
        if segment.shift == 0:
            continue
        if segment.shift is not None:
            yield "shifted", segment
        elif before is not None and after is not None and _is_gap(before, segment.n_lines, after):
            yield "no_target", segment
        else:
            yield judgement.languages.kind_of(segment.begin, segment.end), segment


def _is_gap(before: int, n_lines: int, after: int) -> bool:
    """Return whether lines without a target explain the change of shift."""
    return after < before and abs(before - after - n_lines) <= 2


class Languages:
    """Trigram models of both sides of a span, learnt from its aligned lines."""

    def __init__(self, span: Span, alignment: Alignment) -> None:
        self._span, self._sides = span, (span.src, span.tgt)
        bad = np.zeros(max(len(span.src), len(span.tgt)), np.bool_)
        for segment in alignment.faults:
            if segment.shift is None:
                bad[segment.begin : segment.end] = True
        if bad.mean() > 0.5:
            bad[:] = False
        rest = [[line for line, is_bad in zip(side, bad, strict=False) if not is_bad] for side in self._sides]
        self._models = _models_of(rest)
        samples = [side[:: max(1, len(side) // 2000)] for side in rest]
        self._usual = [mean_score(sample, model.log_probs) for sample, model in zip(samples, self._models, strict=True)]
        odds = self._models[0].log_probs - self._models[1].log_probs
        differ = mean_score(samples[0], odds) - mean_score(samples[1], odds) > MIN_DIFFERENCE
        signs = (odds, -odds)
        against = [
            _evidence_against(side, sign) if differ else np.zeros(len(side))
            for side, sign in zip(self._sides, signs, strict=True)
        ]
        self.against = against[0], against[1]
        """Evidence in nats of each line of both sides for the language of the other side."""
        self.scripts = [find_other_scripts(side) for side in self._sides]
        self.wrong_scripts = [wrong for _, wrong in self.scripts]
        """Flags of the lines of both sides that are in another script than their side."""
        explained = [np.where(flags, np.inf, odds) for flags, odds in zip(self.wrong_scripts, against, strict=True)]
        others = self._sides[::-1]
        self.foreign = [find_foreign_lines(*side) for side in zip(self._sides, others, explained, strict=True)]
        """Flags of the lines of both sides that are in a third language, and its name."""
        self._bad = bad

    def kind_of(self, begin: int, end: int) -> StretchKind:
        """Return the kind of a stretch of pairs that do not belong together."""
        # Nats per trigram by which lines are less probable than usual, under the model of each side.
        distances = [
            [
                usual - mean_score(side[begin:end], model.log_probs)
                for usual, model in zip(self._usual, self._models, strict=True)
            ]
            for side in self._sides
        ]
        (src_own, src_other), (tgt_other, tgt_own) = distances
        is_like_target = src_own > _MIN_DISTANCE and src_other < src_own / 2
        is_like_source = tgt_own > _MIN_DISTANCE and tgt_other < tgt_own / 2
        if is_like_target and is_like_source:
            return "swapped"
        if is_like_source:
            return "target_in_source_language"
        if is_like_target:
            return "source_in_target_language"
        if max(src_own, tgt_own) > _MIN_DISTANCE:
            return "source_in_other_language" if src_own > tgt_own else "target_in_other_language"
        return "unrelated"

    def add_lines(self, report: CheckReport) -> None:
        """Add findings of single lines and pairs in another language or script."""
        src, tgt = self.against
        n = min(len(src), len(tgt))
        swapped = np.zeros(max(len(src), len(tgt)), np.bool_)
        swapped[:n] = (src[:n] > 0) & (tgt[:n] > 0) & (src[:n] + tgt[:n] > MIN_ODDS)
        if swapped.sum() >= max(2, _MIN_SHARE * n):
            self._add(
                report,
                "swapped_pairs",
                "[pair has|pairs have] source and target swapped",
                "pair",
                np.flatnonzero(swapped),
            )
        else:
            swapped[:] = False
        sides: tuple[FindingSide, FindingSide] = "source", "target"
        for side, against, other, (script, strange), (foreign, language) in zip(
            sides, (src, tgt), sides[::-1], self.scripts, self.foreign, strict=True
        ):
            # Lines of a faulty stretch are counted there.
            third = np.flatnonzero(foreign & ~(swapped | self._bad)[: len(foreign)])
            self._add(report, "other_language", f"[line is|lines are] in {language}", side, third)
            wrong = np.flatnonzero((against > MIN_ODDS) & ~(swapped[: len(against)] | foreign))
            if len(wrong) >= max(2, _MIN_SHARE * len(against)):
                self._add(report, "other_side", f"[line is|lines are] in the language of the {other}", side, wrong)
            text = f"[line is|lines are] in another script than {script}"
            self._add(report, "other_script", text, side, np.flatnonzero(strange))

    def _add(self, report: CheckReport, name: str, text: str, side: FindingSide, lines: Ints) -> None:
        """Count lines (n,) of the span in a finding, which is made if there is none yet."""
        if not len(lines):
            return
        known = next((f for f in report.findings if (f.name, f.side) == (name, side)), None)
        if known is None:
            known = Finding(name, text, side)
            report.findings.append(known)
        first = int(lines[0])
        src, tgt = (side[first] if first < len(side) else "" for side in self._sides)
        sample: str | tuple[str, str] = (src, tgt) if side == "pair" else src if side == "source" else tgt
        known.add(self._span.start + first + 1, sample, count=len(lines))


def _models_of(sides: list[list[str]]) -> list[Trigrams]:
    """Return a model per side, learnt without lines of the other side's language.

    A target of which half is untranslated teaches its model the source language too, which then finds nothing odd.
    The model is therefore learnt again without the lines found, until no more are found.
    """
    samples = [side[:: -(-len(side) // MAX_SAMPLE) or 1] for side in sides]
    models = [Trigrams(sample) for sample in samples]
    kept = [np.ones(len(sample), np.bool_) for sample in samples]
    for _ in range(_ROUNDS):
        odds = models[0].log_probs - models[1].log_probs
        if mean_score(samples[0], odds) - mean_score(samples[1], odds) <= 0:
            break
        found = [_evidence_against(side, sign) <= MIN_ODDS for side, sign in zip(samples, (odds, -odds), strict=True)]
        changed = False
        for number, (sample, now, before) in enumerate(zip(samples, found, kept, strict=True)):
            n_new = int((before & ~now).sum())
            if n_new < _MIN_FOREIGN * len(sample) or now.sum() < _MIN_FOREIGN * len(sample):
                continue
            changed, kept[number] = True, now
            models[number] = Trigrams([line for line, is_own in zip(sample, now, strict=True) if is_own])
        if not changed:
            break
    return models


def _evidence_against(lines: Sequence[str], odds: Floats) -> Floats:
    """Return evidence (N,) that lines are in the other side's language, in nats.

    It is 0 for short lines.
    """
    mean, count = mean_scores(lines, odds)
    evidence: Floats = np.where(count >= _MIN_LETTERS, -mean * count, 0.0)
    return evidence
