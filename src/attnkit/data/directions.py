"""Directions of a model of many languages: files, names, sampling. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnkit.text.sources import language_of

_DIRECTION = re.compile(r"[A-Za-z0-9_-]{1,20}:[A-Za-z0-9_-]{1,20}")


class FilePair(NamedTuple):
    """Two line-aligned files, in one direction."""

    src: str
    tgt: str
    direction: str = ""  #: languages, such as ``en:de``; empty: unknown
    number: int = 0  #: index of the files in ``data.src`` and ``data.tgt``: both directions of two files share it

    @property
    def source_language(self) -> str:
        """Code of the source language, empty if unknown."""
        return self.direction.partition(":")[0]

    @property
    def target_language(self) -> str:
        """Code of the target language, empty if unknown."""
        return self.direction.partition(":")[2]


def is_direction(text: str) -> bool:
    """Return whether a text names two languages.

    >>> is_direction("en:de"), is_direction("en-de")
    (True, False)
    """
    return _DIRECTION.fullmatch(text) is not None


def bleu_of(direction: str) -> str:
    """Return the name of the BLEU of one direction, among the metrics of a run.

    >>> bleu_of("en:de")
    'bleu_en_de'
    """
    return f"bleu_{direction.replace(':', '_')}"


def reverse(direction: str) -> str:
    """Return the other direction.

    >>> reverse("en:de")
    'de:en'
    """
    return ":".join(reversed(direction.split(":")))


def name_directions(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the directions that follow from the other keys of ``data``.

    Of bidirectional files and of text to restore in several languages, suffixes are the languages. Validation files
    have the direction of the training files if those have a single one.
    """
    named = dict(data)
    if named.get("denoise") is not None:
        for key, files in (("directions", "src"), ("valid_directions", "valid_src")):
            languages = [language_of(Path(str(name))) for name in named.get(files) or ()]
            found = [f"{language}:{language}" for language in languages]
            several = len(set(found)) > 1 if key == "directions" else named.get("directions") is not None
            if several and named.get(key) is None and all(map(is_direction, found)):
                named[key] = found
    if named.get("bidirectional") is True and named.get("directions") is None:
        sides = zip(named.get("src") or (), named.get("tgt") or (), strict=False)
        found = [f"{language_of(Path(str(src)))}:{language_of(Path(str(tgt)))}" for src, tgt in sides]
        if found and all(map(is_direction, found)):
            named["directions"] = found
    directions, valid = named.get("directions"), named.get("valid_src")
    if isinstance(directions, list | tuple) and isinstance(valid, list | tuple):
        is_single = len(set(map(str, directions))) == 1
        if is_single and named.get("valid_directions") is None:
            named["valid_directions"] = [directions[0]] * len(valid)
    return named


def expand_pairs(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of a configuration with its pairs as files and directions.

    >>> expand_pairs({"pairs": [["en:de", "a.en", "a.de"]]})
    {'directions': ['en:de'], 'src': ['a.en'], 'tgt': ['a.de']}

    Raises ``ValueError`` if a pair is not a direction and two files.
    """
    expanded = {key: value for key, value in data.items() if key not in ("pairs", "valid_pairs")}
    for key, prefix in (("pairs", ""), ("valid_pairs", "valid_")):
        rows = data.get(key)
        if rows is None:
            continue
        is_list = isinstance(rows, list | tuple)
        if not is_list or not all(isinstance(row, list | tuple) and len(row) == 3 for row in rows):
            raise ValueError(f"data.{key} must be a list of lists such as [en:de, a.en, a.de]")
        for place, name in enumerate(("directions", "src", "tgt")):
            expanded[prefix + name] = [row[place] for row in rows]
    return expanded


def temperature_weights(
    directions: Sequence[str], n_pairs: Sequence[int], weights: Sequence[float], temperature: float
) -> list[float]:
    """Return the passes per epoch over each corpus, by the temperature T.

    A direction with a share p of all pairs, counted with their ``weights``, gets a share of the epoch proportional to
    p**(1/T) (Arivazhagan et al. 2019, section 4.2). The epoch keeps its length.

    >>> temperature_weights(["en:de", "de:en", "en:fr"], [600, 300, 100], [1, 1, 1], 1e6)
    [0.555556015723493, 1.1111112612830811, 3.333330121809798]
    """
    sizes = [n * weight for n, weight in zip(n_pairs, weights, strict=True)]
    total = sum(sizes)
    of_direction: dict[str, float] = {}
    for name, size in zip(directions, sizes, strict=True):
        of_direction[name] = of_direction.get(name, 0.0) + size
    drawn = {name: (size / total) ** (1 / temperature) for name, size in of_direction.items() if size}
    factors = {name: share / sum(drawn.values()) * total / of_direction[name] for name, share in drawn.items()}
    return [weight * factors.get(name, 0.0) for name, weight in zip(directions, weights, strict=True)]
