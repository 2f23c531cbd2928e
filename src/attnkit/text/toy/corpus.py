"""An English-French corpus from one seed, whose held-out sentences are new and half of them truly new combinations."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from itertools import combinations

from attnkit.text.toy.grammar import Sentence, draw

# The lecture notes' examples: never in any part of the corpus, so that translating them shows something.
NOTES_SENTENCES = ("I am a student.", "The cat sat on the mat.")
_NOTES_KEYS = frozenset(["i am a student", "the cat sat on the mat"])
# Their words may meet in training: the sentences are new, not their combinations.
_NEVER_RESERVED = frozenset(["noun:cat", "noun:mat", "verb:sit", "noun:student"])
_RESERVED_SHARE = 40  # one pair of content words in so many is kept out of training

Pair = tuple[str, str]


@dataclass
class Corpus:
    """English-French pairs; ``novel`` holds the sources with two content words never together in training."""

    train: list[Pair] = field(default_factory=list)
    valid: list[Pair] = field(default_factory=list)
    test: list[Pair] = field(default_factory=list)
    novel: set[str] = field(default_factory=set)

    @property
    def parts(self) -> dict[str, list[Pair]]:
        """The pairs by the names of their files."""
        return {"train": self.train, "valid": self.valid, "test": self.test}


def make_corpus(seed: int, n_train: int, n_valid: int, n_test: int) -> Corpus:
    """Make a corpus that is a pure function of its arguments; no source occurs twice in it.

    Six held-out sentences in ten contain a reserved combination: a pair of content words, chosen by the seed, that is
    kept out of every training sentence.
    """
    rng = random.Random(f"english-french {seed}")
    corpus = Corpus()
    seen = set(_NOTES_KEYS)
    open_parts = [_Part(corpus.test, n_test), _Part(corpus.valid, n_valid)]
    while len(corpus.train) < n_train or any(not part.full for part in open_parts):
        sentence = draw(rng)
        if sentence.key in seen:
            continue
        novel = has_reserved_pair(sentence, seed)
        part = next((part for part in open_parts if part.wants(novel=novel)), None)
        if part is not None:
            part.take(sentence, novel=novel)
            if novel:
                corpus.novel.add(sentence.en)
        elif not novel and len(corpus.train) < n_train:
            corpus.train.append((sentence.en, sentence.fr))
        else:
            continue
        seen.add(sentence.key)
    for pairs in (corpus.test, corpus.valid):
        rng.shuffle(pairs)
    return corpus


def has_reserved_pair(sentence: Sentence, seed: int) -> bool:
    """Tell whether two content words of a sentence form a combination that training must not see."""
    words = sorted(sentence.content - _NEVER_RESERVED)
    return any(zlib.crc32(f"{seed} {a} {b}".encode()) % _RESERVED_SHARE == 0 for a, b in combinations(words, 2))


class _Part:
    """A held-out part being filled: 60 % with a reserved combination, the rest without."""

    def __init__(self, pairs: list[Pair], size: int) -> None:
        self._pairs = pairs
        self._room = {True: -(-size * 6 // 10), False: size - -(-size * 6 // 10)}

    @property
    def full(self) -> bool:
        return not any(self._room.values())

    def wants(self, *, novel: bool) -> bool:
        return self._room[novel] > 0

    def take(self, sentence: Sentence, *, novel: bool) -> None:
        self._pairs.append((sentence.en, sentence.fr))
        self._room[novel] -= 1
