"""Words of sentence pairs that translate each other, by IBM Model 1 both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnkit.kernels.ibm1 import AlignmentCorpus, em_step, fastest, init_table
from attnkit.text.word_boundaries import find_tokens
from attnkit.text.word_forms import MIN_STEM, is_inflected

MAX_PAIRS = 200_000  #: pairs of lines that are learned from
_ITERATIONS = 5
_MIN_PROB = 0.2  # of a translation in each direction
_MIN_VARIANT = 0.02  # probability of another form of a translation
_N_FREQUENT = 100  # most frequent source words, mostly function words, are left out
_MAX_WORDS = 100  # of a line that is learned from
_MIN_COUNT = 2

Span = tuple[int, int]


class AlignedWords(NamedTuple):
    """A source word and its translation, as begin and end in their lines."""

    source: Span
    target: Span


class WordPairs:
    """Finds words that translate each other, learned from pairs of lines."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Learn from at most ``MAX_PAIRS`` pairs."""
        sides = [[_words(pair[side]) for pair in pairs[:MAX_PAIRS]] for side in (0, 1)]
        usable = [k for k, both in enumerate(zip(*sides, strict=True)) if max(map(len, both)) <= _MAX_WORDS]
        sides = [[side[k] for k in usable] for side in sides]
        counts = [Counter(word for line in side for word in line) for side in sides]
        # Words that are too rare share number 0.
        known = [[word for word, n in own.most_common() if n >= _MIN_COUNT] for own in counts]
        numbers = [{word: k for k, word in enumerate(own, 1)} for own in known]
        rows = [
            [[own.get(word, 0) for word in line] for line in side] for own, side in zip(numbers, sides, strict=True)
        ]
        forward = _translations(rows[0], rows[1], len(known[0]) + 1, len(known[1]) + 1)
        reverse = _translations(rows[1], rows[0], len(known[1]) + 1, len(known[0]) + 1)
        frequent = set(known[0][:_N_FREQUENT] if len(known[0]) > 10 * _N_FREQUENT else ())
        self._pairs: dict[str, set[str]] = {}
        self._forms: dict[str, list[str]] = {}
        for source, own in forward.items():
            word = known[0][source - 1]
            if word in frequent or not _is_content(word):
                continue
            found = [known[1][target - 1] for target in own]
            mutual = {
                known[1][target - 1]
                for target, prob in own.items()
                if prob >= _MIN_PROB and reverse.get(target, {}).get(source, 0) >= _MIN_PROB
            }
            mutual = {target for target in mutual if _is_content(target)}
            if mutual:
                self._pairs[word], self._forms[word] = mutual, found

    def find(self, source: str, target: str) -> list[AlignedWords]:
        """Return the pairs of a pair of lines, in the order of the source.

        Words that are more than once in their line are left out.
        """
        left, right = _places(source), _places(target)
        found = []
        for word, spans in left.items():
            candidates = [right[other] for other in self._pairs.get(word, ()) if other in right]
            if len(spans) == len(candidates) == 1 and len(candidates[0]) == 1:
                found.append(AlignedWords(spans[0], candidates[0][0]))
        n_uses = Counter(pair.target for pair in found)
        return sorted(pair for pair in found if n_uses[pair.target] == 1)

    def forms(self, source: str, target: str) -> list[str]:
        """Return translations of a source word that are other forms of the target word."""
        word = target.casefold()
        forms = [form for form in self._forms.get(source.casefold(), ()) if form != word and is_inflected(form, word)]
        return [form[:1].upper() + form[1:] if target[:1].isupper() else form for form in forms]


def _is_content(word: str) -> bool:
    return len(word) >= MIN_STEM and word.isalpha()


def _words(line: str) -> list[str]:
    return [line[begin:end].casefold() for begin, end in find_tokens(line)]


def _places(line: str) -> dict[str, list[Span]]:
    places: dict[str, list[Span]] = {}
    for begin, end in find_tokens(line):
        places.setdefault(line[begin:end].casefold(), []).append((begin, end))
    return places


def _translations(src: list[list[int]], tgt: list[list[int]], n_src: int, n_tgt: int) -> dict[int, dict[int, float]]:
    """Return translations with their probabilities, by source word."""
    words = [np.array([word for line in side for word in line], np.int32) for side in (src, tgt)]
    starts = [np.cumsum([0, *map(len, side)]).astype(np.int64) for side in (src, tgt)]
    if not all(map(len, words)):
        return {}
    corpus = AlignmentCorpus(words[0], starts[0], words[1], starts[1], n_src, n_tgt)
    table, loops = init_table(corpus), fastest()
    for _ in range(_ITERATIONS):
        em_step(table, corpus, loops)
    kept = np.flatnonzero(table.probs >= _MIN_VARIANT)
    rows, targets = np.divmod(table.keys[kept], n_tgt)  # row 0 is NULL, row 1 rare words
    found: dict[int, dict[int, float]] = {}
    for row, target, prob in zip(rows.tolist(), targets.tolist(), table.probs[kept].tolist(), strict=True):
        if row > 1 and target:
            found.setdefault(row - 1, {})[target] = prob
    return found
