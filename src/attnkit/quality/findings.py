"""Findings of a check of parallel text, and the report that lists them."""

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from unicodedata import east_asian_width

Side = Literal["source", "target", "pair"]
Severity = Literal["good", "warning", "stop"]  #: of a verdict; ``stop``: training is not worth its time
OthersName = Literal["training", "validation"]  #: what the corpus is that another one is compared with
StretchKind = Literal[
    "shifted", "no_target", "unrelated", "swapped", "target_in_source_language", "source_in_target_language",
    "target_in_other_language", "source_in_other_language",
]  # fmt: skip
MIN_OCCURRENCES = 20  #: from which a line is boilerplate
FEW = 1000  #: pairs below which hardly anything is learnt
SAMPLE = 52  #: width of a sample in columns
SIDES: tuple[Side, Side] = ("source", "target")
_CHOICE = re.compile(r"\[([^|\]]*)\|([^|\]]*)\]")
_PAIR: tuple[Side, ...] = ("pair",)
FINDINGS: dict[str, tuple[str, tuple[Side, ...]]] = {
    "mismatch": ("[line|lines] without a partner", _PAIR),
    "unequal_shards": ("[shard has|shards have] other numbers of lines on the two sides", _PAIR),
    "empty": ("no lines", SIDES),
    "nothing_left": ("[pair|pairs], none usable for training", _PAIR),
    "undecodable": ("[line|lines] with bytes that are not UTF-8", SIDES),
    "blank": ("[pair|pairs] of blank lines", _PAIR),
    "blank_source": ("[pair|pairs] with a blank source", _PAIR),
    "blank_target": ("[pair|pairs] with a blank target", _PAIR),
    "odd_ratio": (
        "[pair|pairs] whose length ratio deviates from the typical one by more than a factor of {times:g}", _PAIR,
    ),
    "long": ("[line|lines] of more than {limit}", SIDES),
    "duplicate": ("[pair that repeats|pairs that repeat] an earlier pair", _PAIR),
    "source_overlap": ("[line that also occurs|lines that also occur] in the {others} source", ("source",)),
    "pair_overlap": ("[pair that also occurs|pairs that also occur] in the {others} corpus", _PAIR),
    "near_overlap": (
        "[line that shares|lines that share] {share:.0f} % or more of the n-grams with a line of the {others} text",
        SIDES,
    ),
    "near_duplicate": ("[pair that repeats|pairs that repeat] an earlier pair but for case, marks or few words", _PAIR),
    "boilerplate": ("[line|lines] whose text occurs {least} times or more", SIDES),
    "copied": ("[pair|pairs] whose target is a copy of the source", _PAIR),
    "repeated": ("[line|lines] with words repeated {repeats} times or more in a row", SIDES),
    "separator": ("[line|lines] that other tools would split (U+2028, U+0085, VT, FF...)", SIDES),
    "carriage_return": (r"[line that ends|lines that end] in \r\n; the \r is dropped", SIDES),
    "line_break": ("[value of a table that has|values of a table that have] line breaks, now spaces", SIDES),
    "inner_return": (r"[line|lines] with a \r inside", SIDES),
    "byte_order_mark": ("byte-order mark at the start; it is dropped", SIDES),
    "inner_mark": ("[line|lines] with a U+FEFF inside", SIDES),
    "replacement": ("[line|lines] with U+FFFD, the replacement for damaged characters", SIDES),
    "control": ("[line|lines] with control characters", SIDES),
    "mojibake": ("[line|lines] with UTF-8 read as Windows-1252, such as Ã© for é", SIDES),
    "reference": ("[line|lines] with HTML character references", SIDES),
    "markup": ("[line|lines] with HTML tags", SIDES),
    "mixed_script": ("[line|lines] with words that mix Latin with Greek or Cyrillic letters", SIDES),
    "decomposed": ("[line that is|lines that are] not in Unicode normal form C", SIDES),
}  # fmt: skip
"""All findings, in the order of a report: description, and the sides that can have it.

In a description, ``[one|more]`` gives the words for one occurrence and for more.
"""
FATAL = ("mismatch", "empty", "nothing_left", "undecodable")


@dataclass
class Finding:
    """One kind of problem, with its number of occurrences."""

    name: str  #: identifier in JSON, such as ``blank``
    text: str  #: description, such as "[pair|pairs] of blank lines"
    side: Side
    fatal: bool = False  #: whether the problem prevents training
    dropped: bool = False  #: whether training drops these pairs
    count: int = 0
    first_line: int | None = None  #: counted from 1; None if the finding concerns no single line
    sample: str | None = None

    @property
    def described(self) -> str:
        """Return the description in words that fit the count."""
        return inflect(self.text, self.count)

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
    src_language: str | None = None  #: code of the language that was given or is recognized, such as "de"
    tgt_language: str | None = None
    n_usable: int = 0  #: number of pairs that training would use
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

    def to_dict(self) -> dict[str, Any]:
        """Return the report as ``attnkit check --json`` does."""
        found = {"verdict": self.verdict, "severity": self.severity, **asdict(self), "trainable": self.trainable}
        for finding, plain in zip(self.findings, found["findings"], strict=True):
            plain["text"] = finding.described
        return found


def inflect(text: str, count: int) -> str:
    """Return a text with the words for one or for more in place of ``[one|more]``.

    >>> inflect("[line ends|lines end] here", 1), inflect("[line ends|lines end] here", 2)
    ('line ends here', 'lines end here')
    """
    return _CHOICE.sub(lambda found: found[1] if count == 1 else found[2], text)


def shorten(line: str, at: int = 0, width: int = SAMPLE) -> str:
    """Return ``width`` columns of a line around ``at``; escape unprintable characters.

    >>> shorten("a" * 99, width=5), shorten("a" * 5, width=5)
    ('aaaa…', 'aaaaa')
    """
    begin = max(0, at - width // 3) if len(line) > width else 0
    shown, used = ("…", 1) if begin else ("", 0)
    pieces = [c if c.isprintable() else f"<U+{ord(c):04X}>" for c in line[begin : begin + width + 1]]
    columns = [sum(2 if east_asian_width(c) in "WF" else 1 for c in piece) for piece in pieces]
    if used + sum(columns) <= width:
        return shown + "".join(pieces)
    for piece, n_columns in zip(pieces, columns, strict=True):
        used += n_columns
        if used >= width:  # a column is left for the mark
            break
        shown += piece
    return shown + "…"
