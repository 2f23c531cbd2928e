"""What pretrained encoders are fine-tuned on: files of labeled texts, of tagged words, of questions. Torch-free."""

from __future__ import annotations

from pydantic import BaseModel, Field

from attnkit.data.question_answering_config import WindowsConfig


class ExamplesConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Files of examples, and which of them are for validation."""

    files: tuple[str, ...] = Field(min_length=1)
    """Files of examples."""
    valid_files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The same for validation. Null: examples are held out of ``files``."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Examples held out for validation when no validation files are given, but never more than 5 % of all."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Chooses which examples are held out, and nothing else."""


class TextsConfig(ExamplesConfig, frozen=True):
    """Texts or pairs of texts with a label: tables with a header, tabs between the columns."""

    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    """Tokens of a row, with the symbols around its texts; the end of longer ones is not read, and they are counted.
    Null: as many as the model learned from, at most 512."""


class TaggedConfig(ExamplesConfig, frozen=True):
    """Sentences of tagged words: a word a line, its tag in the last column, a blank line after each sentence."""

    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    """Tokens of a row, with the symbols around its words. Null: as many as the model learned from, at most 512."""


class QuestionsConfig(ExamplesConfig, frozen=True):
    """Questions on paragraphs, with answers that stand in them: the JSON of SQuAD.

    What is held out are paragraphs, with all their questions.
    """

    windows: WindowsConfig = WindowsConfig()
    """How paragraphs that are too long for a row are read."""
