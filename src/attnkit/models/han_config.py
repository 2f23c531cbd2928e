"""Configuration of document classifiers. Torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.models.attention.config import (
    AlignmentName,
    AttentionOptions,
    DistributionName,
    n_parameters,
    saved_activations,
)
from attnkit.models.config import LOCATION_LIMIT, MOST_WIDTH, Scaled, Sizes, VectorsName, check_attention_pair


class HanConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """A hierarchical attention network (Yang et al. 2016): words make sentences, sentences make a document."""

    kind: Literal["han"] = "han"
    """Kind of model: this one."""
    # Sizes, those of the paper but for the embeddings.
    d_model: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the word embeddings."""
    d_word: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the word encoder's states, both directions together; even."""
    d_sentence: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the sentence encoder's states, both directions together; even."""
    d_attention: int = Field(default=100, gt=0, le=MOST_WIDTH)
    """Width of the two attentions' hidden layers, and of what they compare with."""
    # Attention, the same function at both levels.
    alignment: AlignmentName = "dot"
    """Alignment function of a learned context vector and the states of words and of sentences; dot is the paper's."""
    distribution: DistributionName = "softmax"
    """Distribution function of words and of sentences, from scores to weights."""
    attention_options: AttentionOptions = AttentionOptions()
    """Options of these functions."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Dropout on embeddings, on the sentences and on the document."""
    # Embeddings.
    embeddings: VectorsName | None = None
    """Word vectors that initialize the embeddings: a run or a file of them."""
    scale_embeddings: Scaled = False

    @model_validator(mode="after")
    def _parts_fit(self) -> HanConfig:
        for name in ("d_word", "d_sentence"):
            if getattr(self, name) % 2:
                raise ValueError(f"{name} is shared by two directions and must be even, not {getattr(self, name)}")
        check_attention_pair(self.alignment, self.distribution, self.attention_options)
        return self

    @property
    def max_positions(self) -> int | None:
        """Return the most words of a sentence, and sentences of a document; None without a limit."""
        return self.attention_options.max_source if self.alignment == "location" else None

    @property
    def length_limit_reason(self) -> str:
        """Return what limits them, and the key that sets it."""
        return LOCATION_LIMIT

    @property
    def plain_attention(self) -> bool:
        """Return whether words and sentences are weighed as in the paper: by dot x softmax."""
        return (self.alignment, self.distribution) == ("dot", "softmax")

    @property
    def activation_floats_per_token(self) -> float:
        """Estimate how many numbers the backward pass needs per word."""
        states = 4.0 * self.d_model + 9 * self.d_word + 3 * self.d_attention
        if self.plain_attention:
            return states
        return states + saved_activations(self.alignment, self.distribution, self.d_attention, self.attention_options)

    def min_parameters(self, vocab_size: int, n_labels: int) -> int:
        """Return how many numbers the matrices of such a model hold, biases and the like left out."""
        # A GRU has three gates; each direction is half as wide.
        words = 3 * self.d_word * (self.d_model + self.d_word // 2)
        sentences = 3 * self.d_sentence * (self.d_word + self.d_sentence // 2)
        functions = n_parameters(self.alignment, self.d_attention, self.d_attention, self.attention_options)
        # A projection per level, and the alignment's own weights.
        attention = self.d_attention * (self.d_word + self.d_sentence) + 2 * functions
        return vocab_size * self.d_model + words + sentences + attention + n_labels * self.d_sentence


HAN_SIZES: Sizes = {
    "tiny": {"d_model": 64, "d_word": 64, "d_sentence": 64, "d_attention": 64},
    "small": {},
    "base": {"d_model": 200, "d_word": 200, "d_sentence": 200, "d_attention": 200},
    "big": {"d_model": 300, "d_word": 300, "d_sentence": 300, "d_attention": 300},
}
"""Preset -> what differs from the defaults, which are those of the paper (but for embeddings of 200)."""
