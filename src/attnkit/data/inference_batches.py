"""How rows are grouped into batches for inference: longest first, by rows or by tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Batching:
    """How lines are put together: never what comes out in float32, only how fast."""

    size: int = 64
    unit: Literal["sentences", "tokens"] = "sentences"
    window: int = 4096
    """Lines that are read before they are sorted by length."""


def make_batches(lengths: Sequence[int], batching: Batching) -> list[list[int]]:
    """Group indices by length, longest first, so that padding is rare and the greatest need of memory comes first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches: list[list[int]] = []
    for i in order:
        full = not batches or (
            len(batches[-1]) >= batching.size
            if batching.unit == "sentences"
            else (lengths[batches[-1][0]] + 1) * (len(batches[-1]) + 1) > batching.size
        )
        if full:
            batches.append([])
        batches[-1].append(i)
    return batches
