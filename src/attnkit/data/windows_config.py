"""How long contexts are read in windows, and how long answers may be. Torch-free."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator


class WindowsConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Windows over contexts that are longer than a row, each beside its question (Devlin et al. 2019, their code)."""

    max_length: int = Field(default=384, ge=8, le=1 << 20)
    """Tokens of a row: question, window, and the three symbols around them."""
    stride: int = Field(default=128, ge=1, le=1 << 20)
    """How many tokens of the context the next window begins behind the one before."""
    max_question: int = Field(default=64, ge=1, le=1 << 20)
    """Tokens of a question that are read."""
    max_answer: int = Field(default=30, ge=1, le=1 << 20)
    """Tokens of the longest answer that is given."""

    @model_validator(mode="after")
    def _windows_overlap(self) -> WindowsConfig:
        room = self.max_length - 3 - self.max_question
        if room < self.stride:
            what = f"max_length={self.max_length} leaves {max(0, room)} tokens for the context beside a question of"
            raise ValueError(f"{what} max_question={self.max_question}, fewer than stride={self.stride}")
        return self
