"""Profile of the training pairs: what is usual of their text and lengths.

It is learned once, from a sample. Every limit is one that about a thousandth of the training pairs exceeds. A
translator flags lines beyond the limits.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator

from attnkit.quality.languages import SCRIPTS, SIZE, Trigrams, count_scripts, mean_scores
from attnkit.quality.repetition import count_repeats

MIN_PAIRS = 100  #: training pairs below which nothing is learned
MAX_CHARACTERS = 1 << 16  #: different characters above which they are not recorded
MAX_WORDS_SAMPLE = 10_000  #: pairs whose words are compared
SIZES = (4, 8, 16, 32, 64, 128)  #: characters of the stretches that thresholds are learned from
BINS = (1, 4, 8, 16, 32, 64)  #: source tokens at which a new range of length ratios begins
_RARE = 0.001  #: share of training pairs beyond a limit
_STEPS = 16  # of a stored log-probability, per nat
_MIN_SCRIPT = 0.01  # share of letters of a script that counts as known
_MARGIN = 1.1  # of ratios of lengths beyond what was seen
_MAX_EXACT = 0.01  # share of pairs with equal sides above which a copy is no sign
_MIN_WORDS = 3  # of a translation whose words are compared with those of its source

Finite = Annotated[float, Field(allow_inf_nan=False)]


class TrainingProfile(BaseModel):
    """What is usual of training pairs; fields that are None or empty say nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    characters: Annotated[str, Field(max_length=MAX_CHARACTERS)] = ""
    """Characters of the source text, normalized, in the order of their numbers."""
    scripts: Annotated[list[str], Field(max_length=len(SCRIPTS))] = []
    """Scripts of at least one letter in a hundred."""
    trigrams: Annotated[list[str], Field(max_length=2)] = []
    """Log-probabilities of hashed character trigrams of source and target text.

    A byte each, in Base64: sixteenths of a nat below 0.
    """
    least_likely: Annotated[list[Finite], Field(max_length=len(SIZES))] = []
    """Lowest usual mean log-probability of source stretches of ``SIZES`` characters."""
    least_likely_source: Annotated[list[Finite], Field(max_length=len(SIZES))] = []
    """Lowest usual difference to their mean log-probability by the trigrams of the target text."""
    source_tokens: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] | None = None
    """Lowest and highest usual number of tokens of a source line."""
    ratios: Annotated[list[tuple[Finite, Finite]], Field(max_length=len(BINS))] = []
    """Lowest and highest usual ratio of target to source tokens, EOS included, for each of ``BINS``."""
    repeats: Annotated[int, Field(ge=2)] = 4
    """Repetitions in a row, of one to eight words, that are unusual in a target line."""
    copied: Annotated[float, Field(ge=0, le=1)] | None = 1.0
    """Share of the words of a target line that are in its source above which it is a copy; None: copies are usual."""

    @field_validator("trigrams")
    @classmethod
    def _has_all_trigrams(cls, texts: list[str]) -> list[str]:
        if any(len(base64.b64decode(text, validate=True)) != SIZE for text in texts):
            raise ValueError(f"{SIZE} trigrams are expected")
        return texts

    @cached_property
    def known(self) -> frozenset[str]:
        """Characters of the source text."""
        return frozenset(self.characters)

    @cached_property
    def log_probs(self) -> list[NDArray[np.float64]]:
        """Log-probabilities of hashed trigrams of both sides, (SIZE,) each, or none."""
        if len(self.trigrams) != 2 or not len(self.least_likely) == len(self.least_likely_source) == len(SIZES):
            return []
        return [np.frombuffer(base64.b64decode(text), np.uint8) / -float(_STEPS) for text in self.trigrams]

    def unlikely(self, lines: Sequence[str]) -> NDArray[np.bool_]:
        """Return which lines (N,) are unlike the source text by script or trigrams.

        Lines whose trigrams are much more those of the target text are, too.
        """
        found = np.zeros(len(lines), np.bool_)
        if not self.log_probs or not len(lines):
            return found
        source, target = self.log_probs
        for values, limits in ((source, self.least_likely), (source - target, self.least_likely_source)):
            means, counts = mean_scores(lines, values)
            found |= means < np.interp(np.log(np.maximum(counts, 1)), np.log(SIZES), limits)
        found &= counts >= SIZES[0]
        others = [i for i, name in enumerate(SCRIPTS) if name not in self.scripts]
        wide = [i for i, line in enumerate(lines) if not line.isascii()]  # letters of ASCII are Latin
        if "Latin" not in self.scripts:
            wide = list(range(len(lines)))
        letters = count_scripts([lines[i] for i in wide])
        found[wide] |= 2 * letters[:, others].sum(1) > letters.sum(1)
        return found

    def ratio_limits(self, n_source: int) -> tuple[float, float] | None:
        """Return the usual ratios of target to source tokens, EOS included."""
        return self.ratios[bisect_right(BINS, n_source) - 1] if len(self.ratios) == len(BINS) and n_source else None


def learn_profile(
    pairs: Sequence[tuple[str, str]],
    lengths: Sequence[tuple[int, int]],
    characters: set[str],
    normalize: Callable[[str], str],
) -> TrainingProfile:
    """Learn a profile from a sample of training pairs and their numbers of tokens.

    ``characters`` are those of all source lines, ``normalize`` is that of the source vocabulary.
    """
    if len(pairs) < MIN_PAIRS:
        return TrainingProfile()
    sources, targets = zip(*pairs, strict=True)
    known = {other for character in characters for other in normalize(character)}
    letters = count_scripts(sources).sum(0)
    n_tokens, least_likely = np.array(lengths, np.int64), _least_likely(sources, targets)  # (N, 2), ...
    stride = -(-len(pairs) // MAX_WORDS_SAMPLE)
    words = [(src.casefold().split(), tgt.casefold().split()) for src, tgt in pairs[::stride]]
    return TrainingProfile(
        characters="".join(sorted(known)) if len(known) <= MAX_CHARACTERS else "",
        scripts=[name for name, n in zip(SCRIPTS, letters, strict=True) if n > _MIN_SCRIPT * letters.sum()],
        trigrams=[_encode(Trigrams(side)) for side in (sources, targets)],
        least_likely=[low for low, _ in least_likely],
        least_likely_source=[low for _, low in least_likely],
        source_tokens=_range(n_tokens[:, 0], _RARE / 2),
        ratios=_ratios(n_tokens),
        repeats=_usual_repeats([count_repeats(tgt) for _, tgt in words]),
        copied=_usual_copies(words),
    )


def copied_share(source: Sequence[str], words: Sequence[str]) -> float:
    """Return the share of words that are in the source, each as often as there.

    >>> copied_share("a dog runs".split(), "a dog dog".split())
    0.6666666666666666
    """
    if len(words) < _MIN_WORDS:
        return float(list(source) == list(words))
    return sum((Counter(source) & Counter(words)).values()) / len(words)


def _range(values: NDArray[np.int64], share: float) -> tuple[int, int]:
    low, high = np.quantile(values, (share, 1 - share), method="inverted_cdf")
    return int(low), int(high)


def _encode(model: Trigrams) -> str:
    codes = np.rint(np.clip(-_STEPS * model.log_probs, 0, 255)).astype(np.uint8)
    return base64.b64encode(codes.tobytes()).decode()


def _least_likely(sources: Sequence[str], targets: Sequence[str]) -> list[tuple[float, float]]:
    """Return thresholds for ``SIZES``, of half of the sources by the other half.

    The first is of the mean log-probability, the second of its difference to that of the target text. Lines are often
    of one length, so thresholds of other lengths are those of stretches of words.
    """
    own, foreign, others = Trigrams(sources[::2]).log_probs, Trigrams(targets[::2]).log_probs, sources[1::2]
    draw = np.random.default_rng(0)
    found: list[tuple[float, float]] = []
    for size in SIZES:
        stretches = [_stretch(line, size, place) for line, place in zip(others, draw.random(len(others)), strict=True)]
        (means, counts), (differences, _) = (mean_scores(stretches, values) for values in (own, own - foreign))
        chosen = counts >= size / 2
        if chosen.sum() < MIN_PAIRS // 4:
            if found:  # lines are shorter
                found.append(found[-1])
                continue
            chosen[:] = True
        # Half a nat below the lowest of a small sample, whose quantile says little.
        spare = 0.5 * min(1.0, MIN_PAIRS / int(chosen.sum()))
        low, difference = (float(np.quantile(values[chosen], _RARE)) - spare for values in (means, differences))
        found.append((round(low, 3), round(difference, 3)))
    return found


def _stretch(line: str, size: int, place: float) -> str:
    """Return words of at least ``size`` characters from a place (0 to 1) of a line."""
    begin = line.rfind(" ", 0, int(place * max(0, len(line) - size)) + 1) + 1
    end = line.find(" ", begin + size)
    return line[begin:] if end < 0 else line[begin:end]


def _ratios(lengths: NDArray[np.int64]) -> list[tuple[float, float]]:
    """Return the usual ratios of target to source tokens in each of ``BINS``."""
    ratios, bins = (lengths[:, 1] + 1) / (lengths[:, 0] + 1), np.searchsorted(BINS, lengths[:, 0], side="right") - 1
    counts = [int((bins == i).sum()) for i in range(len(BINS))]
    enough = [i for i, n in enumerate(counts) if n >= MIN_PAIRS] or [max(range(len(BINS)), key=counts.__getitem__)]
    found = []
    for i in range(len(BINS)):
        nearest = min(enough, key=lambda j: abs(j - i))
        low, high = np.quantile(ratios[bins == nearest], (_RARE, 1 - _RARE))
        found.append((round(float(low / _MARGIN), 4), round(float(high * _MARGIN), 4)))
    return found


def _usual_repeats(counts: Sequence[int]) -> int:
    """Return the smallest number of repetitions, 2 to 4, that is rare."""
    return next((n for n in (2, 3) if sum(count >= n for count in counts) <= _RARE * len(counts)), 4)


def _usual_copies(words: Sequence[tuple[list[str], list[str]]]) -> float | None:
    """Return the share of copied words above which a line is a copy, 0.5 to 1."""
    if sum(src == tgt for src, tgt in words) > _MAX_EXACT * len(words):
        return None
    shares = [copied_share(src, tgt) for src, tgt in words if len(tgt) >= _MIN_WORDS]
    usual = float(np.quantile(shares, 1 - _RARE)) if shares else 1.0
    return min(1.0, max(0.5, math.ceil(1e4 * usual) / 1e4))  # rounded up: shares of few words are often equal
