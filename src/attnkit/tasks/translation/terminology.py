"""Terms of a glossary: what a search must produce for them, and whether it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.decoding.required_terms import Form, RequiredTerm
from attnkit.decoding.suppression import first_character
from attnkit.protocols import UNK_ID
from attnkit.text.glossary import FoundTerm, Glossary, is_capitals
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.word_boundaries import count_phrases, joins
from attnkit.text.word_forms import count_inflected


class TermUse(NamedTuple):
    """A term of the glossary in a line, and whether the translation has it."""

    source: str
    targets: tuple[str, ...]  #: its forms, one of which is expected
    is_used: bool


class Terminology:
    """Finds the terms of a glossary in segments, as tokens of the target vocabulary."""

    def __init__(
        self, glossary: Glossary, tokenizer: Tokenizer, longest: int | None = None, *, inflects: bool = False
    ) -> None:
        """``longest`` is the number of target positions, EOS included; None: unlimited.

        ``inflects`` accepts a term in another form than the glossary's.
        """
        self.glossary, self._tokenizer, self._longest, self._inflects = glossary, tokenizer, longest, inflects
        self._known: dict[tuple[str, ...], RequiredTerm] = {}

    def unwritable(self) -> list[str]:
        """Return the terms that the vocabulary has no tokens for."""
        entries = self.glossary.entries.values()
        return [entry.source for entry in entries if not self._term(entry.targets or (entry.source,)).forms]

    def messages(self) -> list[str]:
        """Return what is to be said of the glossary before it is used."""
        found = []
        if not self._inflects:
            what = "this run was not trained to read terms: they replace words of its translations, uninflected"
            found.append(f"{what} (train with --set data.annotate_terms=true)")
        if unwritable := self.unwritable():
            some = ", ".join(map(repr, unwritable[:3])) + (", …" if len(unwritable) > 3 else "")
            counts = f"{len(unwritable):,} of {len(self.glossary.entries):,} terms"
            found.append(f"the vocabulary has no tokens for the translations of {counts} of the glossary: {some}")
        return found

    def required(self, text: str, n_prefix: int = 0) -> tuple[RequiredTerm, ...]:
        """Return the terms of a segment; those that do not fit the model have no forms."""
        terms = []
        n_tokens = n_prefix + 1
        for found in self.glossary.find(text):
            source = text[found.begin : found.end]
            term = replace(self._term(expected_forms(found, source)), source=source)
            n_tokens += term.n_tokens
            if self._longest is not None and n_tokens > self._longest:
                n_tokens -= term.n_tokens
                term = replace(term, forms=(), first_forms=())
            terms.append(term)
        return tuple(terms)

    def shown(self, text: str) -> list[tuple[int, int, str]]:
        """Return begin, end and translation of the terms of a segment, to annotate them."""
        found = self.glossary.find(text)
        return [(one.begin, one.end, expected_forms(one, text[one.begin : one.end])[0]) for one in found]

    def uses(self, terms: Sequence[RequiredTerm], text: str) -> list[TermUse]:
        """Return which terms a translation has; a repeated term must be there as often."""
        forms: dict[frozenset[str], dict[str, None]] = {}
        kept = {_without_case(term) for term in terms if term.source in term.texts}
        for term in terms:
            forms.setdefault(_without_case(term), {}).update(dict.fromkeys(map(self._tokenizer.normalize, term.texts)))
        left = {key: self._count(text, own, kept=key in kept) for key, own in forms.items()}
        uses = []
        for term in terms:
            key = _without_case(term)
            left[key] -= 1
            uses.append(TermUse(term.source, term.texts, left[key] >= 0))
        return uses

    def _count(self, text: str, forms: Iterable[str], *, kept: bool) -> int:
        """Return how often a translation has a term; a ``kept`` one has no other forms."""
        first = text[:1].lower() + text[1:]  # a term at the beginning of the translation may be capitalized
        n = max(count_phrases(one, tuple(forms)) for one in {text, first})
        return max(n, count_inflected(text, tuple(forms))) if self._inflects and not kept else n

    def _term(self, texts: tuple[str, ...]) -> RequiredTerm:
        if texts not in self._known:
            forms = {text: self._forms(text) for text in texts}
            writable = [text for text in texts if UNK_ID not in forms[text][0]]
            self._known[texts] = RequiredTerm(
                forms=tuple(dict.fromkeys(form for text in writable for form in forms[text])),
                first_forms=tuple(map(tuple, self._tokenizer.encode(writable))),
                is_word=any(joins(text[-1]) for text in texts),
                texts=texts,
            )
        return self._known[texts]

    def _forms(self, text: str) -> list[Form]:
        """Return the tokens of a text after other text: with a space before it, or none."""
        tokenizer = self._tokenizer
        before, spaced = tokenizer.encode(["a", f"a {text}"])
        forms = [tuple(spaced[len(before) :])]
        if not joins(text[0]):  # a letter of a script without spaces
            bare = [id for id, _, _ in tokenizer.encode_with_offsets([text])[0]]
            if UNK_ID not in bare and tokenizer.decode([[*before, *bare]]) == [tokenizer.normalize(f"a{text}")]:
                forms.append(tuple(bare))
        return forms


def _without_case(term: RequiredTerm) -> frozenset[str]:
    """Return what a term at the beginning of a sentence has in common with others."""
    return frozenset(text.casefold() for text in term.texts)


def expected_forms(found: FoundTerm, source: str) -> tuple[str, ...]:
    """Return the translations of a term as it is written in a source.

    A lower-case term at the beginning of a sentence may be capitalized in the translation, one in capitals in capitals.
    """
    texts = found.entry.targets or (source,)
    if is_capitals(source) and not is_capitals(found.entry.source):
        texts = (*(text.upper() for text in texts), *texts)
    if source[:1].isupper() and not found.entry.source[:1].isupper():
        texts += tuple(text[:1].upper() + text[1:] for text in texts)
    return tuple(dict.fromkeys(texts))


def joining_tokens(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return (V,), True for tokens that continue a word."""
    return np.array([joins(first_character(tokenizer.bytes_of(id))) for id in range(tokenizer.vocab_size)])
