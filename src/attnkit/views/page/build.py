"""Put the page together: its frame, style and script by their hashes, its data as JSON that cannot become markup."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from attnkit.views.figure import escape
from attnkit.views.maps import Map, Sentence, entropies, shown
from attnkit.views.page.pack import Packed, pack_all

SCRIPTS = ("read.js", "matrix.js", "lines.js", "overview.js", "tree.js", "main.js")
"""Parts of the one script, in their order."""


def build_page(sentences: Sequence[Sentence], facts: Mapping[str, str]) -> str:
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
    style, script = _part("page.css"), _script()
    policy = (
        "default-src 'none'; "
        f"script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'"
    )
    frame = _part("page.html")
    parts = {
        "POLICY": escape(policy),
        "TITLE": escape(_title(sentences)),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": as_json(data),
        "WEIGHTS": "\n".join(_weights(number, each) for number, each in enumerate(packed)),
    }
    # Each place stands once in the frame, and what is put in is never looked at again.
    pieces = frame.split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def as_json(data: Any) -> str:
    """Return JSON of ASCII alone in which no sign begins or ends markup."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sentence(sentence: Sentence) -> dict[str, Any]:
    return {
        "source": shown(sentence.source),
        "target": shown(sentence.target),
        "sides": list(sentence.sides),
        "facts": [[name.replace("_", " "), _said(value)] for name, value in sentence.facts.items()],
        "maps": [_map(map) for map in sentence.maps],
        "tree": [vars(branch) | {"token": shown(branch.token)} for branch in sentence.tree],
    }


def _map(map: Map) -> dict[str, Any]:
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


def _title(sentences: Sequence[Sentence]) -> str:
    first = shown(sentences[0].source) if sentences else ""
    return f"Attention: {first[:60]}{'…' if len(first) > 60 else ''}"


def _script() -> str:
    body = "\n".join(_part(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{body}}})();\n'


def _part(name: str) -> str:
    return files("attnkit.views.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
