"""Greedy search: the likeliest word at every step, the lowest id among equals."""

from __future__ import annotations

from torch import Tensor

from attnkit.decoding.autoregressive import TokenCallback, decode_step_by_step
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import SourceBatch
from attnkit.decoding.ensemble import Ensemble
from attnkit.decoding.hypotheses import SearchHistory
from attnkit.decoding.selection import argmax


def greedy_search(
    ensemble: Ensemble,
    batch: SourceBatch,
    config: SearchConfig,
    history: SearchHistory,
    told: TokenCallback | None = None,
) -> int:
    """Run greedy search into the history; return the vocabulary size."""

    def pick(logits: Tensor, step: int, places: Tensor) -> Tensor:
        # The lowest id among equals, on every device: torch.argmax does not promise it.
        return argmax(logits)

    return decode_step_by_step(ensemble, batch, config, history, pick, told)
