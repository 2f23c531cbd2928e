"""Vocabularies of imported translators, made of SentencePiece files and ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attnkit.errors import RunError
from attnkit.text.config import VocabularyConfig
from attnkit.text.piece_vocabulary import Codes, make_tree
from attnkit.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ForeignVocabulary:
    """The vocabulary of one side, and the id in transformers of each of our ids."""

    tokenizer: Tokenizer
    order: list[int]


def make_piece_vocabulary(
    path: Path,
    raw: bytes,
    vocabulary: dict[str, int],
    roles: dict[str, str | None],
    n_rows: int,
    symbols: list[str],
    codes: Codes,
    code: str | None = None,
    before: str = "",
) -> ForeignVocabulary:
    """Return a vocabulary; raise ``RunError`` if its parts do not fit."""
    try:
        config = VocabularyConfig(
            kind="sentencepiece", size=max(8, n_rows + 1), symbols=tuple(symbols), multiple_of=1, min_frequency=1
        )
        tokenizer = Tokenizer(config, make_tree(raw, vocabulary, roles, n_rows, codes, code, before=before))
    except ValueError as error:
        raise RunError(f"the tokenizer cannot be imported: {error}", where=str(path)) from error
    assert tokenizer.pieces is not None
    return ForeignVocabulary(tokenizer, tokenizer.pieces.order)
