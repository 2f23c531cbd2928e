"""Lines of a side in a third language: neither its own nor that of the other side.

1. Function words: the log-odds of a line's words, by the list of a language, against their frequencies in the side.
   Lines with high odds are seeds.
2. Trigrams: those of the lines found so far, mixed with those of the side, against those of the side. Each line is left
   out of what it is compared with. They find lines without function words.
3. Function words again, against the frequencies in the rest of the side. Lines that are another kind of text and not
   another language, such as code or tables, do not have them, and nothing is found.

Many foreign lines make their words usual. If nothing is found, most occurrences of words that are not in the list of
the side's language are presumed to be theirs. Sides that are not recognized as two different languages are not judged.

Letters: N lines, W words found in a list, L languages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnkit.quality.language_names import FUNCTION_WORDS, SCRIPT_OF, find_language, name_of
from attnkit.quality.languages import SIZE, mean_scores, trigrams
from attnkit.quality.lines import Floats, Ints

MIN_ODDS = 12.0  #: nats in favour of a third language
_SAMPLE = 25_000  # lines in which seeds are sought
_MIN_SEED = 8.0  # nats of the words of a seed
_MIN_SEEDS = 5
_MIN_KNOWN, _MIN_WORD = 0.6, 4.0  # share of lines found that have words of a language, and nats of these
_DOUBT = 0.7  # share of the occurrences of a word that may be in foreign lines, if there are many
_MIN_DOUBTED = 0.05  # share of lines that are many
_WORD_SHARE = 0.35  # of words of text that are in the list of its language
_MAX_WORD, _MAX_TRIGRAM = 5.0, 4.0  # nats
_MIN_MEAN = 0.3  # nats per trigram: a long line of the side may have many that are hardly odd
_ROUNDS = 4
_UNNAMED = "another language"
_WORD = re.compile(r"[^\W\d_]+")


def find_foreign_lines(lines: Sequence[str], other: Sequence[str], explained: Floats) -> tuple[NDArray[np.bool_], str]:
    """Return flags (N,) of lines in a third language, and its name.

    ``other`` are the lines of the other side, ``explained`` (N,) the evidence in nats that a line of this side is in
    that side's language. The name is "another language" if it is unclear.
    """
    flags = np.zeros(len(lines), np.bool_)
    own, theirs = find_language(lines), find_language(other)
    if own not in FUNCTION_WORDS or theirs in (None, own):
        return flags, _UNNAMED
    stride = -(-len(lines) // _SAMPLE)
    sample, least = lines[::stride], np.maximum(explained, MIN_ODDS)
    words = _FunctionWords(sample, own, theirs)
    for doubt, fewest in ((0.0, 0.0), (_DOUBT, _MIN_DOUBTED)):
        odds = words.odds(flags[::stride], doubt)
        seeds = odds >= _MIN_SEED
        if seeds.sum() < _MIN_SEEDS:
            continue
        needed = least[::stride] - np.where(seeds, np.minimum(odds, MIN_ODDS), 0.0)
        found, by_trigram = _grow(sample, seeds, needed)
        known = words.odds(found)[found] >= _MIN_WORD
        if not fewest <= found.mean() <= 0.5 or known.sum() < max(1.0, _MIN_KNOWN * len(known)):
            continue
        if stride > 1:
            means, counts = mean_scores(lines, by_trigram)
            flags = means * counts > np.maximum(least, _MIN_MEAN * counts)
        flags[::stride] = found
        named = find_language([line for line, is_found in zip(sample, found, strict=True) if is_found])
        return flags, _UNNAMED if named in (None, own, theirs) else name_of(named)
    odds = words.odds(flags[::stride])
    if (odds >= _MIN_SEED).sum() < _MIN_SEEDS:
        flags[::stride] = odds >= least[::stride]
    return flags, _UNNAMED


class _FunctionWords:
    """Occurrences in lines of the function words of third languages."""

    def __init__(self, lines: Sequence[str], own: str, other: str) -> None:
        script = SCRIPT_OF.get(own)
        codes = [code for code in FUNCTION_WORDS if SCRIPT_OF.get(code) == script and code not in (own, other)]
        numbers: dict[str, int] = {}
        for code in codes:
            for word in FUNCTION_WORDS[code]:
                numbers.setdefault(word, len(numbers))
        found: list[tuple[int, int]] = []  # word, line
        counts = []
        for line, text in enumerate(lines):
            words = _WORD.findall(text.lower())
            counts.append(len(words))
            found += [(numbers[word], line) for word in words if word in numbers]
        self._words, self._lines = np.array(found, np.int64).reshape(-1, 2).T  # (W,)
        self._n_words = np.array(counts)  # (N,)
        self._expected = np.zeros((len(codes), len(numbers)))  # (L, words of all lists)
        for row, code in zip(self._expected, codes, strict=True):
            known = FUNCTION_WORDS[code]
            row[[numbers[word] for word in known]] = _WORD_SHARE / len(known)
        self._is_own = np.array([word in FUNCTION_WORDS[own] for word in numbers])

    def odds(self, foreign: NDArray[np.bool_], doubt: float = 0.0) -> Floats:
        """Return the log-odds (N,) of lines for the likeliest of the languages.

        They are against the frequencies in the side without its ``foreign`` lines (N,), of which a share of ``doubt``
        may be foreign too, for words that are not in the list of the side's language.
        """
        known = self._words[~foreign[self._lines]]
        usual = (np.bincount(known, minlength=self._expected.shape[1]) + 0.5) / (self._n_words[~foreign].sum() + 100)
        usual *= np.where(self._is_own, 1.0, 1.0 - doubt)
        # A third of the words of a line may be those of its side: names, and words that the languages share.
        values = np.log((self._expected + 0.3 * usual + 1e-5) / (usual + 1e-5)).clip(-_MAX_WORD, _MAX_WORD)
        n = len(self._n_words)
        best: Floats = np.full(n, -np.inf)
        for of_language in values:
            best = np.maximum(best, np.bincount(self._lines, of_language[self._words], n))
        return best


def _grow(lines: Sequence[str], seeds: NDArray[np.bool_], least: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Return the lines (N,) like the seeds, and the log-odds of trigrams.

    ``least`` are the odds (N,) that each line needs.
    """
    ids, owner = trigrams(lines)
    sizes = np.bincount(owner, minlength=len(lines))
    total = np.bincount(ids, minlength=SIZE)
    found = seeds
    for _ in range(_ROUNDS):
        is_found = found[owner]
        counts: Ints = np.bincount(ids[is_found], minlength=SIZE)
        usual = (total - counts + 1) / ((total - counts).sum() + SIZE)
        others = counts.sum() - np.where(is_found, sizes[owner], 0)  # without the line itself
        odds = _mixture((counts[ids] - is_found) / np.maximum(others, 1) / usual[ids])
        now = np.bincount(owner, odds, len(lines)) > np.maximum(least, _MIN_MEAN * sizes)
        if (now == found).all():
            break
        found = now
    return found, _mixture(counts / max(1, counts.sum()) / usual)


def _mixture(ratios: Floats) -> Floats:
    """Return log-odds of an equal mixture of foreign and usual trigrams."""
    odds: Floats = np.minimum(np.log(0.5 + 0.5 * ratios), _MAX_TRIGRAM)
    return odds
