"""The toy corpora by name, as files of lines; English–French with sentences held out whose combinations are new."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from attnkit.text.toy.english_french import Sampler
from attnkit.text.toy.simple_corpora import make_expressions, make_reversal, make_reviews, make_summaries

Pair = tuple[str, str]
Kind = Literal["english-french", "reverse", "summary", "code", "reviews"]
_MAKERS = {"reverse": make_reversal, "summary": make_summaries, "code": make_expressions}

# The lecture notes' examples are in no part of the corpus, so that their translations are new.
NOTES_SENTENCES = ("I am a student.", "The cat sat on the mat.")
# The notes' words may meet in training: the sentences are new, their combinations of words are not.
_NEVER_RESERVED = frozenset(["noun:cat", "noun:mat", "verb:sit", "noun:student"])
_RESERVED_SHARE = 40  # one pair of content words in 40 is kept out of training
_NOVEL_TENTHS = 6  # tenths of the held-out sentences that have a reserved pair


def make_files(kind: Kind, n_train: int, seed: int, *, n_valid: int = 500, n_test: int = 1000) -> dict[str, list[str]]:
    """Return the lines of each file by name: ``train.en`` and ``train.fr``, ``train.src`` and ``train.tgt``, ….

    A pure function of its arguments. ``reverse`` has ``test-long`` too, longer than the training strings. ``reviews``
    are documents and labels separated by a tab, in ``train.tsv`` and so on.
    """
    if kind == "reviews":
        parts = make_reviews(seed, n_train, n_valid, n_test)
        return {f"{name}.tsv": [f"{text}\t{label}" for text, label in rows] for name, rows in parts.items()}
    if kind == "english-french":
        return as_files(make_corpus(seed, n_train, n_valid, n_test).parts, ("en", "fr"))
    return as_files(_MAKERS[kind](seed, n_train, n_valid, n_test), ("src", "tgt"))


def as_files(parts: Mapping[str, Sequence[Pair]], endings: tuple[str, str]) -> dict[str, list[str]]:
    """Return the lines of each file by name, one file for each side of a part.

    >>> as_files({"train": [("a", "b"), ("c", "d")]}, ("en", "fr"))
    {'train.en': ['a', 'c'], 'train.fr': ['b', 'd']}
    """
    return {
        f"{name}.{ending}": [pair[side] for pair in pairs]
        for name, pairs in parts.items()
        for side, ending in enumerate(endings)
    }


@dataclass
class Corpus:
    """English–French pairs; ``novel`` holds the sources with a pair of content words that no training source has."""

    test: list[Pair] = field(default_factory=list)
    valid: list[Pair] = field(default_factory=list)
    train: list[Pair] = field(default_factory=list)
    novel: set[str] = field(default_factory=set)

    @property
    def parts(self) -> dict[str, list[Pair]]:
        """The pairs by the names of their files."""
        return {"test": self.test, "valid": self.valid, "train": self.train}


def make_corpus(seed: int, n_train: int, n_valid: int, n_test: int) -> Corpus:
    """Make an English–French corpus, a pure function of the arguments in which no source occurs twice.

    Six held-out sentences in ten have a reserved pair of content words: one that the seed keeps out of training.
    """
    rng = random.Random(f"english-french {seed}")
    sampler, corpus, seen = Sampler(rng), Corpus(), {line.lower().rstrip(".") for line in NOTES_SENTENCES}
    left: dict[tuple[str, bool], int] = {}
    for name, size in (("test", n_test), ("valid", n_valid), ("train", n_train)):
        n_novel = 0 if name == "train" else -(-size * _NOVEL_TENTHS // 10)
        left |= {(name, True): n_novel, (name, False): size - n_novel}
    while any(left.values()):
        sentence = sampler.sentence()
        if sentence.key in seen:
            continue
        content_pairs = combinations(sorted(sentence.content - _NEVER_RESERVED), 2)
        novel = any(zlib.crc32(f"{seed} {a} {b}".encode()) % _RESERVED_SHARE == 0 for a, b in content_pairs)
        part = next((name for name in corpus.parts if left[name, novel]), None)
        if part:
            seen.add(sentence.key)
            left[part, novel] -= 1
            corpus.parts[part].append((sentence.en, sentence.fr))
            if novel:
                corpus.novel.add(sentence.en)
    for pairs in (corpus.test, corpus.valid):
        rng.shuffle(pairs)
    return corpus
