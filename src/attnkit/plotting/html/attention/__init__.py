"""The page of ``attend``: its data, with weights rounded and compressed to base 64."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, entropies, shown
from attnkit.plotting.html import as_json, render_page

HERE = "attnkit.plotting.html.attention"
SCRIPTS = ("read.js", "matrix.js", "lines.js", "overview.js", "tree.js", "main.js")
"""Parts of the one script, in their order."""
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


def build_page(sentences: Sequence[AttentionExample], facts: Mapping[str, str]) -> str:
    """Return an HTML document that shows the sentences; ``facts`` says what made them, in words.

    Nothing in it leads elsewhere, and a policy in it forbids that anything could: no request, no further script, no
    markup from text. Tokens occur in it as JSON in which no sign can end the element that holds them.
    """
    packed = pack_all([map for sentence in sentences for map in sentence.maps])
    data = {
        "facts": [[name, shown(text)] for name, text in facts.items()],
        "sentences": [
            {
                "source": shown(sentence.source),
                "target": shown(sentence.target),
                "sides": list(sentence.sides),
                "facts": [
                    [name.replace("_", " "), f"{value:.4f}" if isinstance(value, float) else shown(str(value))]
                    for name, value in sentence.facts.items()
                ],
                "maps": [_map(map) for map in sentence.maps],
                "tree": [vars(branch) | {"token": shown(branch.token)} for branch in sentence.tree],
            }
            for sentence in sentences
        ],
        "digits": [each.digits for each in packed],
    }
    weights = [f'<script type="text/plain" id="weights-{i}">{each.text}</script>' for i, each in enumerate(packed)]
    first = shown(sentences[0].source) if sentences else ""
    title = f"Attention: {first[:60]}{'…' if len(first) > 60 else ''}"
    return render_page(HERE, SCRIPTS, title, {"DATA": as_json(data), "WEIGHTS": "\n".join(weights)})


def _map(map: AttentionMap) -> dict[str, Any]:
    return {
        "kind": map.kind,
        "title": map.title,
        "axes": map.axes,
        "queries": [shown(token) for token in map.queries],
        "keys": [shown(token) for token in map.keys],
        "layers": map.weights.shape[0],
        "firstLayer": map.first_layer,
        "heads": map.weights.shape[1],
        "headNames": list(map.heads),
        "entropy": [[round(bits, 3) for bits in row] for row in entropies(map.weights).tolist()],
        "meanEntropy": [round(bits, 3) for bits in entropies(map.weights.mean(1)).tolist()],
        "maxEntropy": [round(bits, 3) for bits in entropies(map.weights.max(1)).tolist()],
    }
