"""Findings of a check of parallel text, and the report that lists them."""

from dataclasses import dataclass, field
from typing import Literal
from unicodedata import east_asian_width

Side = Literal["source", "target", "pair"]
Severity = Literal["good", "warning", "stop"]  #: of a verdict; ``stop``: training is not worth its time
StretchKind = Literal[
    "shifted", "no_target", "unrelated", "swapped", "target_in_source_language", "source_in_target_language",
    "target_in_other_language", "source_in_other_language",
]  # fmt: skip
SAMPLE = 52  #: width of a sample in columns
SIDES: tuple[Side, Side] = ("source", "target")
_PAIR: tuple[Side, ...] = ("pair",)
FINDINGS: dict[str, tuple[str, tuple[Side, ...]]] = {
    "mismatch": ("lines without a partner", _PAIR),
    "empty": ("no lines", SIDES),
    "nothing_left": ("pairs, none usable for training", _PAIR),
    "undecodable": ("lines with bytes that are not UTF-8", SIDES),
    "blank": ("pairs of blank lines", _PAIR),
    "blank_source": ("pairs with a blank source", _PAIR),
    "blank_target": ("pairs with a blank target", _PAIR),
    "odd_ratio": ("pairs whose length ratio deviates from the typical one by more than a factor of {times:g}", _PAIR),
    "long": ("lines of more than {limit}", SIDES),
    "duplicate": ("pairs that repeat an earlier pair", _PAIR),
    "source_overlap": ("lines that also occur in the training source", ("source",)),
    "pair_overlap": ("pairs that also occur in the training corpus", _PAIR),
    "near_duplicate": ("pairs that repeat an earlier pair but for case, spaces and marks", _PAIR),
    "copied": ("pairs whose target is a copy of the source", _PAIR),
    "separator": ("lines that other tools would split (U+2028, U+0085, VT, FF...)", SIDES),
    "carriage_return": (r"lines that end in \r\n; the \r is dropped", SIDES),
    "inner_return": (r"lines with a \r inside", SIDES),
    "byte_order_mark": ("byte-order mark at the start; it is dropped", SIDES),
    "inner_mark": ("lines with a U+FEFF inside", SIDES),
    "replacement": ("lines with U+FFFD, the replacement for damaged characters", SIDES),
    "control": ("lines with control characters", SIDES),
    "mojibake": ("lines with UTF-8 read as Windows-1252, such as Ã© for é", SIDES),
    "markup": ("lines with HTML tags or character references", SIDES),
    "mixed_script": ("lines with words that mix Latin with Greek or Cyrillic letters", SIDES),
    "decomposed": ("lines that are not in Unicode normal form C", SIDES),
}
"""All findings, in the order of a report: description, and the sides that can have it."""
FATAL = ("mismatch", "empty", "nothing_left", "undecodable")


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


@dataclass(frozen=True)
class Stretch:
    """Consecutive source lines of a corpus with one fault."""

    kind: StretchKind
    first: int  #: first source line, from 1
    last: int
    shift: int | None = None  #: target line minus source line of pairs that belong together; None if unknown

    @property
    def n_lines(self) -> int:
        """Number of source lines."""
        return self.last - self.first + 1


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
    stretches: list[Stretch] = field(default_factory=list)  #: stretches of lines that are not aligned as they are
    separation: float | None = None
    """Evidence in nats that tells a right pair from a wrong one; None if the corpus does not show it."""
    severity: Severity = "good"
    verdict: str = ""  #: the most serious finding in a sentence
    remedy: tuple[str, ...] = ()  #: arguments of the command that mends it, if there is one

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
