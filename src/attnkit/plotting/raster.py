"""A figure as PNG: drawn by numpy, packed by zlib, so that a picture for a paper needs no plotting library."""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnkit.plotting.figure import Figure, Text
from attnkit.plotting.strokes import EM, glyph, known, measure

MOST_PIXELS = 100_000_000
"""Of a picture; each takes three bytes of memory."""
_INK = np.array([27, 31, 36], np.float64)
_THIN, _THICK = 1.15, 1.8
"""Width of a stroke in units."""

Pixels = NDArray[np.uint8]
"""(height, width, 3)."""


SCALE = 2.0
"""Pixels for one of the figure."""


def to_png(figure: Figure, scale: float = SCALE) -> bytes:
    """Return a figure as PNG with ``scale`` pixels for one of the figure's.

    Raises:
        ValueError: It would have more than ``MOST_PIXELS``.
    """
    width, height = round(figure.width * scale), round(figure.height * scale)
    if width * height > MOST_PIXELS:
        raise ValueError(f"a picture of {width:,} x {height:,} pixels is too large")
    pixels = np.full((height, width, 3), 255, np.uint8)
    for box in figure.boxes:
        left, upper = round(box.x * scale), round(box.y * scale)
        right, lower = round((box.x + box.width) * scale), round((box.y + box.height) * scale)
        pixels[upper:lower, left:right] = [int(box.fill[i : i + 2], 16) for i in (1, 3, 5)]
    for text in figure.texts:
        _write(pixels, text, scale)
    return _pack(pixels, scale)


def unknown_signs(figure: Figure) -> list[str]:
    """Return the signs in a figure that a PNG shows as boxes with their numbers, each once."""
    return sorted({char for text in figure.texts for char in text.text if not known(char)})


def _write(pixels: Pixels, text: Text, scale: float) -> None:
    """Draw a line of text over what is there."""
    unit = text.size * scale / EM
    ink = _line(text.text, unit, _THICK if text.strong else _THIN)
    if not ink.size:
        return
    width, above = measure(text.text) * unit, 13 * unit  # the line stands 3 units below the top of its ink
    before = {"start": 0.0, "middle": width / 2, "end": width}[text.anchor]
    x, y = text.x * scale, text.y * scale
    if text.turned:
        ink, left, upper = np.rot90(ink), x - above, y + before - ink.shape[1]
    else:
        left, upper = x - before, y - above
    _blend(pixels, ink, round(left), round(upper))


def _blend(pixels: Pixels, ink: NDArray[np.float64], left: int, upper: int) -> None:
    height, width = pixels.shape[:2]
    x0, y0 = max(left, 0), max(upper, 0)
    x1, y1 = min(left + ink.shape[1], width), min(upper + ink.shape[0], height)
    if x0 >= x1 or y0 >= y1:
        return
    share = ink[y0 - upper : y1 - upper, x0 - left : x1 - left, None]
    old = pixels[y0:y1, x0:x1]
    pixels[y0:y1, x0:x1] = np.rint(old * (1 - share) + _INK * share).astype(np.uint8)


def _line(text: str, unit: float, thickness: float) -> NDArray[np.float64]:
    """Return how much ink (0 to 1) is on each pixel of a line, from 3 units above a capital to 4 below the line."""
    ink = np.zeros((int(np.ceil(17 * unit)) + 2, int(np.ceil((measure(text) + 2) * unit)) + 2))
    x = 0.0
    for char in text:
        drawn = _glyph_ink(char, unit, thickness)
        left = round(x)
        ink[:, left : left + drawn.shape[1]] = np.maximum(ink[:, left : left + drawn.shape[1]], drawn)
        x += glyph(char)[1] * unit
    return ink


@lru_cache(maxsize=4096)
def _glyph_ink(char: str, unit: float, thickness: float) -> NDArray[np.float64]:
    """Return the ink of one character: how far the middle of each pixel lies from the nearest stroke decides."""
    strokes, width = glyph(char)
    shape = int(np.ceil(17 * unit)) + 2, int(np.ceil(width * unit)) + 1
    if not strokes:
        return np.zeros(shape)
    corner = np.array([0.8, 3.0])
    begins = np.concatenate([stroke[:-1] for stroke in strokes]) + corner
    ends = np.concatenate([stroke[1:] for stroke in strokes]) + corner
    y, x = np.mgrid[0.5 : shape[0] + 0.5, 0.5 : shape[1] + 0.5][:, : shape[0], : shape[1]] / unit
    points = np.stack([x, y], -1)[..., None, :]  # (height, width, 1, 2)
    along = ends - begins
    length = np.maximum((along**2).sum(-1), 1e-12)
    place = np.clip(((points - begins) * along).sum(-1) / length, 0, 1)
    distance = np.sqrt(((points - begins - place[..., None] * along) ** 2).sum(-1)).min(-1)
    return np.asarray(np.clip((thickness / 2 - distance) * unit + 0.5, 0, 1))


def _pack(pixels: Pixels, scale: float) -> bytes:
    """Return pixels as a PNG file: 8 bits a colour, no filter, which suits flat areas."""
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    density = round(scale * 96 / 0.0254)  # pixels a metre
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"pHYs": struct.pack(">IIB", density, density, 1),
        b"IDAT": zlib.compress(rows.tobytes(), 9),
        b"IEND": b"",
    }
    framed = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
