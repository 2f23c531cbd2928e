"""What to train on: the text files, their weights, what is held out and which pairs are too long. Torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

_MAX_WEIGHT = 1000


class DataConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Parallel text files and the rules by which their pairs become training data."""

    src: tuple[str, ...] = Field(min_length=1)
    """Source files, one sentence a line; line n of each belongs to line n of the file at the same place in ``tgt``."""
    tgt: tuple[str, ...] = Field(min_length=1)
    """Target files, as many as ``src``."""
    weights: tuple[float, ...] | None = None
    """How often an epoch uses each pair of files: 2 is twice, 0.5 a random half new in each epoch. Null: once."""
    valid_src: tuple[str, ...] | None = None
    """Source files for validation. Null: pairs are held out of the training files."""
    valid_tgt: tuple[str, ...] | None = None
    """Target files for validation, as many as ``valid_src``."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Pairs held out for validation when no validation files are given, but never more than 5 % of all pairs."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Chooses which pairs are held out, and nothing else."""
    max_length: int = Field(default=256, ge=1, le=1 << 20)
    """Longest side of a training pair in tokens; longer pairs are dropped and counted."""
    max_ratio: float = Field(default=20.0, ge=1.0, le=1e9)
    """Largest ratio of the two lengths of a training pair in tokens (each plus one); others are dropped and counted."""
    max_character_ratio: float | None = Field(default=9.0, gt=1.0, le=1e9)
    """A training pair whose ratio of characters is this many times the usual one of its corpus is dropped and counted,
    as `attnkit check` says beforehand. Null: none is."""

    @model_validator(mode="after")
    def _check_files(self) -> DataConfig:
        if len(self.src) != len(self.tgt):
            raise ValueError(f"src names {len(self.src)} files and tgt names {len(self.tgt)}: they must pair up")
        if self.weights is not None and len(self.weights) != len(self.src):
            raise ValueError(f"weights has {len(self.weights)} numbers for {len(self.src)} pairs of files")
        if self.weights is not None and not (min(self.weights) >= 0 and 0 < max(self.weights) <= _MAX_WEIGHT):
            raise ValueError(f"weights must be at most {_MAX_WEIGHT:,}, none below 0 and at least one above 0")
        if (self.valid_src is None) != (self.valid_tgt is None):
            raise ValueError("valid_src and valid_tgt must be given together")
        if self.valid_src is not None and self.valid_tgt is not None:
            if not self.valid_src or len(self.valid_src) != len(self.valid_tgt):
                raise ValueError("valid_src and valid_tgt must name the same number of files, at least one")
        return self


class RowsConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Files of which every row is an example: lines of text, or vectors of numbers."""

    files: tuple[str, ...] = Field(min_length=1)
    """Text, one example a line; or vectors, one a row, in ``.npy`` or ``.csv``."""
    valid_files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The same for validation. Null: rows are held out of ``files``."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Rows held out for validation when no validation files are given, but never more than 5 % of all."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Chooses which rows are held out, and nothing else."""
    max_length: int = Field(default=256, ge=1, le=1 << 20)
    """Longest line in tokens; longer ones are dropped from training and counted. Vectors have no length."""


class DocumentsConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Labeled documents: a document, a tab, its label, one a line."""

    files: tuple[str, ...] = Field(min_length=1)
    """Files of documents and labels."""
    valid_files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The same for validation. Null: documents are held out of ``files``."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Documents held out for validation when no validation files are given, but never more than 5 % of all."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Chooses which documents are held out, and nothing else."""
    max_length: int = Field(default=100, ge=1, le=1 << 16)
    """Longest sentence in tokens; longer ones go on as further sentences."""
    max_sentences: int = Field(default=100, ge=1, le=1 << 16)
    """Sentences of a document that are read; documents with more are counted, in training and in use."""


class TextConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Raw text by documents, and how they become rows for a language model."""

    files: tuple[str, ...] = Field(min_length=1)
    """Text. Each file is a corpus of its own, say a language."""
    valid_files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The same for validation. Null: documents are held out of ``files``."""
    document_format: Literal["auto", "lines", "blocks"] = "auto"
    """What a document is: a line, or the lines between blank ones; auto takes blocks where there are blank lines."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Documents held out for validation when no validation files are given, but never more than 5 % of a file's."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Chooses which documents are held out, and which of their tokens are hidden in validation."""
    valid_rows: int | None = Field(default=2048, ge=1, lt=2**31)
    """Most rows of the validation text that are scored, taken evenly from all of it. Null: all are."""
    sequence_length: int = Field(default=128, ge=8, le=1 << 20)
    """Tokens of a row. Long documents are cut into rows, short ones laid side by side; nothing is left out."""
    isolate_documents: bool = True
    """Whether documents in one row are hidden from each other."""
    language_sampling_alpha: float = Field(default=1.0, ge=0, le=1)
    """A file that holds the share p of all tokens gets a share of each epoch that grows as p**alpha (Conneau and Lample
    2019, equation 1): 1 uses each document once, 0 all files alike."""


class NoiseConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """What is done to the input of an auto-encoder that has to restore it (Vincent et al. 2008), anew in each epoch.

    In the order of the fields, each to what the one before has left.
    """

    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Chance of each token to be left out; one of a line always stays. Not for vectors."""
    mask_prob: float = Field(default=0.0, ge=0, le=1)
    """Chance of each token to become ``<unk>``, of each number of a vector to become its column's mean."""
    shuffle_prob: float = Field(default=0.0, ge=0, le=1)
    """Chance of each token to be one of those that change places among themselves. Not for vectors."""

    @property
    def any(self) -> bool:
        """Whether anything is done."""
        return bool(self.word_dropout or self.mask_prob or self.shuffle_prob)
