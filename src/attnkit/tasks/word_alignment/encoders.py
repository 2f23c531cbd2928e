"""What is aligned: words between white space, or tokens of vocabularies, as numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from attnkit.text.config import MAX_ENTRIES
from attnkit.text.tokenizer import Tokenizer, load

_LONGEST = 1000  # characters of a word


class AlignmentEncoder(Protocol):
    """What turns lines into numbers."""

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Return the numbers of each line's words."""
        ...

    @property
    def size(self) -> int:
        """Every number is below this."""
        ...


class WordEncoder:
    """Words between white space, numbered as they come. Number 0 is for those beyond the most that are told apart."""

    def __init__(self, most: int = MAX_ENTRIES) -> None:
        self.names: list[str] = [""]
        self._most = most
        self._numbers: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Every number is below this."""
        return len(self.names)

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Return the numbers of each line's words."""
        return [[self._numbers.get(word) or self._number(word) for word in line.split()] for line in lines]

    def _number(self, word: str) -> int:
        if len(self.names) >= self._most or len(word) > _LONGEST:
            return 0
        self._numbers[word] = len(self.names)
        self.names.append(word)
        return self._numbers[word]


class TokenEncoder:
    """Tokens of a vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    @property
    def size(self) -> int:
        """Every number is below this."""
        return self.tokenizer.vocab_size

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Return the tokens of each line; a blank line has none."""
        return self.tokenizer.encode([line if line.strip() else "" for line in lines])


def units_of(run: Path | None, vocab: Path | None, tgt_vocab: Path | None) -> tuple[AlignmentEncoder, AlignmentEncoder]:
    """Return the units of both sides: a run's tokens, or those of vocabulary files (one serves both), or words.

    Raises:
        RunError: The run or a vocabulary is missing or damaged.
    """
    if run is not None:
        from attnkit.checkpoints.run_folder import RunFolder
        from attnkit.engine.vocabularies import read_tokenizers

        src, tgt = read_tokenizers(RunFolder(run).checkpoint(None)[0])
        return TokenEncoder(src), TokenEncoder(tgt)
    if vocab is not None:
        tokenizer = load(vocab)
        return TokenEncoder(tokenizer), TokenEncoder(load(tgt_vocab) if tgt_vocab else tokenizer)
    return WordEncoder(), WordEncoder()
