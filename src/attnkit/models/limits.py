"""Bounds of model configurations."""

from __future__ import annotations

from typing import Any

MOST_WIDTH, MOST_LAYERS, MOST_POSITIONS = 1 << 16, 256, 1 << 20
"""Upper bounds far above any practical model; larger ones take long to build even on the meta device."""
MOST_HEAD_WIDTH = 4096  #: likewise of one head


def check_length(model: Any, needs: dict[str, int], advice: str = "raise the limit or lower the length") -> None:
    """Raise ValueError if a model has too few positions for a length in ``needs``."""
    what = max(needs, key=needs.__getitem__)  # needs: purpose -> number of positions
    if model.max_positions is not None and model.max_positions < needs[what]:
        # The lower of two limits is reported.
        learned = getattr(model, "positions", None) == "learned" and model.max_positions == model.max_length
        limit = "learned positions need model.max_length"
        limit = limit if learned else "location attention needs model.attention_options.max_source"
        raise ValueError(f"{limit} of {needs[what]} for {what}; {advice}")
