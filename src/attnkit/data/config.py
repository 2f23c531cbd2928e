"""Settings of training data: text files, held-out lines, masking, windows and words. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.text.config import PhrasesConfig

_MAX_WEIGHT = 1000


class DataConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Parallel text files and the rules by which their pairs become training data."""

    src: tuple[str, ...] = Field(min_length=1)
    """Source files, one sentence per line; line n of each translates line n of the same file of ``tgt``."""
    tgt: tuple[str, ...] = Field(min_length=1)
    """Target files, as many as ``src``."""
    weights: tuple[float, ...] | None = None
    """Passes over each pair of files per epoch: 2 is twice, 0.5 a random half, new in each epoch. Null: once."""
    valid_src: tuple[str, ...] | None = None
    """Source files for validation. Null: pairs are held out of the training files."""
    valid_tgt: tuple[str, ...] | None = None
    """Target files for validation, as many as ``valid_src``."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Pairs held out for validation when no validation files are given, but never more than 5 % of all pairs."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Chooses which pairs are held out, and nothing else."""
    max_length: int = Field(default=256, ge=1, le=1 << 20)
    """Maximum tokens on either side of a training pair; longer pairs are dropped and counted."""
    max_ratio: float = Field(default=20.0, ge=1.0, le=1e9)
    """Largest ratio of the two lengths of a training pair in tokens (each plus one); others are dropped and counted."""
    max_character_ratio: float | None = Field(default=9.0, gt=1.0, le=1e9)
    """A training pair whose ratio of characters is this many times the usual one of its corpus is dropped and counted,
    as `attnkit check` says beforehand. Null: none is."""

    @model_validator(mode="after")
    def _check_files(self) -> DataConfig:
        if len(self.src) != len(self.tgt):
            raise ValueError(f"src has {len(self.src)} files but tgt has {len(self.tgt)}; expected equal numbers")
        if self.weights is not None and len(self.weights) != len(self.src):
            raise ValueError(f"weights has {len(self.weights)} values for {len(self.src)} pairs of files")
        if self.weights is not None and not (min(self.weights) >= 0 and 0 < max(self.weights) <= _MAX_WEIGHT):
            raise ValueError(f"weights must be at most {_MAX_WEIGHT:,}, none below 0 and at least one above 0")
        if (self.valid_src is None) != (self.valid_tgt is None):
            raise ValueError("valid_src and valid_tgt must be given together")
        if self.valid_src is not None and self.valid_tgt is not None:
            if not self.valid_src or len(self.valid_src) != len(self.valid_tgt):
                raise ValueError("valid_src and valid_tgt must name the same number of files, at least one")
        return self


class ExamplesConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Files of examples, and which of them are held out for validation."""

    files: tuple[str, ...] = Field(min_length=1)
    """Files of examples."""
    valid_files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Files for validation. Null: examples are held out of ``files``."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Examples held out for validation when no validation files are given, but never more than 5 % of all."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Chooses which examples are held out, and nothing else."""


class RowsConfig(ExamplesConfig, frozen=True):
    """Files of which every row is an example: lines of text, or vectors of numbers."""

    files: tuple[str, ...] = Field(min_length=1)
    """Text, one example per line; or vectors, one per row, in ``.npy`` or ``.csv``."""
    max_length: int = Field(default=256, ge=1, le=1 << 20)
    """Longest line in tokens; longer ones are dropped from training and counted. Ignored for vectors."""


class DocumentsConfig(ExamplesConfig, frozen=True):
    """Labeled documents: a document, a tab, its label, one per line."""

    files: tuple[str, ...] = Field(min_length=1)
    """Files of documents and labels."""
    max_length: int = Field(default=100, ge=1, le=1 << 16)
    """Longest sentence in tokens; longer ones are split."""
    max_sentences: int = Field(default=100, ge=1, le=1 << 16)
    """Sentences of a document that are read; documents with more are counted, in training and in use."""


class TextConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Raw text by documents, and how they become rows for a language model."""

    files: tuple[str, ...] = Field(min_length=1)
    """Text. Each file is a corpus of its own, say a language."""
    valid_files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Files for validation. Null: documents are held out of ``files``."""
    document_format: Literal["auto", "lines", "blocks"] = "auto"
    """Unit of a document: a line, or the lines between blank ones; auto takes blocks in files with blank lines."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Documents held out for validation when no validation files are given, but never more than 5 % of a file's."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Chooses which documents are held out, and which of their tokens are masked in validation."""
    valid_rows: int | None = Field(default=2048, ge=1, lt=2**31)
    """Most rows of the validation text that are scored, taken evenly from all of it. Null: all are."""
    sequence_length: int = Field(default=128, ge=8, le=1 << 20)
    """Tokens per row. Long documents are split into rows, short ones share a row; nothing is left out."""
    isolate_documents: bool = True
    """Whether documents in one row are masked from each other."""
    language_sampling_alpha: float = Field(default=1.0, ge=0, le=1)
    """A file with the share p of all tokens gets a share of each epoch proportional to p**alpha (Conneau and Lample
    2019, equation 1): 1 uses each document once, 0 all files equally."""


class NoiseConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Input noise of a denoising auto-encoder (Vincent et al. 2008), resampled every epoch.

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


_LONGEST, _STRIDE, _QUESTION = 384, 128, 64  # of Devlin et al. 2019, their code


@dataclass(frozen=True)
class WindowSizes:
    """All of them in tokens, of one model."""

    max_length: int
    stride: int  #: maximum distance of a window's start from the previous one's
    max_question_length: int
    max_answer_length: int
    fixed: bool = True
    """Whether a window always begins so far behind, full ones at least; or less far, where that keeps answers whole."""
    separators: int = 1  #: ends that stand between question and window

    @property
    def n_symbols(self) -> int:
        """Return the number of special tokens in a row."""
        return 2 + self.separators


class WindowsConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Sliding windows over contexts longer than a row, each with its question (code of Devlin et al. 2019)."""

    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    """Tokens of a row: question, window, and the symbols around them, three in BERT. Null: 384, or as many as the model
    learned from where these are fewer."""
    stride: int | None = Field(default=None, ge=1, le=1 << 20)
    """Tokens of the context between the starts of two windows. Null: 128, or three quarters of what
    a row has beside the longest question where that is less; and less for a question where two windows would share
    fewer tokens than two answers take, but for a quarter of what its rows have."""
    max_question_length: int | None = Field(default=None, ge=1, le=1 << 20)
    """Tokens of a question that are read. Null: 64, or three eighths of a row where that is less."""
    max_answer_length: int = Field(default=30, ge=1, le=1 << 20)
    """Tokens of the longest answer that is given."""

    def within(self, usual: int, separators: int = 1) -> WindowSizes:
        """Return the sizes for a model whose rows usually have at most so many tokens, and so many ends in between.

        Raises:
            ValueError: the windows would leave tokens out.
        """
        length = self.max_length or min(_LONGEST, usual)
        question = self.max_question_length or max(1, min(_QUESTION, 3 * length // 8))
        room = length - 2 - separators - question
        stride = self.stride or max(1, min(_STRIDE, 3 * room // 4))
        if room < stride:
            what = f"max_length={length} leaves {max(0, room)} tokens for the context, given"
            raise ValueError(f"{what} max_question_length={question}; fewer than stride={stride}")
        return WindowSizes(length, stride, question, self.max_answer_length, self.stride is not None, separators)


class TextsConfig(ExamplesConfig, frozen=True):
    """Texts or pairs of texts with a label: tables with a header, tabs between the columns."""

    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    """Tokens of a row, with the symbols around its texts; the end of longer ones is not read, and they are counted.
    Null: as many as the model learned from, at most 512."""


class TaggedConfig(ExamplesConfig, frozen=True):
    """Sentences of tagged words: one word per line, its tag in the last column, a blank line after each sentence."""

    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    """Maximum tokens per row, special tokens included. Null: the pretraining length, at most 512."""


class QuestionsConfig(ExamplesConfig, frozen=True):
    """Questions on paragraphs, with answers that occur in them: the JSON of SQuAD.

    What is held out are paragraphs, with all their questions.
    """

    windows: WindowsConfig = WindowsConfig()
    """Windows over paragraphs that are too long for a row."""


class WordsConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Preprocessing of text for word vectors."""

    lower: bool = False
    """Lower-case the text."""
    min_count: int = Field(default=5, ge=1, lt=2**40)
    """Words that occur less often get no vector and are left out before windows are formed."""
    max_vocab: int | None = Field(default=None, ge=1, le=1 << 28)
    """Keep at most this many words, the most frequent. Null: all with at least ``min_count`` occurrences."""
    tokenizer: str | None = None
    """A vocabulary file of `attnkit vocab`, or a run: its tokens are the words. Null: those between white space are."""
    phrases: PhrasesConfig = PhrasesConfig()
    """Neighbours that are joined to one word."""

    @model_validator(mode="after")
    def _check_tokens(self) -> WordsConfig:
        if self.tokenizer is not None and self.phrases.passes:
            raise ValueError("phrases and tokenizer cannot be combined: remove one")
        return self


class MaskingConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Which tokens are chosen, and what becomes of them (Devlin et al. 2019, section 3.1)."""

    mask_prob: float = Field(default=0.15, gt=0, lt=1)
    """Share of the tokens that are chosen, and predicted."""
    mask_replace_prob: float = Field(default=0.8, ge=0, le=1)
    """Share of the chosen that become [MASK]."""
    random_replace_prob: float = Field(default=0.1, ge=0, le=1)
    """Share of the chosen that are replaced by a random token; the rest stay unchanged."""
    mask_unit: Literal["tokens", "words", "spans"] = "tokens"
    """Unit of masking: tokens, whole words, or spans of words (Joshi et al. 2020)."""
    span_geometric_p: float = Field(default=0.2, gt=0, le=1)
    """Probability that a span ends after each of its words: their lengths are geometric."""
    max_span_words: int = Field(default=10, gt=0, le=1 << 16)
    """Most words of a span."""

    @model_validator(mode="after")
    def _shares_fit(self) -> MaskingConfig:
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-12:
            shares = f"mask_replace_prob ({self.mask_replace_prob:g}) and random_replace_prob"
            raise ValueError(f"{shares} ({self.random_replace_prob:g}) must sum to at most 1")
        return self

    @property
    def unchanged(self) -> float:
        """Return the share of the chosen tokens that stay unchanged."""
        return max(0.0, 1 - self.mask_replace_prob - self.random_replace_prob)
