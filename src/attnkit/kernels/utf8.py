"""The automaton that reads UTF-8 byte by byte and tells white space. Knows no words."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

CHARACTER, SPACE, LINE, WRONG, INSIDE = range(5)
"""What a byte may end: a character of a word, one of white space, a line; or be: none of UTF-8, not the last byte."""


@cache
def byte_steps() -> NDArray[np.uint8]:
    """Return (states, 256), the state that a byte leads to; white space is what ``str.isspace`` says.

    A state beyond ``INSIDE`` is the bytes of a character so far, which decide what may follow.
    """
    spaces = {character.encode() for code in range(0x3001) if (character := chr(code)).isspace()}
    steps = np.full((64, 256), WRONG, np.uint8)
    known: dict[tuple[bytes, ...], int] = {}

    def spread(row: int, begun: bytes) -> None:
        for byte in range(256):
            raw = begun + bytes([byte])
            if (n_missing := _missing(raw)) == 0:
                steps[row, byte] = (LINE if raw == b"\n" else SPACE) if raw in spaces else CHARACTER
            elif n_missing is not None:
                ahead = sorted(space[len(raw) :] for space in spaces if space.startswith(raw))
                rule = raw[:1] if len(raw) == 1 and raw[0] in (0xE0, 0xED, 0xF0, 0xF4) else b""
                key = (bytes([n_missing]), rule, *ahead)
                if key not in known:
                    known[key] = INSIDE + len(known)
                    spread(known[key], raw)
                steps[row, byte] = known[key]

    spread(0, b"")
    return steps[: INSIDE + len(known)]


def _missing(raw: bytes) -> int | None:
    """Return how many bytes a character lacks that begins with these; None where none does."""
    for n_more in range(4):
        for filler in (b"\x80", b"\xbf", b"\x90", b"\x8f"):
            try:
                if len((raw + filler * n_more).decode()) == 1:
                    return n_more
            except UnicodeDecodeError:
                continue
    return None
