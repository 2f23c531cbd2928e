"""Settings of synthetic training pairs. Torch-free, so that help pages load fast."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator


class SyntheticConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """What is written before a source, and which pairs are dropped."""

    tag: str = Field(default="", max_length=100)
    """Symbol before each source, followed by a space; empty: none."""
    keep_flagged: bool = False
    """Keep pairs whose translation has a sign of trouble: cut, repeated, copied, too short or too long."""
    min_log_prob: float | None = Field(default=None, ge=-1e3, le=0)
    """Minimum log-probability (nats) per token of a translation, given its source, by the run that wrote it."""
    min_forward_log_prob: float | None = Field(default=None, ge=-1e3, le=0)
    """Minimum log-probability (nats) per token of the original line, given its translation, by the forward run."""
    min_round_trip: float | None = Field(default=None, ge=0, le=100)
    """Minimum chrF (0 to 100) between the original line and its translation translated back by the forward run."""

    @field_validator("tag")
    @classmethod
    def _check_tag(cls, tag: str) -> str:
        if tag and tag.split() != [tag]:
            raise ValueError("the tag contains white space")
        return tag

    @property
    def needs_forward(self) -> bool:
        """Whether a filter needs the forward run."""
        return self.min_forward_log_prob is not None or self.min_round_trip is not None
