"""Signs that a translation went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from attnkit.protocols import UNK_ID
from attnkit.quality.damage import has_word
from attnkit.text.lines import is_blank

Sign = Literal["cut", "repeated", "copied", "empty", "unknown", "split"]
TEXTS: dict[Sign, str] = {
    "cut": "cut at the maximum length",
    "repeated": "with repetitions",
    "copied": "copied from the source",
    "empty": "empty",
    "unknown": "with characters that the vocabulary lacks",
    "split": "with sentences longer than the model was trained on",
}
"""Signs in the order of a summary, and how it names them."""
MIN_REPEATS = 4  #: repetitions in a row of one to eight words


def find_signs(
    source: str, text: str, *, finished: bool, source_ids: Iterable[list[int]], is_cut: bool = False
) -> list[Sign]:
    """Return the signs of a translation of a line; a blank line has none.

    ``source_ids`` are the tokens of the segments of the line, ``finished`` is False if a segment reached the maximum
    length, ``is_cut`` is True if a sentence was too long for the model.
    """
    segments = list(source_ids)
    if not segments:
        return []
    is_sign: dict[Sign, bool] = {
        "cut": not finished,
        "repeated": count_repeats(text.split()) >= MIN_REPEATS > count_repeats(source.split()),
        "copied": text.casefold().split() == source.casefold().split() and has_word(text),
        "empty": is_blank(text),
        "unknown": any(UNK_ID in ids for ids in segments),
        "split": is_cut,
    }
    return [sign for sign in get_args(Sign) if is_sign[sign]]


def count_repeats(words: list[str], longest: int = 8) -> int:
    """Return how often a sequence of up to ``longest`` words repeats in a row.

    >>> count_repeats("a b a b a b c".split())
    3
    """
    most = 1 if words else 0
    for length in range(1, min(longest, len(words) // 2) + 1):
        in_row = 0  # words equal to the one ``length`` before
        for i in range(length, len(words)):
            in_row = in_row + 1 if words[i] == words[i - length] else 0
            most = max(most, 1 + in_row // length)
    return most


@dataclass
class SignCounts:
    """Numbers of lines with signs."""

    n_lines: int = 0  #: lines translated
    n_flagged: int = 0  #: lines with any sign
    by_sign: Counter[Sign] = field(default_factory=Counter)

    def add(self, signs: list[Sign]) -> None:
        """Count a line."""
        self.n_lines += 1
        self.n_flagged += bool(signs)
        self.by_sign.update(signs)

    def as_text(self, unit: str = "lines") -> str:
        """Return a summary, empty if nothing has a sign."""
        if not self.n_flagged:
            return ""
        parts = [f"{self.by_sign[sign]:,} {text}" for sign, text in TEXTS.items() if self.by_sign[sign]]
        return f"{self.n_flagged:,} of {self.n_lines:,} {unit} may be wrong: {', '.join(parts)}"
