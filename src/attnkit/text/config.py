"""What decides a vocabulary and what `check` objects to. Torch-free, and free of the tokenizer library."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, field_validator, model_validator

from attnkit.protocols import SPECIALS

TrainedKind = Literal["bpe", "unigram", "wordpiece", "word", "char"]
"""What ``attnkit vocab`` makes."""
ImportedKind = Literal["bert", "gpt2"]
"""What ``attnkit import`` brings."""
MAX_ENTRIES = 1 << 20
"""Of a vocabulary. Ten times the largest in use; as embeddings of 512 numbers they would take 2 GB."""


class VocabularyConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """How text becomes ids: kind and size of the vocabulary, and what is done to text before."""

    kind: TrainedKind | ImportedKind = "bpe"
    """Subwords by merged pairs, by a unigram language model or by WordPiece; whole words; single characters. Or as the
    tokenizers of BERT (also lower-casing ones) and of GPT-2 and RoBERTa cut, which come by `attnkit import` alone."""
    size: int = Field(default=8000, ge=8, le=MAX_ENTRIES)
    """Most entries, special ones included. Little text gives fewer."""
    min_frequency: int = Field(default=2, ge=1, lt=2**31)
    """How often a pair (bpe, wordpiece), piece (unigram), word or character must occur to get an entry."""
    normalize: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normalization before encoding; decoding cannot undo it."""
    lowercase: bool = False
    """Lower-case before encoding; decoding cannot undo it."""
    byte_fallback: bool = True
    """Keep an entry for each of the 256 bytes, so that any text can be written without <unk> (not for kind=word)."""
    symbols: tuple[Annotated[str, Field(max_length=100)], ...] = Field(default=(), max_length=4096)
    """Texts that always stay one token, such as tags. They contain no white space."""
    multiple_of: int = Field(default=8, ge=1, le=4096)
    """The number of entries is a multiple of this, which matrix products like; unused entries fill it up."""

    @field_validator("symbols")
    @classmethod
    def _check_symbols(cls, symbols: tuple[str, ...]) -> tuple[str, ...]:
        for symbol in symbols:
            if not symbol or symbol.split() != [symbol]:
                raise ValueError(f"the symbol {symbol!r} is empty or contains white space")
            if symbol in SPECIALS:
                raise ValueError(f"{symbol!r} names a special entry and cannot be a symbol")
        if len(set(symbols)) != len(symbols):
            raise ValueError("symbols must differ from each other")
        return symbols

    @model_validator(mode="after")
    def _imported_kinds_are_as_they_are(self) -> VocabularyConfig:
        if self.kind in get_args(ImportedKind) and (
            self.normalize != "none" or (self.lowercase and self.kind != "bert")
        ):
            raise ValueError(f"kind {self.kind} normalizes in a way of its own: leave normalize and lowercase alone")
        return self


class CheckConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """From when on a pair of lines is odd."""

    max_ratio: float | None = Field(default=9.0, gt=1.0, le=1e9)
    """A pair is an outlier when its ratio of characters is this many times the usual one of the corpus. Null: never."""
    max_characters: int = Field(default=2000, ge=1, lt=2**31)
    """A line with more characters is over-long, when no vocabulary is given to count tokens."""
    max_length: int = Field(default=256, ge=1, lt=2**31)
    """A line with more tokens is over-long, when a vocabulary is given."""


class PhrasesConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Which words that stand side by side become one: new york -> new_york."""

    passes: int = Field(default=0, ge=0, le=10)
    """How often neighbours are joined: 1 gives pairs, 2 up to four words, and so on. 0: none are."""
    scoring: Literal["count", "npmi"] = "count"
    """`count` is (n(ab) - min_count) * N / (n(a) * n(b)), N being all words of the text (Mikolov et al. 2013, eq. 6,
    scaled as in their word2phrase); `npmi` is the normalized pointwise mutual information, from -1 to 1."""
    threshold: float | None = Field(default=None, ge=-1e9, le=1e9)
    """Pairs that score higher are joined. Null: 100 for `count`, 0.5 for `npmi`."""
    min_count: int = Field(default=5, ge=1, lt=2**40)
    """Rarer words and pairs are never joined."""
    connectors: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field(default=(), max_length=4096)
    """Words that may stand inside a phrase but not at its ends, such as `of`; they do not count towards its score."""
    joiner: str = Field(default="_", min_length=1, max_length=10)
    """The separator between the words of a phrase."""
    max_pairs: int = Field(default=1 << 23, ge=1 << 10, le=1 << 30)
    """Distinct pairs that are counted at once, some 50 bytes each; beyond, the rarest are forgotten."""

    @field_validator("joiner")
    @classmethod
    def _check_joiner(cls, joiner: str) -> str:
        if joiner.split() != [joiner]:
            raise ValueError("the joiner contains white space")
        return joiner

    @property
    def limit(self) -> float:
        """The threshold, or what it is for this scoring where none is given."""
        return self.threshold if self.threshold is not None else {"count": 100.0, "npmi": 0.5}[self.scoring]
