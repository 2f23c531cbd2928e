"""Signs that a translation went wrong, or that its source is unusual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Literal, get_args

from attnkit.protocols import UNK_ID
from attnkit.quality.damage import has_word
from attnkit.quality.profile import TrainingProfile, copied_share
from attnkit.quality.repetition import count_repeats
from attnkit.text.lines import is_blank
from attnkit.text.protected import has_lost
from attnkit.text.sentences import has_stop

Sign = Literal[
    "cut", "repeated", "copied", "empty", "short", "long", "lost", "unlike", "unknown", "length", "split", "term",
]  # fmt: skip
TEXTS: dict[Sign, str] = {
    "cut": "cut at the maximum length",
    "repeated": "with repetitions",
    "copied": "copied from the source",
    "empty": "empty",
    "short": "too short for their source",
    "long": "too long for their source",
    "lost": "without a tag, address, placeholder or number of their source",
    "unlike": "unlike the training text",
    "unknown": "with unknown characters",
    "length": "of a length not trained on",
    "split": "with sentences longer than the model was trained on",
    "term": "without a term of the glossary",
}
"""Signs in the order of a summary, and how it names them."""
NO_PROFILE = TrainingProfile()
FindSigns = Callable[[], list[Sign]]


def find_signs(
    source: str,
    text: str,
    *,
    finished: bool,
    source_ids: Iterable[list[int]],
    is_cut: bool = False,
    profile: TrainingProfile = NO_PROFILE,
) -> list[Sign]:
    """Return the signs of a translation of a line; a blank line has none.

    ``source_ids`` are the tokens of the segments of the line, ``finished`` is False if a segment reached the maximum
    length, ``is_cut`` is True if a sentence was too long for the model.
    """
    segments = list(source_ids)
    if not segments:
        return []
    before, words = source.casefold().split(), text.casefold().split()
    is_sign: dict[Sign, bool] = {
        "cut": not finished,
        "repeated": count_repeats(words) >= profile.repeats > count_repeats(before),
        "copied": is_copied(before, words, profile) and has_word(text),
        "empty": is_blank(text),
        "lost": has_lost(source, text),
        "unknown": any(UNK_ID in ids for ids in segments),
        "split": is_cut,
    }
    return in_order(sign for sign, is_there in is_sign.items() if is_there)


def is_copied(source: Sequence[str], words: Sequence[str], profile: TrainingProfile) -> bool:
    """Return whether a translation has more words of its source than is usual."""
    if profile.copied is None:
        return False
    return source == words or (profile.copied < 1 and copied_share(source, words) > profile.copied)


def find_source_signs(
    lines: Sequence[str], profile: TrainingProfile, normalize: Callable[[str], str]
) -> list[list[Sign]]:
    """Return what is unusual in source lines; ``normalize`` is the tokenizer's."""
    found: list[list[Sign]] = []
    for line, is_unlike in zip(lines, profile.unlikely(lines).tolist(), strict=True):
        signs: list[Sign] = ["unlike"] if is_unlike else []
        if profile.known and not profile.known.issuperset(line):
            new = (character for character in set(line) - profile.known if not character.isspace())
            if any(not profile.known.issuperset(normalize(character)) for character in new):
                signs.append("unknown")
        found.append(signs)
    return found


class SourceSigns:
    """What is unusual in the lines of a window, found when it is first asked for."""

    def __init__(self, lines: Sequence[str], profile: TrainingProfile, normalize: Callable[[str], str]) -> None:
        self._find = cache(partial(find_source_signs, lines, profile, normalize))

    def of(self, i: int) -> list[Sign]:
        """Return the signs of line i."""
        return self._find()[i]


def find_length_signs(
    source_ids: Sequence[list[int]],
    ids: Sequence[Sequence[int]],
    profile: TrainingProfile,
    decode: Callable[[Sequence[list[int]]], list[str]],
) -> list[Sign]:
    """Return what is unusual of the lengths of segments and of their translations.

    ``decode`` is that of the source tokenizer: a whole sentence may be half as long as what was trained on.
    """
    found: list[Sign] = []
    for source, target in zip(source_ids, ids, strict=True):
        if profile.source_tokens is not None:
            least, most = profile.source_tokens
            if len(source) > most or (
                len(source) < least and (2 * len(source) < least or not has_stop(decode([source])[0]))
            ):
                found.append("length")
        if (limits := profile.ratio_limits(len(source))) is not None and target:
            ratio = (len(target) + 1) / (len(source) + 1)
            found += ["short"] if ratio < limits[0] else ["long"] if ratio > limits[1] else []
    return in_order(found)


def in_order(signs: Iterable[Sign]) -> list[Sign]:
    """Return signs in the order of a summary, each once."""
    there = set(signs)
    return [sign for sign in get_args(Sign) if sign in there]


@dataclass
class SignCounts:
    """Numbers of lines with signs."""

    n_lines: int = 0  #: lines translated
    n_flagged: int = 0  #: lines with any sign
    by_sign: Counter[Sign] = field(default_factory=Counter)
    n_terms: int = 0  #: terms of the glossary in the lines
    n_used: int = 0  #: terms that the translations have
    source: Path | None = None  #: input of the lines that are added, if there are several
    first: dict[Sign, str] = field(default_factory=dict)  #: place of the first line with each sign

    def add(self, signs: list[Sign], has_terms: Sequence[bool] = (), line: int | None = None) -> None:
        """Count a line, and which terms of the glossary its translation has.

        ``line`` is its number in the input, from 1.
        """
        self.n_lines += 1
        self.n_flagged += bool(signs)
        self.by_sign.update(signs)
        if line is not None:
            place = f"line {line:,}" if self.source is None else f"{self.source}:{line}"
            self.first = {**dict.fromkeys(signs, place), **self.first}
        self.n_terms += len(has_terms)
        self.n_used += sum(has_terms)

    def messages(self, *, protects: bool) -> list[str]:
        """Return the hit rate of terms and the summary of signs, where there are any.

        ``protects`` is True for sentences of documents and protected lines.
        """
        found = []
        if self.n_terms:
            share = self.n_used / self.n_terms
            found.append(f"{self.n_used:,} of {self.n_terms:,} glossary terms are in the translations ({share:.1%})")
        if summary := self.as_text("sentences" if protects else "lines"):
            found.append(f"{summary} (--json flags each)")
        if self.by_sign["lost"] and not protects:
            found.append("--protect keeps tags, addresses, placeholders and numbers as they are")
        return found

    def as_text(self, unit: str = "lines") -> str:
        """Return a summary, empty if nothing has a sign."""
        if not self.n_flagged:
            return ""
        parts = []
        for sign, text in TEXTS.items():
            if n := self.by_sign[sign]:
                place = f" ({'first ' * (n > 1)}in {self.first[sign]})" if sign in self.first else ""
                parts.append(f"{n:,} {text.replace('their', 'its') if n == 1 else text}{place}")
        return f"{self.n_flagged:,} of {self.n_lines:,} {unit} may be wrong: {', '.join(parts)}"


@dataclass
class DocumentCounts:
    """What happened to the passages of a document."""

    signs: SignCounts = field(default_factory=SignCounts)  #: of sentences
    n_passages: int = 0
    n_tags: int = 0
    n_protected: int = 0  #: parts that had to be kept
    n_restored: int = 0  #: protected parts that the model lost, and that were put back
    notes: list[str] = field(default_factory=list)  #: what a reader should know of the document

    def as_text(self) -> str:
        """Return a summary."""
        passages, tags = "passage" if self.n_passages == 1 else "passages", "tag" if self.n_tags == 1 else "tags"
        text = f"{self.n_passages:,} {passages} translated, {self.n_tags:,} {tags} placed"
        if self.n_protected:
            parts = "part" if self.n_protected == 1 else "parts"
            text += f", {self.n_protected:,} protected {parts} kept ({self.n_restored:,} put back)"
        return text
