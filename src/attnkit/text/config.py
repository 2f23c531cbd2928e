"""Configuration of vocabularies, checks, phrases and infilling. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from attnkit.protocols import SPECIALS

TrainedKind = Literal["bpe", "unigram", "wordpiece", "word", "char"]  #: kinds that ``attnkit vocab`` trains
ImportedKind = Literal["bert", "gpt2", "llama3", "sentencepiece"]  #: kinds that ``attnkit import`` converts
MAX_ENTRIES = 1 << 20  #: maximum size of a vocabulary; embeddings of width 512 would take 2 GB
MASK = "<mask>"  #: symbol that stands for a masked span
LANGUAGE_CODE = re.compile(r"__[a-z]{2,8}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")
"""Code of a language in an imported M2M100, NLLB-200 or mBART-50, such as ``__de__``, ``deu_Latn`` or ``de_DE``."""


class VocabularyConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Kind and size of a vocabulary, and text normalization before encoding."""

    kind: TrainedKind | ImportedKind = "bpe"
    """Subwords (byte-pair encoding, unigram language model or WordPiece), words or characters. The kinds
    `bert`, `gpt2` (also for RoBERTa and ModernBERT), `llama3` and `sentencepiece` (Marian, M2M100, NLLB, mBART,
    XLM-RoBERTa, Llama 2) are the tokenizers of those models, available only through `attnkit import`."""
    size: int = Field(default=8000, ge=8, le=MAX_ENTRIES)
    """Maximum number of entries, special tokens included. A small text yields fewer."""
    min_frequency: int = Field(default=2, ge=1, lt=2**31)
    """Minimum frequency of a pair (bpe, wordpiece), piece (unigram), word or character to get an entry."""
    normalize: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normalization before encoding; decoding cannot undo it."""
    lowercase: bool = False
    """Lowercase the text before encoding; decoding cannot undo it."""
    byte_fallback: bool = True
    """Keep an entry for each of the 256 bytes, so that any text can be encoded without <unk> (not for kind=word)."""
    symbols: tuple[Annotated[str, Field(max_length=100)], ...] = Field(default=(), max_length=4096)
    """Strings that are always a single token, such as tags; white space is not allowed in them."""
    multiple_of: int = Field(default=8, ge=1, le=4096)
    """Pad the vocabulary with unused entries to a multiple of this size, for fast matrix products."""
    sample_lines: int | None = Field(default=None, ge=1, lt=2**40)
    """Build the vocabulary from this many lines (of both sides together, or documents), drawn uniformly from the text;
    null: from all of it."""
    sample_seed: int = Field(default=1, ge=0, lt=2**31)
    """Random seed of the lines drawn for `sample_lines`."""

    @field_validator("symbols")
    @classmethod
    def _check_symbols(cls, symbols: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        runs = info.data.get("kind") == "gpt2"  # of spaces, which are entries of GPT-NeoX
        check_symbols(tuple(symbol for symbol in symbols if not (runs and is_run(symbol))))
        if len(set(symbols)) != len(symbols):
            raise ValueError("symbols must be unique")
        return symbols

    @model_validator(mode="after")
    def _check_imported_kinds(self) -> VocabularyConfig:
        composed = self.kind == "gpt2" and self.normalize == "nfc"  # as in GPT-NeoX
        changed = (self.normalize != "none" and not composed) or (self.lowercase and self.kind != "bert")
        if changed and self.kind in get_args(ImportedKind):
            raise ValueError(f"normalize and lowercase cannot be set for kind {self.kind}")
        return self

    @property
    def language_codes(self) -> tuple[str, ...]:
        """Return the codes of an imported M2M100, NLLB-200 or mBART-50; others have none."""
        return tuple(filter(LANGUAGE_CODE.fullmatch, self.symbols)) if self.kind == "sentencepiece" else ()


def is_run(symbol: str) -> bool:
    """Return whether a symbol is a run of spaces, which GPT-NeoX has as an entry."""
    return len(symbol) > 1 and not symbol.strip(" ")


def check_symbols(symbols: tuple[str, ...]) -> None:
    """Raise ``ValueError`` if symbols contain white space, are special or repeated.

    Neither may they contain lone surrogates, which are not characters.
    """
    for symbol in symbols:
        if not symbol or symbol.split() != [symbol]:
            raise ValueError(f"the symbol {symbol!r} is empty or contains white space")
        if symbol in SPECIALS:
            raise ValueError(f"{symbol!r} is a special entry and cannot be a symbol")
        if any("\ud800" <= character <= "\udfff" for character in symbol):
            raise ValueError(f"the symbol {symbol!r} contains a lone surrogate, which is not a character")
    if len(set(symbols)) != len(symbols):
        raise ValueError("symbols must be unique")


class CheckConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Limits above which `attnkit check` reports lines and line pairs."""

    max_ratio: float | None = Field(default=9.0, gt=1.0, le=1e9)
    """Maximum factor by which a pair's length ratio, in characters, deviates from the corpus median. Null: no limit."""
    max_characters: int = Field(default=2000, ge=1, lt=2**31)
    """Maximum length of a line in characters, checked without a vocabulary."""
    max_length: int = Field(default=256, ge=1, lt=2**31)
    """Maximum length of a line in tokens, checked with a vocabulary."""


class PhrasesConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Joining of neighbouring words into phrases: new york -> new_york."""

    passes: int = Field(default=0, ge=0, le=10)
    """Number of passes that join neighbours: 1 gives pairs, 2 up to four words, and so on. 0: no phrases."""
    scoring: Literal["count", "npmi"] = "count"
    """`count` is (n(ab) - min_count) * N / (n(a) * n(b)) with N words in the text (Mikolov et al. 2013, eq. 6,
    scaled as in their word2phrase); `npmi` is the normalized pointwise mutual information, from -1 to 1."""
    threshold: float | None = Field(default=None, ge=-1e9, le=1e9)
    """Pairs with a higher score are joined. Null: 100 for `count`, 0.5 for `npmi`."""
    min_count: int = Field(default=5, ge=1, lt=2**40)
    """Minimum count of a word or pair to be joined."""
    connectors: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field(default=(), max_length=4096)
    """Words allowed inside a phrase but not at its ends, such as `of`; they do not count towards its score."""
    joiner: str = Field(default="_", min_length=1, max_length=10)
    """Separator between the words of a phrase."""
    max_pairs: int = Field(default=1 << 23, ge=1 << 10, le=1 << 30)
    """Maximum number of distinct pairs counted at a time, some 50 bytes each; above it, the rarest are dropped."""

    @field_validator("joiner")
    @classmethod
    def _check_joiner(cls, joiner: str) -> str:
        if joiner.split() != [joiner]:
            raise ValueError("the joiner contains white space")
        return joiner

    @property
    def limit(self) -> float:
        """Threshold, or the default of the scoring function."""
        return self.threshold if self.threshold is not None else {"count": 100.0, "npmi": 0.5}[self.scoring]


class InfillingConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Text infilling: spans of the source are masked, anew in every epoch.

    Source: Lewis et al. 2020, section 2.2. The defaults are those of BART. mBART (Liu et al. 2020, section 2.1) has
    0.35 and 3.5, in words instead of tokens.
    """

    mask_prob: float = Field(default=0.3, gt=0, le=1)
    """Share of the tokens of each line that are masked."""
    span_length: float = Field(default=3.0, ge=1, le=50)
    """Mean length of a span in tokens, of a Poisson distribution. Each span becomes one `<mask>`; a span of length 0
    is a `<mask>` between two tokens."""


def symbol_pattern(symbols: Sequence[str]) -> re.Pattern[str] | None:
    """Return a one-group pattern of the symbols, longest first, or None if empty."""
    longest_first = sorted(map(re.escape, symbols), key=len, reverse=True)
    return re.compile("(" + "|".join(longest_first) + ")") if longest_first else None
