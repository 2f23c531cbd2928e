"""Put the page of ``attend`` together: everything that there is to show, as data of ``views.frame``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, entropies, shown
from attnkit.plotting.html import as_json, render_page
from attnkit.plotting.html.attention.pack import Packed, pack_all

HERE = "attnkit.plotting.html.attention"
SCRIPTS = ("read.js", "matrix.js", "lines.js", "overview.js", "tree.js", "main.js")
"""Parts of the one script, in their order."""


def build_page(sentences: Sequence[AttentionExample], facts: Mapping[str, str]) -> str:
    """Return an HTML document that shows the sentences; ``facts`` says what made them, in words.

    Nothing in it leads elsewhere, and a policy in it forbids that anything could: no request, no further script, no
    markup from text. Tokens stand in it as JSON in which no sign can end the element that holds them.
    """
    maps = [map for sentence in sentences for map in sentence.maps]
    packed = pack_all(maps)
    data = {
        "facts": [[name, shown(text)] for name, text in facts.items()],
        "sentences": [_sentence(sentence) for sentence in sentences],
        "digits": [each.digits for each in packed],
    }
    weights = "\n".join(_weights(number, each) for number, each in enumerate(packed))
    return render_page(HERE, SCRIPTS, _title(sentences), {"DATA": as_json(data), "WEIGHTS": weights})


def _sentence(sentence: AttentionExample) -> dict[str, Any]:
    return {
        "source": shown(sentence.source),
        "target": shown(sentence.target),
        "sides": list(sentence.sides),
        "facts": [[name.replace("_", " "), _said(value)] for name, value in sentence.facts.items()],
        "maps": [_map(map) for map in sentence.maps],
        "tree": [vars(branch) | {"token": shown(branch.token)} for branch in sentence.tree],
    }


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


def _said(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else shown(str(value))


def _weights(number: int, packed: Packed) -> str:
    return f'<script type="text/plain" id="weights-{number}">{packed.text}</script>'


def _title(sentences: Sequence[AttentionExample]) -> str:
    first = shown(sentences[0].source) if sentences else ""
    return f"Attention: {first[:60]}{'…' if len(first) > 60 else ''}"
