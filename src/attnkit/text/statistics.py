"""How well a vocabulary fits text: coverage, tokens per word, what is unknown, the longest line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from attnkit.protocols import UNK_ID
from attnkit.text.lines import read_lines
from attnkit.text.tokenizer import Tokenizer

BATCH = 4096
"""Lines that are encoded at once."""


@dataclass
class Statistics:
    """Counts over some files."""

    n_lines: int = 0
    n_words: int = 0
    """Between white space."""
    n_characters: int = 0
    """As the vocabulary sees them: normalized where that was asked for, with a space before each line."""
    n_covered: int = 0
    """Characters that lie whole within one token; the others are written byte by byte or unknown."""
    n_tokens: int = 0
    n_unknown: int = 0
    longest: int = 0
    """Tokens of the longest line."""
    longest_path: str | None = None
    longest_line: int | None = None
    """Where it stands, counted from 1."""

    @property
    def coverage(self) -> float:
        """Share of the characters that need neither single bytes nor ``<unk>``."""
        return min(1.0, self.n_covered / self.n_characters) if self.n_characters else 1.0

    @property
    def tokens_per_word(self) -> float:
        """Tokens to a word."""
        return self.n_tokens / self.n_words if self.n_words else 0.0

    @property
    def unknown_rate(self) -> float:
        """Share of the tokens that are unknown."""
        return self.n_unknown / self.n_tokens if self.n_tokens else 0.0


def statistics(tokenizer: Tokenizer, files: Sequence[Path]) -> Statistics:
    """Encode files and count, in bounded memory."""
    found = Statistics()
    uses = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    space = 0 if tokenizer.config.kind == "char" else 1
    plain = tokenizer.config.normalize == "none" and not tokenizer.config.lowercase
    for path in files:
        n_before = found.n_lines
        for lines in batches(read_lines(path)):
            encoded = tokenizer.encode(lines)
            flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int64)
            uses += np.bincount(flat, minlength=tokenizer.vocab_size)
            found.n_words += sum(len(line.split()) for line in lines)
            seen = lines if plain else map(tokenizer.normalize, lines)
            found.n_characters += sum(len(line) + space for line in seen if line)
            sizes = [len(ids) for ids in encoded]
            if max(sizes) > found.longest:
                found.longest, found.longest_path = max(sizes), str(path)
                found.longest_line = found.n_lines - n_before + sizes.index(found.longest) + 1
            found.n_lines += len(lines)
    whole = [len(tokenizer.bytes_of(id).decode("utf-8", errors="ignore")) for id in range(tokenizer.vocab_size)]
    whole[UNK_ID] = 0
    found.n_tokens, found.n_unknown = int(uses.sum()), int(uses[UNK_ID])
    found.n_covered = int(uses @ np.array(whole, dtype=np.int64))
    return found


def batches(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield lists of lines to encode at once."""
    while batch := list(islice(lines, BATCH)):
        yield batch
