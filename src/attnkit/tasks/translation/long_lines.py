"""Over-long lines: split where a reader would pause, rejoined after translation, never cut off. Knows no models."""

from __future__ import annotations

import re
from collections.abc import Callable

from attnkit.text.tokenizer import Tokenizer

# Best places first: after a sentence, after a clause, between words. Each keeps its blanks on the left part.
_BREAKS = (r"(?<=[.!?…。！？])\s+|(?<=[。！？])", r"(?<=[,;:])\s+|(?<=[，；：、])", r"\s+")


def split_line(line: str, limit: int, count: Callable[[str], int]) -> list[str]:
    """Split ``line`` into parts of at most ``limit`` tokens each, as few as greedy packing gives.

    Args:
        line: Any text.
        limit: Most tokens a part may have (at least 1).
        count: Number of tokens of a text.

    Returns:
        At least one part. A part exceeds the limit only if a single character does.
    """
    if count(line) <= limit:
        return [line]
    for pattern in _BREAKS:
        pieces = [piece for piece in re.split(pattern, line) if piece and not piece.isspace()]
        if len(pieces) > 1:
            return [part for packed in _pack(pieces, limit, count) for part in split_line(packed, limit, count)]
    middle = len(line) // 2
    if middle == 0:
        return [line]
    return split_line(line[:middle], limit, count) + split_line(line[middle:], limit, count)


def split_ids(line: str, ids: list[int], limit: int, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the ids of a line in parts of at most ``limit``; a line that fits is one part."""
    return [ids] if len(ids) <= limit else tokenizer.encode(split_text(line, limit, tokenizer))


def split_text(line: str, limit: int, tokenizer: Tokenizer) -> list[str]:
    """Return the parts of at most ``limit`` tokens whose ids ``split_ids`` gives."""
    return split_line(line, limit, lambda text: len(tokenizer.encode([text])[0]))


def _pack(pieces: list[str], limit: int, count: Callable[[str], int]) -> list[str]:
    """Join neighbours with a space while they fit; at least two parts come back."""
    sizes = [count(piece) for piece in pieces]
    if sum(sizes) <= limit:  # joined they were too long, apart they are not: halve
        middle = len(pieces) // 2
        return [" ".join(pieces[:middle]), " ".join(pieces[middle:])]
    packed: list[str] = []
    filled = limit + 1
    for piece, size in zip(pieces, sizes, strict=True):
        if packed and filled + size <= limit:
            packed[-1] += " " + piece
            filled += size
        else:
            packed.append(piece)
            filled = size
    return packed
