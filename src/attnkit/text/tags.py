"""Tags: symbols at the start of source lines that tell a model what a pair is."""

from pathlib import Path

from attnkit.text.lines import read_lines

BACK_TRANSLATED = "<bt>"
"""Tag of sources that a model wrote (Caswell et al. 2019, Tagged Back-Translation)."""


def with_tag(line: str, tag: str) -> str:
    """Return a line after its tag and a space; an empty tag changes nothing.

    >>> with_tag("Ein Hund", "<bt>")
    '<bt> Ein Hund'
    """
    return f"{tag} {line}" if tag else line


def is_back_translated(path: Path) -> bool:
    """Return whether the first line of a source file has the tag of back-translation.

    Raises ``DataError`` if the line is not UTF-8.
    """
    return next(read_lines(path), "").startswith(with_tag("", BACK_TRANSLATED))
