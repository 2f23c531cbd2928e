"""Text as numbered words on disk: counted, pruned and encoded in one reading of it, in memory that grows with V alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnkit.data.store import Store
from attnkit.data.words_config import WordsConfig
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.words import WordList


@dataclass(frozen=True)
class Encoded:
    """What word vectors are learnt from."""

    words: WordList
    store: Store
    """A row a line, of the ids of its words; words that get no vector are left out, and lines without any that do."""
    n_raw: int
    """Words of the text before any was left out."""
    warnings: tuple[str, ...] = ()
    """What the user ought to know of the text."""


def encode_words(
    folder: Path,
    sources: Sequence[Path],
    settings: WordsConfig,
    tell: Callable[[str], None] = lambda text: None,
    tokenizer: Tokenizer | None = None,
) -> Encoded:
    """Count, prune and encode the words of files (``-`` is standard input) into ``folder``, which must not exist.

    The text is read once; the folder appears when it is complete, or not at all. ``tell`` hears how far the work is.

    Args:
        folder: A store, and the words with their counts.
        sources: Text, plain or compressed, lines of any length.
        settings: Which words are kept and how they are joined.
        tell: Hears how far the work is.
        tokenizer: The vocabulary that ``settings.tokenizer`` names, opened.

    Raises:
        DataError: There is no word left, or no two in a line, or a byte is no UTF-8 (naming file and line).
    """
    raise NotImplementedError


def open_words(folder: Path) -> Encoded:
    """Open what ``encode_words`` wrote. Raises ``RunError`` where it is damaged."""
    raise NotImplementedError
