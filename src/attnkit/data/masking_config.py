"""How tokens are hidden for a model to guess, as checked values. Free of torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator


class MaskingConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Which tokens are chosen, and what becomes of them (Devlin et al. 2019, section 3.1)."""

    mask_prob: float = Field(default=0.15, gt=0, lt=1)
    """Share of the tokens that are chosen, and predicted."""
    mask_replace_prob: float = Field(default=0.8, ge=0, le=1)
    """Share of the chosen that become [MASK]."""
    random_replace_prob: float = Field(default=0.1, ge=0, le=1)
    """Share of the chosen that become any word of the vocabulary; the rest stay as they are."""
    mask_unit: Literal["tokens", "words", "spans"] = "tokens"
    """What is chosen and treated as one: tokens, whole words, or spans of words (Joshi et al. 2020)."""
    span_geometric_p: float = Field(default=0.2, gt=0, le=1)
    """Probability that a span ends after each of its words: their lengths are geometric."""
    max_span_words: int = Field(default=10, gt=0, le=1 << 16)
    """Most words of a span."""

    @model_validator(mode="after")
    def _shares_fit(self) -> MaskingConfig:
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-12:
            raise ValueError(
                f"mask ({self.mask_replace_prob:g}) and random ({self.random_replace_prob:g}) are shares of one whole"
            )
        return self

    @property
    def unchanged(self) -> float:
        """Return the share of the chosen that stay as they are."""
        return max(0.0, 1 - self.mask_replace_prob - self.random_replace_prob)
