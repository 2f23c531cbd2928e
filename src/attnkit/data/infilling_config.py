"""Configuration of text infilling. Torch-free."""

from __future__ import annotations

from pydantic import BaseModel, Field

MASK = "<mask>"  #: symbol of the vocabulary that stands for a masked span


class InfillingConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Text infilling: spans of the source are masked, anew in every epoch (Lewis et al. 2020, section 2.2).

    The defaults are those of BART. mBART (Liu et al. 2020, section 2.1) has 0.35 and 3.5, in words instead of tokens.
    """

    mask_prob: float = Field(default=0.3, gt=0, le=1)
    """Share of the tokens of each line that are masked."""
    span_length: float = Field(default=3.0, ge=1, le=50)
    """Mean length of a span in tokens, of a Poisson distribution. Each span becomes one `<mask>`; a span of length 0
    is a `<mask>` between two tokens."""
