"""Interface of searches over batches of encoded lines. Torch-free.

``seq2seq`` has the backends that use torch, ``compiled`` the one that does not.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.hypothesis import Hypothesis
from attnkit.text.tokenizer import Tokenizer

Found = list[list[Hypothesis]]


@dataclass(frozen=True)
class LineSegment:
    """An encoded line, or one segment of a line that is too long for the model."""

    line: int  #: line number in the whole input; (``line``, ``number``) is the random-number key
    number: int  #: index of the segment within its line
    ids: list[int]
    prefix: list[int]
    allowed: NDArray[np.int32] | None = None  #: target ids allowed besides EOS and the prefix; None allows all


@dataclass(frozen=True)
class SearchJob:
    """Settings of a search."""

    config: SearchConfig
    record: bool = False


class SearchBackend(Protocol):
    """Protocol of a backend that searches batches and yields results in order."""

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        """Yield the hypotheses of each segment, best first, batch by batch."""


def exclude_padding_ids(config: SearchConfig, tokenizer: Tokenizer) -> SearchConfig:
    """Return settings that forbid the unused ids at the end of a padded vocabulary."""
    return config.model_copy(update={"n_words": tokenizer.n_words})


def search_parts(
    searcher: SearchBackend, parts: Sequence[LineSegment], batches: Iterable[Sequence[int]], job: SearchJob
) -> Found:
    """Return the hypotheses of each segment; ``batches`` are indices of ``parts``."""
    taken: list[Sequence[int]] = []

    def requested() -> Iterator[list[LineSegment]]:
        for batch in batches:
            taken.append(batch)
            yield [parts[i] for i in batch]

    found: Found = [[] for _ in parts]
    for number, hypotheses in enumerate(searcher.search_all(requested(), job)):
        for i, own in zip(taken[number], hypotheses, strict=True):
            found[i] = own
    return found
