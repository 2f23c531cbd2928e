"""Split the paragraphs of a file in SQuAD's form into parts, such as training, development and test."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from attnkit.text.squad import Paragraph


def split_paragraphs(paragraphs: Sequence[Paragraph], shares: Sequence[float], seed: int) -> list[list[Paragraph]]:
    """Return the paragraphs in parts of about these shares of all, each part in the order of the file.

    Paragraphs of the same context stay together. The part of a context is decided by its hash, not by the order of the
    file. Raises ``ValueError`` unless the shares are positive and sum to 1.
    """
    if not shares or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise ValueError(f"shares of {list(shares)} do not make a whole")
    hashes = {
        paragraph.context: hashlib.sha256(f"{seed}:{paragraph.context}".encode("utf-8", "surrogatepass")).digest()
        for paragraph in paragraphs
    }
    contexts = sorted(hashes, key=hashes.__getitem__)
    part_of, begin, total = dict[str, int](), 0, 0.0
    for part, share in enumerate(shares):
        total += share
        end = len(contexts) if part == len(shares) - 1 else round(total * len(contexts))
        part_of.update(dict.fromkeys(contexts[begin:end], part))
        begin = end
    return [[p for p in paragraphs if part_of[p.context] == part] for part in range(len(shares))]
