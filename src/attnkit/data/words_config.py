"""Which words of a text get vectors. Torch-free."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator

from attnkit.text.config import PhrasesConfig


class WordsConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """How text becomes the numbered words that word vectors are learnt from."""

    lower: bool = False
    """Lower-case the text."""
    min_count: int = Field(default=5, ge=1, lt=2**40)
    """Words that occur less often get no vector and are left out before windows are formed."""
    max_vocab: int | None = Field(default=None, ge=1, le=1 << 28)
    """Keep no more than this many words, the most frequent. Null: all that occur often enough."""
    tokenizer: str | None = None
    """A vocabulary file of `attnkit vocab`, or a run: its tokens are the words. Null: those between white space are."""
    phrases: PhrasesConfig = PhrasesConfig()
    """Which neighbours are joined to one word."""

    @model_validator(mode="after")
    def _check_tokens(self) -> WordsConfig:
        if self.tokenizer is not None and self.phrases.passes:
            raise ValueError("phrases join words, not the tokens of a vocabulary: leave out tokenizer or phrases")
        return self
