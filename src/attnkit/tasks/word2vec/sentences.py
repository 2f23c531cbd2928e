"""Sentences that a program holds, encoded as text files are: an iterable that can be gone through twice. Torch-free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np

from attnkit.data.store import write_store
from attnkit.data.words import Encoded
from attnkit.errors import DataError, UsageError
from attnkit.tasks.word2vec.config import WordTextConfig
from attnkit.text.word_vocabulary import WordVocabulary

Sentences: TypeAlias = Iterable[Sequence[str] | str]
_BATCH = 10_000  # sentences
_HELP = "give a list, or an object whose __iter__ begins anew each time; a generator is used up by the first pass"


def refuse_once(sentences: object) -> None:
    """Refuse what can be gone through only once, before any of it is used up.

    Raises:
        UsageError: a generator or another iterator, or nothing that can be gone through.
    """
    if not isinstance(sentences, Iterable):
        raise UsageError(f"sentences are lists of words, not {type(sentences).__name__}", help=_HELP)
    if isinstance(sentences, Iterator):
        what = f"these sentences ({type(sentences).__name__}) can be gone through only once, and it takes several times"
        raise UsageError(what, help=_HELP)


def count_words(sentences: Sentences, config: WordTextConfig) -> tuple[WordVocabulary, int, int]:
    """Return the words that get vectors, and how many words and sentences there are in all.

    Raises:
        DataError: there are none, or one that no list of words can hold.
    """
    found: Counter[str] = Counter()
    n_sentences = 0
    for sentence in split(sentences, config.lower):
        found.update(sentence)
        n_sentences += 1
    kept = [(word, n) for word, n in found.most_common(config.max_vocab) if n >= config.min_count]
    if not kept:
        n = max(found.values(), default=0)
        often = "once" if n == 1 else f"{n:,} times"
        most = f"the most frequent of {len(found):,} occurs {often}" if found else "none is there"
        raise DataError(f"no word occurs min_count={config.min_count} times: {most}", help="lower min_count")
    for word, _ in kept:
        _refuse_unwritable(word)
    words = WordVocabulary([word for word, _ in kept], np.array([n for _, n in kept], np.int64))
    return words, found.total(), n_sentences


def _refuse_unwritable(word: str) -> None:
    try:
        word.encode()
    except UnicodeEncodeError:
        what = "has a surrogate without its other half"
    else:
        what = "holds a tab or a line feed" if "\t" in word or "\n" in word else "" if word else "is empty"
    if what:
        raise DataError(f"the word {word!r} {what}: it could not be saved", help="leave such words out")


def encode_sentences(folder: Path, sentences: Sentences, words: WordVocabulary, config: WordTextConfig) -> Encoded:
    """Encode sentences into a folder, which must not exist; words that have no vector are left out.

    Raises:
        DataError: no two words that have one stand in any sentence.
    """
    n_raw, longest = 0, 0

    def rows() -> Iterator[list[list[int]]]:
        nonlocal n_raw, longest
        lines = split(sentences, config.lower)
        while batch := list(islice(lines, _BATCH)):
            n_raw += sum(map(len, batch))
            ids = [[id for id in map(words.index, line) if id is not None] for line in batch]
            longest = max(longest, max(map(len, ids)))
            yield [line for line in ids if line]

    store = write_store(folder, rows(), len(words))
    if longest < 2:
        raise DataError(
            "no sentence holds two words that get a vector: nothing stands beside anything",
            help="a sentence is a list of words; lower min_count if words are too rare",
        )
    return Encoded(words, store, n_raw)


def split(sentences: Sentences, lower: bool) -> Iterator[list[str]]:
    """Yield each sentence as its words; a text is split at white space.

    Raises:
        DataError: a sentence is something else.
    """
    for number, sentence in enumerate(sentences, 1):
        line = sentence.split() if isinstance(sentence, str) else list(sentence)
        if not all(isinstance(word, str) for word in line):
            raise DataError(
                f"sentence {number:,} holds something that is no text", help="a sentence is a list of words"
            )
        yield [word.lower() for word in line] if lower else line
