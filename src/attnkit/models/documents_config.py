"""What document classifiers are built from, as checked values. Free of torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.models.config import MOST_WIDTH, Sizes


class HanConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """A hierarchical attention network (Yang et al. 2016): words make sentences, sentences make a document."""

    kind: Literal["han"] = "han"
    """Which model: this one."""
    d_model: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the word embeddings."""
    d_word: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the word encoder's states, both directions together; even."""
    d_sentence: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the sentence encoder's states, both directions together; even."""
    d_attention: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the two attentions' hidden layers, and of what they compare with."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Dropout on embeddings, on the sentences and on the document."""

    @model_validator(mode="after")
    def _directions_fit(self) -> HanConfig:
        for name in ("d_word", "d_sentence"):
            if getattr(self, name) % 2:
                raise ValueError(f"{name} is shared by two directions and must be even, not {getattr(self, name)}")
        return self

    @property
    def activations(self) -> float:
        """Estimate how many numbers the backward pass needs per word."""
        return 4.0 * self.d_model + 9 * self.d_word + 3 * self.d_attention

    def least_weights(self, vocab_size: int, n_labels: int) -> int:
        """Return how many numbers the matrices of such a model hold, biases and the like left out."""
        words = 3 * self.d_word * (self.d_model + self.d_word // 2)
        sentences = 3 * self.d_sentence * (self.d_word + self.d_sentence // 2)
        attention = self.d_attention * (self.d_word + self.d_sentence)
        return vocab_size * self.d_model + words + sentences + attention + n_labels * self.d_sentence


HAN_SIZES: Sizes = {
    "tiny": {"d_model": 64, "d_word": 64, "d_sentence": 64, "d_attention": 64},
    "small": {},
    "base": {"d_model": 200, "d_word": 200, "d_sentence": 200, "d_attention": 200},
    "big": {"d_model": 300, "d_word": 300, "d_sentence": 300, "d_attention": 300},
}
"""Preset -> what differs from the defaults, which are those of the paper (but for embeddings of 200)."""
