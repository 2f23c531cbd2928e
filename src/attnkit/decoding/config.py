"""Settings of search and sampling. Torch-free, so that help pages load fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from pydantic import BaseModel, Field, model_validator

from attnkit.errors import UsageError

MAX_TOKENS = 1 << 20  #: upper bound of all length settings, in tokens


class SearchConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Settings of search and sampling. Lengths are in target tokens, including EOS."""

    # Search.
    beam_size: int = Field(default=5, ge=1, le=1024)
    """Number of hypotheses kept per sentence; 1 is greedy search. Not used for sampling."""
    sampling: bool = False
    """Sample words at random instead of searching for the most probable translation."""
    temperature: float = Field(default=1.0, gt=0, le=100, allow_inf_nan=False)
    """Sampling: divisor of the logits; values below 1 favour likely words, values above 1 increase variety."""
    top_k: int = Field(default=0, ge=0, lt=2**31)
    """Sampling: number of most probable words to sample from; 0 means all words."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sampling: total probability of the most probable words to sample from, after top_k; 1 means all words."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Sampling: random seed, combined with the line number and the number of the hypothesis."""
    num_hypotheses: int = Field(default=1, ge=1, le=1024)
    """Translations per line: the best hypotheses of the beam (at most beam_size), or independent samples."""
    length_penalty: float = Field(default=1.0, ge=-10, le=10)
    """Exponent alpha of score = log-probability / length**alpha; 0 compares plain log-probabilities."""
    coverage_penalty: float = Field(default=0.0, ge=0, le=1e6)
    """Weight beta of the coverage penalty (Wu et al. 2016, eq. 14), applied to the scores of complete translations."""
    repetition_penalty: float = Field(default=1.0, gt=0, le=100, allow_inf_nan=False)
    """Divisor of positive, factor of negative logits of words used before (CTRL, Keskar et al. 2019); 1 is off."""
    no_repeat_ngram_size: int = Field(default=0, ge=0, le=MAX_TOKENS)
    """Size of n-grams of tokens (subwords) that may occur only once in a translation; 0 is off."""
    min_length: int = Field(default=0, ge=0, lt=MAX_TOKENS)
    """Minimum number of tokens before end-of-sentence; ignored if no other token is allowed."""
    max_length: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """Maximum tokens of a translation; null: max_ratio times the number of source tokens, plus extra."""
    max_ratio: float = Field(default=2.0, ge=0, le=1000)
    """Maximum target tokens per source token if max_length is null."""
    extra: int = Field(default=10, ge=1, le=MAX_TOKENS)
    """Target tokens allowed in addition to max_ratio times the source tokens."""
    n_words: int | None = Field(default=None, gt=3, lt=2**31)
    """Number of ids in use; ids from this number on only pad the vocabulary and are never generated. Null: all ids."""
    no_unk: bool = False
    """Never produce the unknown token."""
    token_scores: bool = False
    """Return the log-probability of each token, too."""
    scores: bool = True
    """Greedy search only: false skips the softmax over the vocabulary; all scores are then NaN."""

    def limit(self, n_source: int) -> int:
        """Return the maximum target length for a source length, both including EOS."""
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


class SearchArguments(TypedDict, total=False):
    """Fields of ``SearchConfig`` as keywords of calls."""

    beam_size: int
    sampling: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    num_hypotheses: int
    length_penalty: float
    coverage_penalty: float
    repetition_penalty: float
    no_repeat_ngram_size: int
    min_length: int
    max_length: int | None
    max_ratio: float
    extra: int
    n_words: int | None
    no_unk: bool
    token_scores: bool
    scores: bool


def check_search_options(options: Mapping[str, object]) -> None:
    """Raise ``UsageError`` for options that exclude each other.

    ``SearchConfig`` cannot tell a given value from a run's default, so it does not check this.
    """
    if options.get("sampling") and options.get("beam_size") is not None:
        raise UsageError(
            "sampling has no beam: every translation is drawn on its own",
            where="--beam-size",
            help="leave out --beam-size or --sampling; --num-hypotheses sets the number of samples",
        )
