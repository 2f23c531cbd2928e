"""Terms in place of the words of a translation that attend to them.

A model that has never written a term finds it equally unlikely anywhere; a search that must produce it then puts it
behind the finished sentence. Here the term takes the place of what the model wrote for it, as attention tells (Hasler
et al. 2018 begin constraints where attention is at their source words), and the model scores the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.decoding.hypothesis import Hypothesis
from attnkit.engine.search_backend import Found, LineSegment, SearchJob
from attnkit.tasks.translation.placement import find_marks, find_words
from attnkit.tasks.translation.terminology import Terminology
from attnkit.tasks.translation.translated_line import Output, TranslatedLine
from attnkit.tasks.translation.word_links import Span, word_weights
from attnkit.text.inline_symbols import MaskedText, replace_spans
from attnkit.text.tokenizer import Tokenizer

MAX_TEXTS = 8  #: texts that are scored for a hypothesis
LEAST = 0.1  #: attention of a word to a term below which the word is not what was written for it
BESIDE = 0.7  #: attention of words beside it, relative to its own, from which on they belong to it
_APOSTROPHES = "'’"

Search = Callable[[list[LineSegment], SearchJob], Found]


class MissingTerm(NamedTuple):
    """A term of a source that its translation lacks, and what it may be."""

    begin: int
    end: int
    texts: tuple[str, ...]


class TermPlacement:
    """Puts missing terms into translations, and lets the model score them."""

    def __init__(
        self, terminology: Terminology, tokenizers: tuple[Tokenizer, Tokenizer], longest: int | None, search: Search
    ) -> None:
        """``longest`` is the number of target positions, EOS included; None: unlimited."""
        self._terminology, self._longest, self._search = terminology, longest, search
        self._src_tokenizer, self._tgt_tokenizer = tokenizers

    def place(self, parts: Sequence[LineSegment], found: Found, job: SearchJob) -> Found:
        """Return the hypotheses of segments with their terms, best first.

        A segment has none if a term has no place, or if two of its hypotheses become one.
        """
        config = job.config.model_copy(update={"beam_size": 1, "num_hypotheses": 1, "min_length": 0, "scores": True})
        job = replace(job, config=config, joins=None)
        all_of = [(i, one) for i, own in enumerate(found) for one in own]
        forced = [_forced(parts[i], one.ids) for i, one in all_of]
        attended = self._search(forced, replace(job, record=True))
        tried: list[tuple[int, LineSegment]] = []  # hypothesis, and a text for it
        for number, ((i, one), (seen,)) in enumerate(zip(all_of, attended, strict=True)):
            if seen.attention is None or seen.ids[: len(one.ids)] != one.ids:
                continue
            texts = list(islice(self._texts(parts[i], one, seen.attention), MAX_TEXTS))
            for ids in self._tgt_tokenizer.encode(texts):
                if self._longest is None or len(ids) < self._longest:
                    tried.append((number, _forced(parts[i], ids)))
        best: list[Hypothesis | None] = [None] * len(all_of)
        for (number, part), (one,) in zip(tried, self._search([part for _, part in tried], job), strict=True):
            begins = one.ids[: len(prefix := parts[all_of[number][0]].prefix)] == prefix
            other = best[number]
            if begins and one.finished and one.ids == part.prefix and (other is None or one.score > other.score):
                best[number] = one
        placed: Found = [[] for _ in parts]
        for (i, _), one_of in zip(all_of, best, strict=True):
            placed[i] += [one_of] if one_of is not None else []
        return [
            sorted(own, key=lambda one: -one.score) if len({tuple(one.ids) for one in own}) == len(found[i]) else []
            for i, own in enumerate(placed)
        ]

    def _texts(self, part: LineSegment, one: Hypothesis, attention: NDArray[np.float32]) -> Iterator[str]:
        """Yield translations with the missing terms of a segment in place."""
        (text,) = self._tgt_tokenizer.decode([one.ids])
        found = self._terminology.glossary.find(part.text)
        terms = [term for term in part.required if term.texts]  # without placeholders
        uses = self._terminology.uses(terms, text)
        missing = [
            MissingTerm(place.begin, place.end, use.targets)
            for place, use in zip(found, uses, strict=True)
            if not use.is_used
        ]
        output = Output(text, one.score, one.log_prob, [one.ids], True, [attention.tolist()], self._tgt_tokenizer)
        source = MaskedText(part.text, has_symbols=False)
        line = TranslatedLine(part.text, [part.ids], [output], self._src_tokenizer, masked=source, read=[part.text])
        words, sources = find_words(text), find_words(part.text)
        yield from substitutes(text, word_weights(line, self._tgt_tokenizer, words, sources), words, sources, missing)


def substitutes(
    text: str,
    weights: NDArray[np.float64],
    words: Sequence[Span],
    sources: Sequence[Span],
    terms: Sequence[MissingTerm],
) -> Iterator[str]:
    """Yield texts with terms instead of the words that attend to them, in every form.

    ``weights`` (T, S) are the attention of ``words`` to the words of the source. None if a term has no words.
    """
    taken = find_marks(text, words)
    spans: list[tuple[Span, list[str]]] = []
    for term in terms:
        of_term = [k for k, (begin, end) in enumerate(sources) if begin < term.end and term.begin < end]
        if not words or not of_term:
            return
        shares = weights[:, of_term].sum(1)
        shares[list(taken)] = 0
        # The word attends most to the term, or to the article before it, which may be joined to it in the translation.
        shares[(shares < LEAST) | ~np.isin(weights.argmax(1), [of_term[0] - 1, *of_term])] = 0
        if not shares.any():
            return
        first = last = int(shares.argmax())
        least = BESIDE * shares[first]
        while first and shares[first - 1] >= least:
            first -= 1
        while last + 1 < len(shares) and shares[last + 1] >= least:
            last += 1
        taken.update(range(first, last + 1))
        begin, end = words[first][0], words[last][1]
        spans.append(((begin, end), list(_written(text[begin:end], term, is_first=first == 0))))
    spans.sort()
    for forms in product(*(own for _, own in spans)):
        yield replace_spans(text, [(*place, form) for (place, _), form in zip(spans, forms, strict=True)])


def _written(old: str, term: MissingTerm, *, is_first: bool) -> Iterator[str]:
    """Yield the forms of a term, also behind an article joined to the old word."""
    joined = max(old.find(mark) + 1 for mark in _APOSTROPHES)
    for text in term.texts:
        yield text[:1].upper() + text[1:] if is_first and old[:1].isupper() else text
        if 0 < joined < len(old):
            yield old[:joined] + text


def _forced(part: LineSegment, ids: list[int]) -> LineSegment:
    """Return a segment whose translation is given."""
    return replace(part, prefix=ids, allowed=None, required=())
