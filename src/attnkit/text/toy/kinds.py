"""The toy corpora by name, each as files of lines: train, valid and test, two languages of a sort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from attnkit.text.toy.corpus import Pair, make_corpus
from attnkit.text.toy.expressions import make_expressions
from attnkit.text.toy.reversal import make_reversal
from attnkit.text.toy.reviews import make_reviews
from attnkit.text.toy.summaries import make_summaries

Kind = Literal["english-french", "reverse", "summary", "code", "reviews"]
_MAKERS = {"reverse": make_reversal, "summary": make_summaries, "code": make_expressions}


def make_files(kind: Kind, n_train: int, seed: int, *, n_valid: int = 500, n_test: int = 1000) -> dict[str, list[str]]:
    """Return the lines of each file by name: ``train.en`` and ``train.fr``, or ``train.src`` and ``train.tgt``…

    A pure function of its arguments. ``reverse`` has ``test-long`` too, longer than anything trained on. ``reviews``
    are documents with labels, a tab between them, in ``train.tsv`` and so on.
    """
    if kind == "reviews":
        parts = make_reviews(seed, n_train, n_valid, n_test)
        return {f"{name}.tsv": [f"{text}\t{label}" for text, label in rows] for name, rows in parts.items()}
    if kind == "english-french":
        return as_files(make_corpus(seed, n_train, n_valid, n_test).parts, ("en", "fr"))
    return as_files(_MAKERS[kind](seed, n_train, n_valid, n_test), ("src", "tgt"))


def as_files(parts: Mapping[str, Sequence[Pair]], endings: tuple[str, str]) -> dict[str, list[str]]:
    """Return the lines of each file by name, a file for each side of a part.

    >>> as_files({"train": [("a", "b"), ("c", "d")]}, ("en", "fr"))
    {'train.en': ['a', 'c'], 'train.fr': ['b', 'd']}
    """
    return {
        f"{name}.{ending}": [pair[side] for pair in pairs]
        for name, pairs in parts.items()
        for side, ending in enumerate(endings)
    }
