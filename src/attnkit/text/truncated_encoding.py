"""The first ids of long texts, without encoding what follows. Knows nothing of what they are for.

A vocabulary encodes the chunks of a text each on its own, and a chunk of more than ``MAX_CHUNK`` characters in
pieces of that length. So the ids of a beginning that ends between two of these are the first ids of the whole text,
every one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attnkit.text.tokenizer import MAX_CHUNK, Tokenizer, symbol_pattern

_PER_ID = 16
"""Characters for each id that is wanted, at first: of most texts more than enough."""
_FURTHER = 8
"""By how much the next beginning is longer, where one gave too few ids."""
_BORDERS = {"word": re.compile(" "), "gpt2": re.compile(r"(?<=\S) ")}
_BORDER = re.compile(r"(?<=[^ ]) ")
"""Where a chunk begins; of other kinds than these before a run of spaces."""


def encode_prefixes(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[list[int]]:
    """Return the ids of each text: all of them, or more than ``most`` from its beginning.

    Raises:
        DataError: what is encoded holds a lone surrogate.
    """
    found: list[list[int]] = [[] for _ in texts]
    length, left = _PER_ID * most, list(range(len(texts)))
    while left:
        given = [text_prefix(tokenizer, texts[i], length) for i in left]
        for i, ids in zip(left, tokenizer.encode(given), strict=True):
            found[i] = ids
        left = [i for i, text in zip(left, given, strict=True) if len(found[i]) <= most and len(text) < len(texts[i])]
        length *= _FURTHER
    return found


def text_prefix(tokenizer: Tokenizer, text: str, least: int) -> str:
    """Return the beginning of a text, of at least ``least`` characters, whose ids are the first ones of the whole text.

    It has not many more than ``MAX_CHUNK`` characters more; of a vocabulary of words it has all of its last word.
    """
    if len(text) <= least:
        return text
    border, whole_words = _BORDERS.get(tokenizer.config.kind, _BORDER), tokenizer.config.kind == "word"
    found = border.search(text, least) if whole_words else border.search(text, least, least + MAX_CHUNK)
    if found is not None:
        return text[: found.start()]
    if whole_words:
        return text
    begin = max((match.start() for match in border.finditer(text, 0, least)), default=0)
    lead = "" if begin else tokenizer.word_prefix  # which is the chunk's own space further on
    chunk = lead + text[begin : least + 2 * MAX_CHUNK]
    end = _end_of_piece(chunk, least - begin + len(lead), symbol_pattern(tokenizer.config.symbols))
    return text[: begin + end - len(lead)]


def _end_of_piece(chunk: str, least: int, symbols: re.Pattern[str] | None) -> int:
    """Return the first end of a piece from ``least`` on; symbols are pieces, and what is between them is cut anew."""
    begin, end = 0, len(chunk)
    for match in symbols.finditer(chunk) if symbols is not None else ():
        if match.start() >= least:
            end = match.start()
            break
        begin = match.end()
    if begin >= least:
        return begin
    n_pieces = -(-(least - begin) // MAX_CHUNK)
    return min(begin + n_pieces * MAX_CHUNK, end)
