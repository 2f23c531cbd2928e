"""BPE-dropout (Provilkov et al. 2020): other segments of words in every epoch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import UsageError
from attnkit.kernels.subwords import CONTINUES, IS_WORD, STARTS_WORD, Merges
from attnkit.text.tokenizer import Tokenizer

KEY = "regularization.bpe_dropout"


class BpeDropout:
    """Random segmentation of encoded lines: each merge is left out with a probability."""

    def __init__(self, tokenizer: Tokenizer, dropout: float, longest: int) -> None:
        """Prepare the merges of a vocabulary.

        Raises ``UsageError`` if its kind is not ``bpe``.

        Args:
            tokenizer: Vocabulary of the encoded lines.
            dropout: Probability that a merge is left out, in each round of merging.
            longest: Tokens of a line above which it keeps its encoding.
        """
        if tokenizer.config.kind != "bpe":
            what = f"BPE-dropout needs a vocabulary of kind bpe, not {tokenizer.config.kind}"
            raise UsageError(what, where=KEY, help="set vocabulary.kind=bpe, or leave BPE-dropout out")
        self.dropout, self.longest = dropout, longest
        names = tokenizer.names
        ids = {name: id for id, name in enumerate(names)}
        merges = [(ids[left], ids[right], ids[left + right]) for left, right in tokenizer.model["merges"]]
        made = {merged for _, _, merged in merges if all(character in ids for character in names[merged])}
        # What no merge makes is a character of the byte alphabet, or no text.
        pieces = [[ids[character] for character in name] if id in made else [id] for id, name in enumerate(names)]
        roles = [_role(tokenizer.bytes_of(id), is_text=id in made or len(name) == 1) for id, name in enumerate(names)]
        for id in tokenizer.symbol_ids:
            roles[id] = IS_WORD
        self._merges = Merges(pieces, roles, merges)

    def sample(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return other ids of the same lines, and the length of each line.

        ``ids`` are those of all lines, concatenated; ``lengths`` and ``keys``, of the pseudo-random numbers, (B,).
        """
        return self._merges.sample(ids, lengths, keys, self.dropout, self.longest)


def _role(text: bytes, *, is_text: bool) -> int:
    """Return where an entry may be in a word; several spaces are a word of their own."""
    if not is_text or (len(text) > 1 and text.isspace()):
        return IS_WORD
    return STARTS_WORD if text.startswith(b" ") else CONTINUES
