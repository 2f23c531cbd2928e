"""Configuration of cleaning. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class CleanConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Filters and repairs of `attnkit clean`."""

    realign: bool = False
    """Pair shifted and exchanged lines with their own targets, instead of dropping them."""
    repair: bool = False
    """Repair mojibake, HTML character references, look-alike letters, odd white space and Unicode normal form."""
    strip_tags: bool = False
    """Remove HTML tags."""
    max_ratio: float | None = Field(default=9.0, gt=1.0, le=1e9)
    """Maximum factor by which a pair's length ratio, in characters, deviates from the corpus median. Null: no limit."""
    min_characters: int = Field(default=1, ge=0, lt=2**31)
    """Minimum length of a line in characters."""
    max_characters: int = Field(default=2000, ge=1, lt=2**31)
    """Maximum length of a line in characters."""
    drop_copies: bool = True
    """Drop pairs whose target is a copy of the source."""
    check_languages: bool = True
    """Drop pairs with a line in another language or script than its side."""
    duplicates: Literal["exact", "near", "keep"] = "exact"
    """Repeated pairs to drop; `near` also those that differ in case, marks or few words."""
    drop_repeated: bool = False
    """Drop pairs with a line that repeats words four times or more in a row."""
    max_uses: int | None = Field(default=None, ge=1, lt=2**31)
    """Maximum number of kept pairs with the same source or the same target line. Null: no limit."""
    min_evidence: float | None = Field(default=None, ge=-6.0, le=6.0)
    """Minimum evidence in nats that source and target belong together, by a lexicon of the corpus. Null: no limit."""
    min_log_prob: float | None = Field(default=None, ge=-1e9, le=0.0)
    """Minimum log-probability per target token by a trained run. Null: no limit."""
