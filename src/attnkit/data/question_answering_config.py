"""How long contexts are read in windows, and how long answers may be. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, Field

_LONGEST, _STRIDE, _QUESTION = 384, 128, 64  # of Devlin et al. 2019, their code


@dataclass(frozen=True)
class WindowSizes:
    """All of them in tokens, of one model."""

    max_length: int
    stride: int
    """How far behind the one before a window begins, at most."""
    max_question_length: int
    max_answer_length: int
    fixed: bool = True
    """Whether a window always begins so far behind, full ones at least; or less far, where that keeps answers whole."""
    separators: int = 1
    """Ends that stand between question and window."""

    @property
    def n_symbols(self) -> int:
        """Return how many symbols stand around question and window."""
        return 2 + self.separators


class WindowsConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Windows over contexts that are longer than a row, each beside its question (Devlin et al. 2019, their code)."""

    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    """Tokens of a row: question, window, and the symbols around them, three in BERT. Null: 384, or as many as the model
    learned from where these are fewer."""
    stride: int | None = Field(default=None, ge=1, le=1 << 20)
    """How many tokens of the context the next window begins behind the one before. Null: 128, or three quarters of what
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
            what = f"max_length={length} leaves {max(0, room)} tokens for the context beside a question of"
            raise ValueError(f"{what} max_question={question}, fewer than stride={stride}")
        return WindowSizes(length, stride, question, self.max_answer_length, self.stride is not None, separators)
