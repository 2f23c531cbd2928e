"""Settings of the search; free of torch, so that help and validation stay quick."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator

MAX_TOKENS = 1 << 20  #: maximum tokens of a translation, far beyond any sentence


class SearchConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Settings of search and sampling. Lengths count target tokens, end-of-sentence included unless said otherwise."""

    # Search.
    beam_size: int = Field(default=5, ge=1, le=1024)
    """Partial translations kept per sentence; 1 is greedy search. Sampling does not use it."""
    sampling: bool = False
    """Draw words at random instead of searching for the best."""
    temperature: float = Field(default=1.0, gt=0, le=100, allow_inf_nan=False)
    """Sampling: divides the logits; below 1 is bolder towards likely words, above 1 is more varied."""
    top_k: int = Field(default=0, ge=0, lt=2**31)
    """Sampling: draw among this many likeliest words; 0 is all of them."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sampling: draw among the fewest likeliest words that hold this much probability (after top_k); 1 is all."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Sampling: with the number of the line and of the hypothesis it decides what is drawn."""
    num_hypotheses: int = Field(default=1, ge=1, le=1024)
    """Translations per line: the best ones of a beam (at most beam_size), or as many independent samples."""
    length_penalty: float = Field(default=1.0, ge=-10, le=10)
    """Exponent alpha of score = log-probability / length**alpha; 0 compares plain log-probabilities."""
    coverage_penalty: float = Field(default=0.0, ge=0, le=1e6)
    """Weight beta of the coverage term (Wu et al. 2016, eq. 14), added to the score of finished translations."""
    repetition_penalty: float = Field(default=1.0, gt=0, le=100, allow_inf_nan=False)
    """Divides positive and multiplies negative logits of words used before (CTRL, Keskar et al. 2019); 1 is off."""
    no_repeat_ngram_size: int = Field(default=0, ge=0, le=MAX_TOKENS)
    """No sequence of this many words comes twice; 0 is off."""
    min_length: int = Field(default=0, ge=0, lt=MAX_TOKENS)
    """Fewest tokens before end-of-sentence. Gives way where nothing else is allowed."""
    max_length: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """Most tokens of a translation; none means max_ratio times the source's tokens plus extra."""
    max_ratio: float = Field(default=2.0, ge=0, le=1000)
    """Target tokens allowed per source token, where max_length is none."""
    extra: int = Field(default=10, ge=1, le=MAX_TOKENS)
    """Target tokens allowed on top of that."""
    n_words: int | None = Field(default=None, gt=3, lt=2**31)
    """First id that only pads the vocabulary's size; it and all later ids are never generated. None: no such ids."""
    scores: bool = True
    """Greedy search only: false saves the normalisation over the vocabulary, scores are then not a number."""

    def limit(self, n_source: int) -> int:
        """Return the maximum target length for a source length, EOS included on both sides."""
        return int(self.max_ratio * n_source) + self.extra if self.max_length is None else self.max_length

    @model_validator(mode="after")
    def _settings_fit_the_search(self) -> SearchConfig:
        if not self.sampling and self.num_hypotheses > self.beam_size:
            raise ValueError("num_hypotheses cannot exceed beam_size, except with sampling (--sampling)")
        if not self.sampling and (self.temperature, self.top_k, self.top_p) != (1.0, 0, 1.0):
            raise ValueError("temperature, top_k and top_p need sampling (--sampling)")
        if self.max_length is not None and self.min_length >= self.max_length:
            raise ValueError("min_length must be below max_length, which counts the end of the sentence")
        return self
