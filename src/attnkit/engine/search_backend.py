"""Searches over batches of lines. Torch-free; ``seq2seq`` has those of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from attnkit.compiled.search import MAX_TOKENS, CompiledSearch, reason_against_search
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.hypothesis import Hypothesis
from attnkit.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from attnkit.decoding.required_terms import RequiredTerm
    from attnkit.decoding.stopping import StopCheck, StopFlags
    from attnkit.decoding.suppression import SuppressedPhrases
    from attnkit.text.inline_symbols import MaskedText

Found = list[list[Hypothesis]]
Rerank = Callable[[Sequence["LineSegment"], Found], Found]
"""Function of segments and all of their hypotheses, best first, that returns these in another order."""
WINDOW = 1 << 12  #: segments that compiled loops search together


@dataclass(frozen=True)
class LineSegment:
    """An encoded line, or a segment of one: a sentence, or part of a long sentence."""

    line: int  #: line number in the whole input; (``line``, ``number``) is the random-number key
    number: int  #: index of the segment within its line
    ids: list[int]
    prefix: list[int]
    allowed: NDArray[np.int32] | None = None  #: target ids allowed besides EOS and the prefix; None allows all
    text: str = ""
    before: str | None = ""  #: white space before it in the line; None if it continues a sentence
    required: tuple[RequiredTerm, ...] = ()  #: terms that its translation must have
    masked: MaskedText | None = None  #: the whole line with its placeholders


@dataclass(frozen=True)
class SearchJob:
    """Settings of a search."""

    config: SearchConfig
    record: bool = False
    suppressed: SuppressedPhrases | None = None  #: phrases that are never produced
    n_given: int = 0  #: first tokens of the prefixes, such as a language code, whose probability does not count
    joins: NDArray[np.bool_] | None = None
    """(V,), True for tokens that continue a word; None searches without the terms that segments require."""
    stops: StopFlags | None = None  #: flags of the lines that are to end, set while the search runs
    progress: Callable[[int], None] = lambda n_parts: None
    """Receives the number of segments that are done, but not yielded yet.

    Called again and again while many batches are searched together.
    """
    report: Callable[[LineSegment, list[Hypothesis]], None] | None = None
    """Receives segments soon after they are done, from whole searches in compiled loops; see ``CompiledSearch``."""

    rerank: Rerank | None = None
    """Orders the whole beam, of which ``num_hypotheses`` are kept, in ``search_parts``; nothing is reported then."""

    def check(self, parts: Sequence[LineSegment]) -> StopCheck | None:
        """Return the function that says which segments are to end; None: none."""
        return None if self.stops is None else self.stops.check([part.line for part in parts])


class SearchBackend(Protocol):
    """Protocol of a backend that searches batches and yields results in order."""

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        """Yield the hypotheses of each segment, best first, batch by batch."""


def can_search_whole(job: SearchJob, parts: Iterable[LineSegment]) -> bool:
    """Return whether compiled loops have the whole search, not only its steps."""
    if (
        job.record
        or job.suppressed is not None
        or job.joins is not None
        or reason_against_search(job.config) is not None
    ):
        return False
    for part in parts:
        n = len(part.ids) + 1
        if part.prefix or part.allowed is not None:
            return False
        if max(n, job.config.limit(n), job.config.min_length + 1) > MAX_TOKENS:
            return False
    return True


class WholeSearch:
    """Search backend in compiled loops, for searches that they have."""

    def __init__(self, searcher: CompiledSearch, window: int = WINDOW) -> None:
        """Search ``window`` segments together; a requested stop is noticed in between."""
        self._searcher, self._window = searcher, window

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        # Many batches are searched together: which sentences share a batch makes no difference here.
        waiting: list[list[LineSegment]] = []
        for batch in batches:
            waiting.append(list(batch))
            if sum(map(len, waiting)) >= self._window:
                yield from self._search_together(waiting, job)
                waiting = []
        yield from self._search_together(waiting, job)

    def _search_together(self, rows: list[list[LineSegment]], job: SearchJob) -> Iterator[Found]:
        parts = list(chain.from_iterable(rows))
        config = job.config
        limits = [max(config.limit(len(part.ids) + 1), config.min_length + 1) for part in parts]
        given = [part.ids for part in parts], limits, config, job.check(parts), job.progress
        report = job.report
        tell = None if report is None else lambda number, hypotheses: report(parts[number], hypotheses)
        found = iter(self._searcher.search(*given, tell))
        for row in rows:
            yield [next(found) for _ in row]


def exclude_padding_ids(config: SearchConfig, tokenizer: Tokenizer) -> SearchConfig:
    """Return settings that forbid the unused ids at the end of a padded vocabulary."""
    return config.model_copy(update={"n_words": tokenizer.n_words})


def search_parts(
    searcher: SearchBackend,
    parts: Sequence[LineSegment],
    batches: Iterable[Sequence[int]],
    job: SearchJob,
    progress: Callable[[int], None] = lambda n_parts: None,
) -> Found:
    """Return the hypotheses of each segment; ``batches`` are indices of ``parts``.

    ``progress`` is called with the number of segments so far.
    """
    taken: list[Sequence[int]] = []
    found: Found = [[] for _ in parts]
    n_parts = n_searched = 0
    config = job.config
    rerank = job.rerank if config.beam_size > 1 else None
    if rerank is not None:
        job = replace(job, config=config.model_copy(update={"num_hypotheses": config.beam_size}), report=None)

    def tell(n_more: int) -> None:
        nonlocal n_searched
        n_searched = max(n_searched, n_parts + n_more)
        # With reranking, a segment that is searched counts half.
        progress(n_parts + n_more if rerank is None else (n_searched + n_parts) // 2)

    def requested() -> Iterator[list[LineSegment]]:
        for batch in batches:
            tell(0)
            taken.append(batch)
            yield [parts[i] for i in batch]

    for number, hypotheses in enumerate(searcher.search_all(requested(), replace(job, progress=tell))):
        if rerank is not None:
            tell(len(hypotheses))
            ranked = rerank([parts[i] for i in taken[number]], hypotheses)
            hypotheses = [own[: config.num_hypotheses] for own in ranked]
        for i, own in zip(taken[number], hypotheses, strict=True):
            found[i] = own
        n_parts += len(hypotheses)
    progress(n_parts)
    return found
