"""HTML page of projected word vectors; its scripts are in the same folder."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.plotting.attention_maps import display_text
from attnkit.plotting.html import as_json, escape, render_page
from attnkit.plotting.html.chart import MAX_DOTS, scatter

HERE = "attnkit.plotting.html.projection"
SCRIPTS = ("vectors.js", "map.js", "main.js")  #: files of the page's script, in order
SPAN = 65_535  #: largest coordinate, on the longer side of the map
_BLOCK = 4096  # rows


@dataclass(frozen=True, repr=False)
class Projection:
    """V words with 2-D positions, and D-dimensional vectors for nearest neighbours."""

    words: Sequence[str]  #: most frequent first; labels are placed in this order
    points: NDArray[np.float64]  #: (V, 2)
    vectors: NDArray[np.float32]  #: (V, D), not necessarily normalized
    note: str  #: meaning of the two dimensions, as a sentence
    facts: Mapping[str, str]  #: description of model and method: name -> text

    def __repr__(self) -> str:
        return f"Projection({'; '.join(f'{name}: {text}' for name, text in self.facts.items())})"

    def to_dict(self) -> dict[str, Any]:
        """Return words, positions, note and facts as plain data, without the vectors."""
        points = {"words": list(self.words), "points": self.points.tolist()}
        return {**points, "note": self.note, "facts": dict(self.facts)}

    def page(self) -> str:
        """Return the searchable page of ``attnkit word2vec project``, as HTML."""
        return build_projection(self)

    def _repr_html_(self) -> str:
        """Return the map for a notebook, without scripts."""
        quiet = "font-size:12px;opacity:0.75"
        facts = "; ".join(f"{name}: {text}" for name, text in self.facts.items())
        more = len(self.words) - MAX_DOTS
        note = self.note if more <= 0 else f"{self.note} The first {MAX_DOTS:,} words are shown."
        lines = "".join(f'<div style="{quiet}">{escape(display_text(text))}</div>' for text in (facts, note))
        drawn = scatter(self.points, self.words, "Word vectors in two dimensions")
        return f'<div style="font-family:system-ui,sans-serif">{lines}{drawn}</div>'


def build_projection(projection: Projection) -> str:
    """Return a self-contained HTML page of the projection, with all words escaped."""
    x, y = coordinates(projection.points).T.tolist()
    numbers = quantised(projection.vectors)
    error = largest_error(projection.vectors, numbers)
    data = {
        "facts": [[name, display_text(text)] for name, text in projection.facts.items()],
        "note": display_text(projection.note),
        "exactness": "Cosines use vectors quantized to integers from -127 to 127; the largest error found against the "
        f"exact cosines is {error:.4f}.",
        "words": [display_text(word) for word in projection.words],
        "x": x,
        "y": y,
        "width": numbers.shape[1],
    }
    parts = {"DATA": as_json(data), "VECTORS": packed(numbers)}
    return render_page(HERE, SCRIPTS, "Word vectors in two dimensions", parts)


def coordinates(points: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return points (V, 2) as integers from 0 to ``SPAN``, with equal axis scales."""
    low = points.min(0)
    longest = float((points.max(0) - low).max())
    found: NDArray[np.int64] = np.rint((points - low) * (SPAN / longest if longest > 0 else 0.0)).astype(np.int64)
    return found


def quantised(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Quantize each row to -127..127; cosines are preserved up to rounding."""
    found = np.empty(vectors.shape, np.int8)
    for start in range(0, len(vectors), _BLOCK):
        rows = np.asarray(vectors[start : start + _BLOCK], np.float64)
        largest = np.abs(rows).max(1, keepdims=True)
        found[start : start + _BLOCK] = np.rint(rows * (127 / np.where(largest > 0, largest, 1.0)))
    return found


def packed(numbers: NDArray[np.int8]) -> str:
    """Return integers as compressed Base64."""
    return base64.b64encode(zlib.compress(numbers.tobytes(), 6)).decode("ascii")


def largest_error(vectors: NDArray[np.float32], numbers: NDArray[np.int8], n_rows: int = 64) -> float:
    """Return the largest cosine error of quantization, for ``n_rows`` rows with all."""
    some = np.linspace(0, len(vectors) - 1, min(n_rows, len(vectors))).astype(np.int64)
    worst = 0.0
    for start in range(0, len(vectors), _BLOCK):
        part = slice(start, start + _BLOCK)
        true, kept = (unit(rows[some]) @ unit(rows[part]).T for rows in (vectors, numbers))
        worst = max(worst, float(np.abs(true - kept).max()))
    return worst


def unit(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return rows normalized to unit length; all-zero rows stay zero."""
    exact = np.asarray(rows, np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return exact / np.where(lengths > 0, lengths, 1.0)
