"""Phrases found and joined in a text of numbered words, pass after pass, without reading the text again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnkit.data.word_ids import WordIds
from attnkit.kernels.pairs import RARE, Pair, PairCounter, PhraseJoiner, WordClasses
from attnkit.kernels.words import LINE_END
from attnkit.text.config import PhrasesConfig
from attnkit.text.phrases import Phrase, Phrases, score

_AT_ONCE = 1 << 16  # words that are looked at together
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """The phrases of a text, and what was given up for them."""

    phrases: Phrases
    n_lost: int
    """Occurrences of pairs that were forgotten for lack of room."""


def find_phrases(text: WordIds, config: PhrasesConfig, lower: bool, tell: Tell) -> Found:
    """Find phrases in a text and join them there, ``config.passes`` times; a pass that finds none is the last."""
    passes: list[tuple[Phrase, ...]] = []
    n_lost = 0
    for number in range(1, config.passes + 1):
        kinds = _kinds(text, config.connectors, config.min_count)
        counter = PairCounter(kinds, config.max_pairs)
        for numbers in text.spool:
            counter.add(numbers)
            tell(f"pass {number}: counting pairs of words")
        n_lost += counter.n_lost
        phrases, targets = _choose(text, config, kinds, counter)
        passes.append(tuple(phrases))
        if not phrases:
            break
        tell(f"pass {number}: joining {len(phrases):,} phrases")
        _join(text, kinds, targets, config.joiner)
    return Found(Phrases(config, lower, (*passes, *((),) * (config.passes - len(passes)))), n_lost)


def apply_phrases(text: WordIds, phrases: Phrases, tell: Tell) -> None:
    """Join in a text the phrases that were found in another."""
    config = phrases.config
    for number, found in enumerate(phrases.passes, 1):
        kinds = _kinds(text, config.connectors, 1)
        places = numbers_of(text, {part for phrase in found for part in phrase.parts})
        targets: dict[Pair, tuple[str, ...]] = {}
        for phrase in found:
            parts = [places.get(part, RARE) for part in phrase.parts]
            between = [int(kinds.of[part]) for part in parts[1:-1] if part >= 0]
            if min(parts) >= 0 and min(between, default=1) > 0:
                targets[parts[0], kinds.is_boundary(tuple(between)), parts[-1]] = phrase.parts
        tell(f"pass {number}: joining {len(targets):,} of {len(found):,} phrases")
        if targets:
            _join(text, kinds, targets, config.joiner)


def numbers_of(text: WordIds, words: Collection[str]) -> dict[str, int]:
    """Return the numbers of those of some words that a text has."""
    found: dict[str, int] = {}
    for begin in range(0, len(text.counts) if words else 0, _AT_ONCE):
        numbers = np.arange(begin, min(begin + _AT_ONCE, len(text.counts)))
        names = enumerate(text.names(numbers), begin)
        found.update((name, number) for number, name in names if name in words)
    return found


def _kinds(text: WordIds, connectors: Sequence[str], least: int) -> WordClasses:
    """Return what may be a pair: words that occur often enough and are not connectors."""
    kinds = np.where(text.counts >= least, 0, RARE).astype(np.int32)
    places = numbers_of(text, set(connectors))
    for kind, connector in enumerate(dict.fromkeys(connectors), 1):
        if connector in places:
            kinds[places[connector]] = kind
    return WordClasses(kinds, len(set(connectors)))


def _choose(
    text: WordIds, config: PhrasesConfig, kinds: WordClasses, counter: PairCounter
) -> tuple[list[Phrase], dict[Pair, tuple[str, ...]]]:
    """Return the phrases of a pass, the highest scores first, and the pairs of numbers that they are."""
    rows, counts = counter.pairs(config.min_count)
    scores = score(config, counts, text.counts[rows[:, 0]], text.counts[rows[:, 2]], text.n_words)
    chosen = np.flatnonzero(scores > config.limit)
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
    rows, counts, scores = rows[chosen], counts[chosen], scores[chosen]
    of_kind = dict(enumerate(dict.fromkeys(config.connectors), 1))
    phrases: list[Phrase] = []
    targets: dict[Pair, tuple[str, ...]] = {}
    firsts, seconds = text.names(rows[:, 0]), text.names(rows[:, 2])
    for i, (first, gap, second) in enumerate(rows.tolist()):
        between = [of_kind[kind] for kind in kinds.connectors(gap)]
        parts = (firsts[i], *between, seconds[i])
        phrases.append(Phrase(parts, float(scores[i]), int(counts[i])))
        targets[first, gap, second] = parts
    return phrases, targets


def _join(text: WordIds, kinds: WordClasses, targets: dict[Pair, tuple[str, ...]], joiner: str) -> None:
    """Give each phrase the number of the word that is written like it, or the next one, and put it in the text."""
    joined = {pair: joiner.join(parts) for pair, parts in targets.items()}
    places = numbers_of(text, set(joined.values()))
    n_old = len(text.counts)
    added = [name for name in dict.fromkeys(joined.values()) if name not in places]
    places.update((name, n_old + i) for i, name in enumerate(added))
    join = PhraseJoiner(kinds, {pair: places[name] for pair, name in joined.items()}, n_old + len(added))
    n_words = 0

    def change(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
        nonlocal n_words
        changed = join.join(numbers)
        n_words += int(np.count_nonzero(changed != LINE_END))
        return changed

    text.spool.rewrite(change)
    text.counts, text.first, text.n_words = join.counts, join.first, n_words
    old_names = text.names

    def names(numbers: NDArray[np.int64]) -> list[str]:
        old = iter(old_names(numbers[numbers < n_old]))
        return [next(old) if n < n_old else added[n - n_old] for n in numbers.tolist()]

    text.names = names
