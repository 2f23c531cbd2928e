"""Configuration of vocabularies, checks and phrases, without torch and the tokenizer library."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, field_validator, model_validator

from attnkit.protocols import SPECIALS

TrainedKind = Literal["bpe", "unigram", "wordpiece", "word", "char"]  #: kinds that ``attnkit vocab`` trains
ImportedKind = Literal["bert", "gpt2"]  #: kinds that ``attnkit import`` converts
MAX_ENTRIES = 1 << 20  #: maximum size of a vocabulary; embeddings of width 512 would take 2 GB


class VocabularyConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """A vocabulary: its kind and size, and the normalization of text before encoding."""

    kind: TrainedKind | ImportedKind = "bpe"
    """Subwords (byte-pair encoding, unigram language model or WordPiece), words or characters. The kinds
    `bert` and `gpt2` (also for RoBERTa) are the tokenizers of those models, from `attnkit import` only."""
    size: int = Field(default=8000, ge=8, le=MAX_ENTRIES)
    """Maximum number of entries, special ones included. Little text gives fewer."""
    min_frequency: int = Field(default=2, ge=1, lt=2**31)
    """Minimum frequency of a pair (bpe, wordpiece), piece (unigram), word or character with an entry."""
    normalize: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normalization before encoding; decoding cannot undo it."""
    lowercase: bool = False
    """Lower-case the text before encoding; decoding cannot undo it."""
    byte_fallback: bool = True
    """Keep an entry for each of the 256 bytes, so that any text can be encoded without <unk> (not for kind=word)."""
    symbols: tuple[Annotated[str, Field(max_length=100)], ...] = Field(default=(), max_length=4096)
    """Strings that are always one token, such as tags; without white space."""
    multiple_of: int = Field(default=8, ge=1, le=4096)
    """Round the number of entries up to a multiple of this with unused ones, for fast matrix products."""

    @field_validator("symbols")
    @classmethod
    def _check_symbols(cls, symbols: tuple[str, ...]) -> tuple[str, ...]:
        for symbol in symbols:
            if not symbol or symbol.split() != [symbol]:
                raise ValueError(f"the symbol {symbol!r} is empty or contains white space")
            if symbol in SPECIALS:
                raise ValueError(f"{symbol!r} is a special entry and cannot be a symbol")
        if len(set(symbols)) != len(symbols):
            raise ValueError("symbols must be unique")
        return symbols

    @model_validator(mode="after")
    def _check_imported_kinds(self) -> VocabularyConfig:
        changed = self.normalize != "none" or (self.lowercase and self.kind != "bert")
        if changed and self.kind in get_args(ImportedKind):
            raise ValueError(f"normalize and lowercase cannot be set for kind {self.kind}")
        return self


class CheckConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Limits beyond which `check` reports lines and pairs of lines."""

    max_ratio: float | None = Field(default=9.0, gt=1.0, le=1e9)
    """Maximum factor between a pair's length ratio, in characters, and the usual one of the corpus. Null: no limit."""
    max_characters: int = Field(default=2000, ge=1, lt=2**31)
    """Maximum length of a line in characters, checked without a vocabulary."""
    max_length: int = Field(default=256, ge=1, lt=2**31)
    """Maximum length of a line in tokens, checked with a vocabulary."""


class PhrasesConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Joining of neighbouring words into phrases: new york -> new_york."""

    passes: int = Field(default=0, ge=0, le=10)
    """Number of passes that join neighbours: 1 gives pairs, 2 up to four words, and so on. 0: no phrases."""
    scoring: Literal["count", "npmi"] = "count"
    """`count` is (n(ab) - min_count) * N / (n(a) * n(b)), N being all words of the text (Mikolov et al. 2013, eq. 6,
    scaled as in their word2phrase); `npmi` is the normalized pointwise mutual information, from -1 to 1."""
    threshold: float | None = Field(default=None, ge=-1e9, le=1e9)
    """Pairs with a higher score are joined. Null: 100 for `count`, 0.5 for `npmi`."""
    min_count: int = Field(default=5, ge=1, lt=2**40)
    """Minimum count of joined words and pairs."""
    connectors: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field(default=(), max_length=4096)
    """Words allowed inside a phrase but not at its ends, such as `of`; they do not count towards its score."""
    joiner: str = Field(default="_", min_length=1, max_length=10)
    """The separator between the words of a phrase."""
    max_pairs: int = Field(default=1 << 23, ge=1 << 10, le=1 << 30)
    """Maximum number of distinct pairs counted at once, some 50 bytes each; beyond that the rarest are dropped."""

    @field_validator("joiner")
    @classmethod
    def _check_joiner(cls, joiner: str) -> str:
        if joiner.split() != [joiner]:
            raise ValueError("the joiner contains white space")
        return joiner

    @property
    def limit(self) -> float:
        """The threshold, or the default of the scoring."""
        return self.threshold if self.threshold is not None else {"count": 100.0, "npmi": 0.5}[self.scoring]
