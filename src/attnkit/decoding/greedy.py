"""Greedy search: the likeliest word at every step, the lowest id among equals."""

from __future__ import annotations

from torch import Tensor

from attnkit.decoding.autoregressive import Told, walk
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Batch
from attnkit.decoding.ensemble import Ensemble
from attnkit.decoding.hypotheses import History
from attnkit.decoding.selection import argmax


def greedy_search(
    ensemble: Ensemble, batch: Batch, config: SearchConfig, history: History, told: Told | None = None
) -> int:
    """Walk along the likeliest words into the history. Returns the vocabulary's size."""

    def pick(logits: Tensor, step: int, places: Tensor) -> Tensor:
        return argmax(logits)

    return walk(ensemble, batch, config, history, pick, told)
