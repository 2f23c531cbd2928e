"""Tags: symbols at the start of source lines that tell a model what a pair is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.text.lines import read_lines

if TYPE_CHECKING:
    from attnkit.text.tokenizer import Tokenizer

BACK_TRANSLATED = "<bt>"
"""Tag of sources that a model wrote (Caswell et al. 2019, Tagged Back-Translation)."""


def language_tag(language: str) -> str:
    """Return the tag of a target language (Johnson et al. 2017).

    >>> language_tag("de")
    '<2de>'
    """
    return f"<2{language}>"


def direction_tag(direction: str) -> str:
    """Return the tag of the target language of a direction; empty for none.

    >>> direction_tag("en:de")
    '<2de>'
    """
    return language_tag(direction.partition(":")[2]) if direction else ""


def with_tag(line: str, tag: str) -> str:
    """Return a line after its tag and a space; an empty tag changes nothing.

    >>> with_tag("Ein Hund", "<bt>")
    '<bt> Ein Hund'
    """
    return f"{tag} {line}" if tag else line


def tag_ids(tokenizer: Tokenizer, tag: str) -> list[int]:
    """Return the ids that a tag adds before those of a line; none for an empty tag."""
    if not tag:
        return []
    tagged, plain = tokenizer.encode([with_tag("x", tag), "x"])
    return tagged[: len(tagged) - len(plain)]


def is_back_translated(path: Path) -> bool:
    """Return whether the first line of a source file has the tag of back-translation.

    Raises ``DataError`` if the line is not UTF-8.
    """
    return next(read_lines(path), "").startswith(with_tag("", BACK_TRANSLATED))
