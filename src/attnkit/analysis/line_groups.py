"""Where two translators differ: scores by groups of lines, and single lines.

Groups divide the lines of a test file by one property at a time, as in compare-mt (Neubig et al. 2019): every line is
in exactly one group of each property.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnkit.metrics.bleu import build_metric, score_corpus, score_sentences

LENGTHS = (10, 20, 30)  #: longest source of each group but the last, in words
FREQUENCIES = (0, 5, 100)  #: highest frequency of the rarest word, of each group but the last
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class LineGroup:
    """Scores of two translators on lines with a property in common."""

    property: str  #: what divides the lines, e.g. ``words of the source``
    group: str  #: e.g. ``11 to 20``
    n_lines: int
    baseline_bleu: float
    system_bleu: float
    baseline_chrf: float
    system_chrf: float


@dataclass(frozen=True)
class ChangedLine:
    """A line whose two translations differ."""

    line: int  #: number of the line, from 1
    source: str | None  #: None if only the reference is known
    reference: str
    baseline: str
    system: str
    baseline_chrf: float  #: of the sentence, 0 to 100
    system_chrf: float


@dataclass(frozen=True)
class TestLines:
    """The lines of a test file, with the translations of two systems."""

    __test__ = False  # not a class of tests

    source: Sequence[str] | None  #: None if only the reference is known
    reference: Sequence[str]
    baseline: Sequence[str]
    system: Sequence[str]


def group_lines(lines: TestLines, frequencies: Counter[str] | None, seen: Iterable[int] | None) -> list[LineGroup]:
    """Return the scores of each group.

    Without source, the reference is what decides on length, numbers and names.

    Args:
        lines: the lines; at least one.
        frequencies: of the words in the target text of training, from ``count_words``; None leaves that property out.
        seen: lines, from 0, whose source is nearly in the training text; None leaves that property out.
    """
    n = len(lines.reference)
    text, side = (lines.reference, "reference") if lines.source is None else (lines.source, "source")
    words = [_WORD.findall(line) for line in text]
    properties = {
        f"words of the {side}": [_range(len(line.split()), LENGTHS, 1) for line in text],
        f"numbers in the {side}": [_yes(any(map(str.isdigit, line))) for line in text],
        f"names in the {side}": [_yes(any(word[0].isupper() for word in own[1:])) for own in words],
    }
    if lines.source is not None:
        copied = [
            bool({word for word in own if len(word) > 1} & {*_WORD.findall(reference)})
            for own, reference in zip(words, lines.reference, strict=True)
        ]
        properties["words that source and reference share"] = [_yes(one) for one in copied]
    if frequencies is not None:
        rarest = [min((frequencies[w.lower()] for w in _WORD.findall(ref)), default=0) for ref in lines.reference]
        properties["times the rarest word was in training"] = [_range(k, FREQUENCIES, 0) for k in rarest]
    if seen is not None:
        known = set(seen)
        properties["source nearly in the training text"] = [_yes(k in known) for k in range(n)]
    found = []
    for name, groups in properties.items():
        for group in sorted(set(groups), key=_order):
            chosen = [k for k in range(n) if groups[k] == group]
            found.append(LineGroup(name, group, len(chosen), *_scores(lines, chosen)))
    return found


def _scores(lines: TestLines, chosen: Sequence[int]) -> list[float]:
    """Return BLEU of both systems, then chrF of both, on the chosen lines."""
    refs = [[lines.reference[k] for k in chosen]]
    sides = [[text[k] for k in chosen] for text in (lines.baseline, lines.system)]
    return [score_corpus(build_metric(name), side, refs).score for name in ("bleu", "chrf") for side in sides]


def _range(number: int, bounds: Sequence[int], lowest: int) -> str:
    for bound in bounds:
        if number <= bound:
            return f"{lowest} to {bound}" if lowest < bound else str(bound)
        lowest = bound + 1
    return f"{lowest} or more"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _order(group: str) -> tuple[int, str]:
    first = group.split()[0]
    return (int(first), "") if first.isdigit() else (0, group)


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Return the frequencies of words (letters, digits and _) in lower case."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(_WORD.findall(line.lower()))
    return counts


def most_changed(lines: TestLines, n: int) -> list[ChangedLine]:
    """Return the n lines whose chrF differs most, the largest gain first."""
    metric = build_metric("chrf", by_sentence=True)
    before, after = (score_sentences(metric, side, [lines.reference]) for side in (lines.baseline, lines.system))
    order = sorted(range(len(before)), key=lambda k: -abs(after[k] - before[k]))[:n]
    sources: Sequence[str | None] = [None] * len(before) if lines.source is None else lines.source
    return [
        ChangedLine(k + 1, sources[k], lines.reference[k], lines.baseline[k], lines.system[k], before[k], after[k])
        for k in sorted(order, key=lambda k: before[k] - after[k])
        if lines.baseline[k] != lines.system[k]
    ]
