"""Weights as short text: rounded to as many decimals as the page has room for, compressed, in base 64.

A page unpacks them with what every browser of today has (``DecompressionStream``), and shows of a weight the decimals
that were kept: what is read there is the weight rounded, never a rounding of a rounding.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnkit.plotting.attention_maps import AttentionMap

MOST, LEAST = 4, 2
"""Decimals of a weight."""
ROOM = 3_800_000
"""Bytes for the weights of a page whose whole is to stay below 4 MB; with the fewest decimals it may take more."""


@dataclass(frozen=True)
class Packed:
    """The weights of one map: for each layer its heads, and after them their mean."""

    digits: int
    text: str


def pack(map: AttentionMap, digits: int) -> Packed:
    """Return the weights of a map and the mean of each layer's heads, (L, H + 1, T, S), rounded to decimals."""
    rows = np.nan_to_num(np.asarray(map.weights, np.float64), nan=0.0, posinf=6.5, neginf=0.0)
    rows = np.concatenate([rows, rows.mean(1, keepdims=True)], 1)
    numbers = np.clip(np.rint(rows * 10**digits), 0, 65_535).astype("<u2")
    # The high bytes are nearly all alike: by themselves they take next to nothing.
    planes = numbers.reshape(-1).view(np.uint8).reshape(-1, 2).T.tobytes()
    return Packed(digits, base64.b64encode(zlib.compress(planes, 6)).decode("ascii"))


def pack_all(maps: Sequence[AttentionMap], room: int = ROOM) -> list[Packed]:
    """Return all maps packed, each with as many decimals as fit; the first ones come first."""
    finest = [pack(map, MOST) for map in maps]
    if sum(len(packed.text) for packed in finest) <= room:
        return finest
    chosen = [pack(map, LEAST) for map in maps]
    used = sum(len(packed.text) for packed in chosen)
    for digits in range(LEAST + 1, MOST + 1):
        for i, map in enumerate(maps):
            finer = finest[i] if digits == MOST else pack(map, digits)
            more = len(finer.text) - len(chosen[i].text)
            if used + more <= room and chosen[i].digits == digits - 1:
                chosen[i], used = finer, used + more
    return chosen
