"""The report of a check: the findings, each with its count, first line and a sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from unicodedata import east_asian_width

from attnkit.text.config import CheckConfig

Side = Literal["source", "target", "pair"]
SAMPLE = 52
"""Width of a sample in columns."""
_BOTH: tuple[Side, ...] = ("source", "target")
_PAIR: tuple[Side, ...] = ("pair",)


@dataclass
class Finding:
    """One kind of problem, counted."""

    name: str
    """Identifier in JSON, such as ``blank``."""
    text: str
    """Description, such as "pairs of blank lines"."""
    side: Side
    fatal: bool = False
    """Whether the files cannot be trained on."""
    dropped: bool = False
    """Whether training leaves these pairs out."""
    count: int = 0
    first_line: int | None = None
    """Counted from 1; None if the finding concerns no single line."""
    sample: str | None = None

    def add(self, line: int | None, text: str | tuple[str, str], at: int = 0, count: int = 1) -> None:
        """Count occurrences; the first one gives the line and the sample, the part of ``text`` around ``at``."""
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
    n_src: int = 0
    """Number of source lines."""
    n_tgt: int = 0
    n_src_words: int = 0
    """Number of source words, separated by white space."""
    n_tgt_words: int = 0
    usual_ratio: float = 1.0
    """Median of source over target characters (16 added to each) in the first lines."""
    src_unknown_rate: float | None = None
    """Share of unknown source tokens, if a vocabulary is given."""
    tgt_unknown_rate: float | None = None
    findings: list[Finding] = field(default_factory=list)
    """Findings with a count, the most serious first."""

    @property
    def trainable(self) -> bool:
        """Whether nothing fatal was found."""
        return not any(finding.fatal for finding in self.findings)


def known_findings(config: CheckConfig, has_vocabulary: bool) -> dict[tuple[str, Side], Finding]:
    """Return everything a check looks for by name and side, in the order of a report, with counts of 0."""
    limit = f"{config.max_length:,} tokens" if has_vocabulary else f"{config.max_characters:,} characters"
    times = f"{config.max_ratio or 0:g}"
    fatal = [
        ("mismatch", "lines without a partner", _PAIR),
        ("empty", "no lines", _BOTH),
        ("nothing_left", "pairs, none of which can be trained on", _PAIR),
        ("undecodable", "lines with bytes that are not UTF-8", _BOTH),
    ]
    dropped = [
        ("blank", "pairs of blank lines", _PAIR),
        ("blank_source", "pairs whose source alone is blank", _PAIR),
        ("blank_target", "pairs whose target alone is blank", _PAIR),
        ("odd_ratio", f"pairs whose ratio of lengths is {times} times more or less than usual", _PAIR),
    ]
    odd = [
        ("long", f"lines of more than {limit}", _BOTH),
        ("duplicate", "pairs that repeat an earlier pair", _PAIR),
        ("source_overlap", "lines that the training source holds too", ("source",)),
        ("pair_overlap", "pairs that the training corpus holds too", _PAIR),
        ("separator", "lines that other tools would split (U+2028, U+0085, VT, FF...)", _BOTH),
        ("carriage_return", r"lines that end in \r\n; the \r is dropped", _BOTH),
        ("inner_return", r"lines with a \r inside", _BOTH),
        ("byte_order_mark", "byte-order mark at the start; it is dropped", _BOTH),
        ("inner_mark", "lines with a U+FEFF inside", _BOTH),
        ("replacement", "lines with U+FFFD, the mark of text once damaged", _BOTH),
        ("control", "lines with control characters", _BOTH),
    ]
    return {
        (name, side): Finding(name, text, side, fatal=kind is fatal, dropped=kind is dropped)
        for kind in (fatal, dropped, odd)
        for name, text, sides in kind
        for side in sides
    }


def shorten(line: str, at: int = 0, width: int = SAMPLE) -> str:
    """Return the part of a line around ``at`` in at most ``width`` columns; unprintable characters as ``<U+2028>``.

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
