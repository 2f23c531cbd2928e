"""Text that grows id by id, in whole characters. Knows no models."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from attnkit.text.tokenizer import Tokenizer


class IncrementalDecoder:
    """What comes out of ``add`` and, at last, ``end`` is together what ``Tokenizer.decode`` gives of all ids.

    A character whose bytes are spread over several ids comes out with the last of them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._drops_space = tokenizer.config.kind not in ("char", "gpt2")

    def add(self, ids: Iterable[int]) -> str:
        """Return the characters that these ids complete."""
        return self._begun(self._decoder.decode(b"".join(map(self._tokenizer.bytes_of, ids))))

    def end(self) -> str:
        """Return what is left: U+FFFD for a character that was never completed."""
        return self._begun(self._decoder.decode(b"", final=True))

    def _begun(self, text: str) -> str:
        if text and self._drops_space:
            self._drops_space = False
            return text.removeprefix(" ")
        return text
