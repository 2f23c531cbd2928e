"""Lines with masks: their ids, and the tokens that fill them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attnkit.text.tokenizer import Tokenizer


def encode_masked(tokenizer: Tokenizer, line: str, mask: str) -> list[int]:
    """Return the ids of a line; each ``mask`` in it becomes the id of the mask.

    BOS and EOS are not included. A mask replaces one token: if tokens include the space before them, so does the mask;
    in a word vocabulary, it is a word even without spaces around it; in kind ``char``, the spaces around it stay.
    """
    kind = tokenizer.config.kind
    if kind == "word" and mask in line:
        words = [word for part in line.split(mask) for word in (part.strip(" "), mask) if word]
        line = " ".join(words[:-1])
    elif kind not in ("char", "bert"):
        line = re.sub(rf" +(?={re.escape(mask)})", "", line)
    ids = tokenizer.encode([line])[0]
    id = tokenizer.token_id(mask)
    if line.startswith(mask) and id in ids and kind != "char":
        del ids[: ids.index(id)]  # the lone space before the line
    return ids


def fill_masks(tokenizer: Tokenizer, line: str, mask: str, ids: Sequence[int | None]) -> str:
    """Replace the masks of a line with tokens and their spaces; None keeps a mask."""
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
