"""HTML page of ``attnkit attend``, with weights as compressed Base64."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, BeamNode, display_text, entropies
from attnkit.plotting.html import as_json, render_page
from attnkit.protocols import Unit

HERE = "attnkit.plotting.html.attention"
SCRIPTS = ("read.js", "units.js", "matrix.js", "lines.js", "overview.js", "tree.js", "main.js")
"""Files of the page's script, in order."""
MOST, LEAST = 4, 2  #: maximum and minimum number of decimals of a weight
ROOM = 3_800_000
"""Bytes for weights in a page of at most 4 MB; may be exceeded even with the minimum number of decimals."""


def pack(map: AttentionMap, digits: int) -> str:
    """Return rounded weights and head means (L, H + 1, T, S) as compressed Base64."""
    rows = np.nan_to_num(np.asarray(map.weights, np.float64), nan=0.0, posinf=6.5, neginf=0.0)
    rows = np.concatenate([rows, rows.mean(1, keepdims=True)], 1)
    numbers = np.clip(np.rint(rows * 10**digits), 0, 65_535).astype("<u2")
    # Stored separately, the nearly constant high bytes compress to almost nothing.
    planes = numbers.reshape(-1).view(np.uint8).reshape(-1, 2).T.tobytes()
    return base64.b64encode(zlib.compress(planes, 6)).decode("ascii")


def pack_all(maps: Sequence[AttentionMap], room: int = ROOM) -> list[tuple[int, str]]:
    """Pack maps with as many decimals as fit in ``room``, favouring earlier maps."""
    finest = [pack(map, MOST) for map in maps]
    if sum(len(text) for text in finest) <= room:
        return [(MOST, text) for text in finest]
    chosen = [(LEAST, pack(map, LEAST)) for map in maps]
    used = sum(len(text) for _, text in chosen)
    for digits in range(LEAST + 1, MOST + 1):
        for i, map in enumerate(maps):
            finer = finest[i] if digits == MOST else pack(map, digits)
            more = len(finer) - len(chosen[i][1])
            if used + more <= room and chosen[i][0] == digits - 1:
                chosen[i], used = (digits, finer), used + more
    return chosen


def build_page(
    sentences: Sequence[AttentionExample], facts: Mapping[str, str], unit: Unit = "character", special: bool = True
) -> str:
    """Return an HTML page of the attention maps; ``facts`` describe their origin.

    ``unit`` and ``special`` (whether special tokens are shown) are what the page shows first.
    The content security policy of the page forbids requests, other scripts and markup created from text. Tokens are
    embedded as JSON in which markup characters are escaped.
    """
    packed = pack_all([map for sentence in sentences for map in sentence.maps])
    data = {
        "facts": [[name, display_text(text)] for name, text in facts.items()],
        "sentences": [
            {
                "source": display_text(sentence.source),
                "target": display_text(sentence.target),
                "sides": list(sentence.sides),
                "facts": [
                    [name.replace("_", " "), f"{value:.4f}" if isinstance(value, float) else display_text(str(value))]
                    for name, value in sentence.facts.items()
                ],
                "maps": [_map(map) for map in sentence.maps],
                "tree": [_node(branch) for branch in sentence.tree],
            }
            for sentence in sentences
        ],
        "unit": unit,
        "special": special,
        "digits": [digits for digits, _ in packed],
    }
    weights = [f'<script type="text/plain" id="weights-{i}">{text}</script>' for i, (_, text) in enumerate(packed)]
    first = display_text(sentences[0].source) if sentences else ""
    title = f"Attention: {first[:60]}{'…' if len(first) > 60 else ''}"
    return render_page(HERE, SCRIPTS, title, {"DATA": as_json(data), "WEIGHTS": "\n".join(weights)})


def _node(branch: BeamNode) -> dict[str, Any]:
    return vars(branch) | {"token": display_text(branch.token), "text": display_text(branch.text or branch.token)}


def _map(map: AttentionMap) -> dict[str, Any]:
    return {
        "kind": map.kind,
        "title": map.title,
        "axes": map.axes,
        "queries": [display_text(token) for token in map.queries],
        "keys": [display_text(token) for token in map.keys],
        "runs": _runs(map),
        "layers": map.weights.shape[0],
        "firstLayer": map.first_layer,
        "heads": map.weights.shape[1],
        "headNames": list(map.heads),
        "entropy": [[round(bits, 3) for bits in row] for row in entropies(map.weights).tolist()],
        "meanEntropy": [round(bits, 3) for bits in entropies(map.weights.mean(1)).tolist()],
        "maxEntropy": [round(bits, 3) for bits in entropies(map.weights.max(1)).tolist()],
    }


def _runs(map: AttentionMap) -> dict[str, Any] | None:
    """Return the runs and special tokens of queries and keys; None if unknown."""
    if map.query_runs is None or map.key_runs is None:
        return None
    return {
        side: {
            # Empty if no token shares its character with another.
            "character": [[display_text(text), n] for text, n in runs.characters] if joined else [],
            "word": [[display_text(text), n] for text, n in runs.words],
            "special": [i for i, special in enumerate(runs.special) if special],
        }
        for side, runs in (("queries", map.query_runs), ("keys", map.key_runs))
        for joined in [any(n > 1 for _, n in (*map.query_runs.characters, *map.key_runs.characters))]
    }
