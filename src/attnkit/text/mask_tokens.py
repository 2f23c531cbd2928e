"""Lines in which ``[MASK]`` stands for a missing token, as ids. Knows no models."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attnkit.text.tokenizer import Tokenizer


def encode_masked(tokenizer: Tokenizer, line: str, mask: str) -> list[int]:
    """Return the ids of a line, those of ``mask`` where it stands in the line, without begin or end.

    A mask takes the place of one token. Where tokens bring the space before them, so does the mask; among whole words
    it is one, whatever it touches; a single character stands between what it stands between.

    Raises:
        DataError: the line holds a lone surrogate.
    """
    kind = tokenizer.config.kind
    if kind == "word":
        line = _apart(line, mask)
    elif kind not in ("char", "bert"):
        line = re.sub(rf" +(?={re.escape(mask)})", "", line)
    ids = tokenizer.encode([line])[0]
    id = tokenizer.token_id(mask)
    if line.startswith(mask) and id in ids and kind != "char":
        del ids[: ids.index(id)]  # the space before the line, alone
    return ids


def _apart(line: str, mask: str) -> str:
    """Return a line whose masks are words of their own."""
    if mask not in line:
        return line
    words: list[str] = []
    for part in line.split(mask):
        words += [part.strip(" "), mask]
    return " ".join(word for word in words[:-1] if word)


def fill_masks(tokenizer: Tokenizer, line: str, mask: str, ids: Sequence[int | None]) -> str:
    """Return a line with tokens in the places of its masks, each with the space that it brings or without; None leaves
    the mask there.
    """
    filled, *rest = line.split(mask)
    for id, part in zip(ids, rest, strict=True):
        if id is None:
            filled += mask
        else:
            text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
            if tokenizer.config.kind != "char":
                filled = filled.rstrip(" ")
                text = text if filled else text.removeprefix(" ")
            filled += text
        filled += part
    return filled
