"""Phrases: the scores of neighbouring words, and the file format of phrases.

Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their Compositionality", section 4, and
Bouma 2009, "Normalized (Pointwise) Mutual Information in Collocation Extraction".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import RunError
from attnkit.io.safe_read import parse_json, read_regular_file
from attnkit.text.config import PhrasesConfig

FILE = "phrases.tsv"  #: file name of the phrases of an encoded text
MAX_BYTES = 1 << 30
_HEAD = "# attnkit phrases 1 "
_MAKE = "create one: attnkit word2vec phrases FILE --save phrases.tsv"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def score(config: PhrasesConfig, pairs: Ints, first: Ints, second: Ints, n_words: int) -> Floats:
    """Return the scores of word pairs from the counts of the pairs and their words.

    Pairs rarer than ``config.min_count`` score minus infinity. For example, with n_words = 1000 and min_count = 5, a
    pair with count 15 whose words have counts 20 and 25 has the count score (15 - 5) * 1000 / (20 * 25) = 20.
    """
    enough = pairs >= config.min_count
    if config.scoring == "count":
        scores = (pairs - config.min_count) * (n_words / (first.astype(np.float64) * second))
    else:
        together = np.log(np.maximum(pairs, 1) / n_words)
        apart = np.log(first / n_words) + np.log(second / n_words)
        scores = np.where(together < 0, (together - apart) / np.where(together < 0, -together, 1.0), 1.0)
    return np.where(enough, scores, -np.inf)


@dataclass(frozen=True)
class ScoredPhrase:
    """A phrase: neighbouring words to join into one."""

    parts: tuple[str, ...]  #: two words, or phrases of an earlier pass, with the connectors between them
    score: float
    count: int  #: number of occurrences side by side


@dataclass(frozen=True)
class Phrases:
    """Phrases found in a text, which can be joined in any text."""

    config: PhrasesConfig
    lower: bool  #: whether the text was lower-cased
    passes: tuple[tuple[ScoredPhrase, ...], ...]

    def __len__(self) -> int:
        return sum(map(len, self.passes))

    def to_text(self) -> str:
        """Format as text: a JSON header, then tab-separated pass, score, count, parts."""
        lines = [_HEAD + json.dumps({**self.config.model_dump(mode="json"), "lower": self.lower}, ensure_ascii=False)]
        for number, phrases in enumerate(self.passes, 1):
            lines += [f"{number}\t{phrase.score:.6g}\t{phrase.count}\t{' '.join(phrase.parts)}" for phrase in phrases]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str, *, where: str = FILE) -> Phrases:
        """Parse the text of ``to_text``; raise ``RunError`` at the first invalid line."""
        head, *lines = text.removesuffix("\n").split("\n")
        try:
            tree = parse_json(head.removeprefix(_HEAD).encode())
            lower = tree.pop("lower")
            if not head.startswith(_HEAD) or not isinstance(lower, bool):
                raise ValueError
            config = PhrasesConfig.model_validate_json(json.dumps(tree))
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"{where} is not an attnkit phrase file", where=f"{where}:1", help=_MAKE) from error
        passes: list[list[ScoredPhrase]] = [[] for _ in range(config.passes)]
        for number, line in enumerate(lines, 2):
            try:
                place, value, count, words = line.split("\t")
                parts = tuple(words.split(" "))
                if len(parts) < 2 or not all(parts) or not 1 <= int(place) <= config.passes:
                    raise ValueError
                passes[int(place) - 1].append(ScoredPhrase(parts, float(value), int(count)))
            except ValueError as error:
                raise RunError("this line is not a phrase", where=f"{where}:{number}") from error
        return cls(config, lower, tuple(map(tuple, passes)))


def load(path: Path) -> Phrases:
    """Load a phrase file; raise ``RunError`` if it is missing or damaged."""
    try:
        text = read_regular_file(path, min(MAX_BYTES, path.stat().st_size), follow=True).decode("utf-8")
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read phrases from {path}: {error}", help=_MAKE) from error
    return Phrases.from_text(text, where=str(path))
