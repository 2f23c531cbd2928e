"""Text with the words joined that belong together: phrases found in it, or those found in another. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from attnkit.data.word_ids import TempIdFile, WordIds, words_to_ids
from attnkit.data.words import Tell, apply_phrases, find_phrases
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.kernels.words import LINE_END, MAX_WORD_BYTES
from attnkit.text.config import PhrasesConfig
from attnkit.text.phrases import Phrases


@dataclass(frozen=True)
class JoinedText:
    """What was done to a text."""

    phrases: Phrases  #: those that were found, or given
    n_read: int  #: words before any were joined
    n_written: int
    warnings: tuple[str, ...]


def join_words(
    sources: Sequence[Path], asked: PhrasesConfig | Phrases, lower: bool, out: TextIO, tell: Tell
) -> JoinedText:
    """Write a text with its phrases joined, line by line, one space between words; blank lines stay.

    Args:
        sources: Text, plain or compressed; ``-`` is standard input.
        asked: How phrases are found in the text, or phrases to be joined.
        lower: Lower-case the text; phrases that were found in such a text ask for it too.
        out: Where the text goes.
        tell: Hears how far the work is.

    Raises:
        DataError: No text, or a byte is not UTF-8.
    """
    with atomic.anonymous_tempfile() as stream:
        lower = asked.lower or lower if isinstance(asked, Phrases) else lower
        text = words_to_ids(sources, lower, TempIdFile(stream), tell)
        if not text.n_words:
            raise DataError("no text", where=", ".join(map(str, sources)), help="name a file that is not empty")
        warnings, n_read = [], text.n_words
        if text.n_long:
            warnings.append(f"{text.n_long:,} words of more than {MAX_WORD_BYTES:,} bytes are left out")
        if isinstance(asked, Phrases):
            phrases, n_lost = asked, 0
            apply_phrases(text, phrases, tell)
        else:
            phrases, n_lost = find_phrases(text, asked, lower, tell)
        if n_lost:
            warnings.append(f"{n_lost:,} occurrences of rare pairs were forgotten: raise --max-pairs to keep them")
        for block in written(text):
            out.write(block)
        return JoinedText(phrases, n_read, text.n_words, tuple(warnings))


def written(text: WordIds) -> Iterator[str]:
    """Yield a text as it is written, block by block."""
    begun = False  # the line has a word already
    for numbers in text.spool:
        # The word of each number, "" for what is none.
        distinct, places = np.unique(numbers, return_inverse=True)
        is_word = distinct >= 0
        known = np.full(len(distinct), "", object)
        known[is_word] = text.names(distinct[is_word].astype(np.int64))
        names: list[str] = known[places].tolist()
        begin, parts = 0, []
        for end in [*np.flatnonzero(numbers == LINE_END).tolist(), len(numbers)]:
            line = " ".join(name for name in names[begin:end] if name)
            if begun and line:
                parts.append(" ")
            parts.append(line)
            begun = begun or bool(line)
            if end < len(numbers):
                parts.append("\n")
                begun = False
            begin = end + 1
        yield "".join(parts)
