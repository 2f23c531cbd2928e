"""Placeholders and annotated terms in training pairs and in lines to translate."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice

import numpy as np

from attnkit.data.config import DataConfig
from attnkit.decoding.required_terms import RequiredTerm
from attnkit.engine.search_backend import LineSegment
from attnkit.tasks.translation.word_pairs import MAX_PAIRS, AlignedWords, WordPairs
from attnkit.text.inline_symbols import (
    PLACEHOLDERS,
    MaskedText,
    annotate,
    inline_symbols,
    mask,
    mask_pair,
    placeholders_in,
    replace_spans,
)
from attnkit.text.tokenizer import Tokenizer

SHARE = 0.1  #: share of the training pairs with learned placeholders, and of those with annotations
_MAX_WORDS = 3  # replaced or annotated in one pair
_OTHER_FORM = 0.5  # probability that an annotation shows another form than the target has, if one is known
_PHRASE = 0.5  # probability that the next word is annotated together with one


def mask_shared(data: DataConfig, pair: tuple[str, str]) -> tuple[str, str]:
    """Return a pair with placeholders for what both sides have, if the run has them."""
    return mask_pair(*pair) if data.placeholders else pair


class TrainingText:
    """Puts placeholders and annotations into training pairs."""

    def __init__(self, data: DataConfig, pairs: Iterable[tuple[str, str]]) -> None:
        """Learn which words translate each other."""
        self._data = data
        self._words = WordPairs(list(islice(pairs, MAX_PAIRS)))

    def rewrite(self, pair: tuple[str, str]) -> tuple[str, str]:
        """Return a pair as the model is trained on it; equal pairs stay equal.

        Parts that both sides share become placeholders. In a share of the pairs so do words that translate each
        other, which teaches where placeholders go; in as many, words are annotated with their translations.
        """
        digest = blake2b("\n".join(pair).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        choice = random.Random(digest)
        source, target = mask_shared(self._data, pair)
        drawn = choice.random()
        if self._data.placeholders and drawn < SHARE:
            return self._replace_words(source, target, choice)
        if self._data.annotate_terms and drawn >= 1 - SHARE:
            return self._annotate_words(source, target, choice), target
        return source, target

    def _choose(self, source: str, target: str, choice: random.Random) -> list[AlignedWords]:
        found = self._words.find(source, target)
        chosen = choice.sample(found, min(len(found), choice.randint(1, _MAX_WORDS)))
        return sorted(chosen)

    def _replace_words(self, source: str, target: str, choice: random.Random) -> tuple[str, str]:
        """Replace some words by placeholders, of any number: each must be learned."""
        used = {*placeholders_in(source), *placeholders_in(target)}
        pairs = self._choose(source, target, choice)
        free = [symbol for symbol in PLACEHOLDERS if symbol not in used]
        numbers = sorted(choice.sample(range(len(free)), min(len(free), len(pairs))))
        chosen = [(pair, free[k]) for pair, k in zip(pairs, numbers, strict=False)]
        sources, targets = ([(*pair[side], symbol) for pair, symbol in chosen] for side in (0, 1))
        return replace_spans(source, sources), replace_spans(target, sorted(targets))

    def _annotate_words(self, source: str, target: str, choice: random.Random) -> str:
        """Annotate some words of a source, at times with other forms than the target has."""
        found = self._words.find(source, target)
        following = {pair.source[0]: pair for pair in found}
        terms: list[tuple[int, int, str]] = []
        for pair in self._choose(source, target, choice):
            if terms and pair.source[0] < terms[-1][1]:
                continue
            (begin, end), (first, last) = pair
            shown = target[first:last]
            forms = self._words.forms(source[begin:end], shown)
            after = following.get(end + 1)
            if after is not None and after.target[0] == last + 1 and choice.random() < _PHRASE:
                end, shown = after.source[1], target[first : after.target[1]]
            elif forms and choice.random() < _OTHER_FORM:
                shown = choice.choice(forms)
            terms.append((begin, end, shown))
        return annotate(source, terms)


class InlineText:
    """Placeholders in the lines to translate, and what translations need for them."""

    def __init__(self, data: DataConfig, tokenizer: Tokenizer) -> None:
        """Take the settings of a run and its target vocabulary."""
        self.has_placeholders, self.has_annotations = data.placeholders, data.annotate_terms
        self._tokenizer = tokenizer
        self._terms: dict[str, RequiredTerm] = {}
        # Runs with annotations alone have placeholders for symbols that are in the text itself.
        used = inline_symbols(placeholders=data.placeholders, annotate_terms=data.annotate_terms)
        known = {symbol: id for symbol in used if (id := tokenizer.token_id(symbol)) is not None}
        self._ids = {symbol: id for symbol, id in known.items() if symbol in PLACEHOLDERS}
        self._symbols = frozenset(known.values())

    @property
    def has_symbols(self) -> bool:
        """Whether the run has learned any."""
        return bool(self._ids)

    def mask(self, line: str, kept: Sequence[tuple[int, int]] = ()) -> MaskedText:
        """Return a line with placeholders, if the run has them, but in ``kept`` spans."""
        if self.has_symbols:
            return mask(line, is_protected=self.has_placeholders, kept=kept)
        return MaskedText(line, has_symbols=False)

    def required(self, text: str) -> tuple[RequiredTerm, ...]:
        """Return the placeholders of a masked text, as terms that its translation needs."""
        if not self.has_symbols:
            return ()
        return tuple(self._term(symbol) for symbol in dict.fromkeys(placeholders_in(text)))

    def faults(self, text: str, ids: Sequence[int]) -> tuple[int, int]:
        """Return how many placeholders a translation lacks, and how many are too many.

        ``text`` is its masked source. Symbols that it has not, and annotations, are too many.
        """
        wanted = Counter(self._ids[symbol] for symbol in placeholders_in(text))
        found = Counter(id for id in ids if id in self._symbols)
        return len(wanted.keys() - found.keys()), (found - wanted).total()

    def own_ids(self, text: str) -> list[int]:
        """Return the ids of the placeholders of a masked text."""
        return [self._ids[symbol] for symbol in placeholders_in(text)] if self._ids else []

    def restrict(self, part: LineSegment) -> LineSegment:
        """Return a segment whose translation may have no symbols but its own."""
        if not self._symbols or part.allowed is not None:  # a shortlist has its own already
            return part
        allowed = np.arange(self._tokenizer.n_words, dtype=np.int32)
        foreign = self._symbols.difference(self.own_ids(part.text))
        return replace(part, allowed=allowed[~np.isin(allowed, list(foreign))])

    def _term(self, symbol: str) -> RequiredTerm:
        if symbol not in self._terms:
            id = self._ids[symbol]
            first = tuple(self._tokenizer.encode([symbol])[0])
            first_forms = tuple(dict.fromkeys(((id,), first)))
            self._terms[symbol] = RequiredTerm(((id,),), first_forms, is_word=False, source=symbol)
        return self._terms[symbol]
