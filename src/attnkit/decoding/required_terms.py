"""Terms that a translation must contain, and progress with them. Torch-free.

A term has forms, each a sequence of tokens; any one of them will do. The forms of all terms of a sentence are a trie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

Form = tuple[int, ...]  # ids of tokens


@dataclass(frozen=True)
class RequiredTerm:
    """A term that must occur, as words of its own, in one of its forms."""

    forms: tuple[Form, ...]  #: tokens of each form after other text; none if the vocabulary cannot write it
    first_forms: tuple[Form, ...]  #: tokens of each form at the beginning of a text
    is_word: bool = True  #: whether it ends with a letter or digit, so that none may follow
    source: str = ""  #: text of the term in the source
    texts: tuple[str, ...] = ()  #: text of each form

    @property
    def n_tokens(self) -> int:
        """Length of the longest form."""
        return max(map(len, self.forms + self.first_forms), default=0)

    def renumbered(self, number: Callable[[int], int]) -> RequiredTerm:
        """Return the term in other ids, such as the indices of a shortlist."""
        forms, first = (
            tuple(tuple(number(id) for id in form) for form in own) for own in (self.forms, self.first_forms)
        )
        return replace(self, forms=forms, first_forms=first)


class Progress(NamedTuple):
    """How far a text is with the terms of its sentence."""

    met: int = 0  #: bit i is set if the text has term i
    node: int = 0  #: node of the trie that the text ends with; 0 outside of any form
    last: int = -1  #: term that the last token has completed, -1 for none


class TermTrie:
    """Trie of the forms of a sentence's terms, which advances ``Progress``."""

    def __init__(self, terms: Sequence[RequiredTerm]) -> None:
        self.sizes = [term.n_tokens for term in terms]
        self.n_tokens = sum(self.sizes)  #: tokens of all terms: ``n_done`` of a text that has them all
        self._all = (1 << len(terms)) - 1
        self._is_word = [term.is_word for term in terms]
        self._depths = [0, 0]
        self._children: list[dict[int, int]] = [{}, {}]  # 0: after other text; 1: at the beginning
        self._ends: list[list[int]] = [[], []]  # terms that a node completes
        self._under = [0, 0]  # bits of the terms that a node leads to
        for number, term in enumerate(terms):
            for root, forms in enumerate((term.forms, term.first_forms)):
                for form in forms:
                    self._add(root, form, number)

    def _add(self, node: int, form: Form, term: int) -> None:
        self._under[node] |= 1 << term
        for token in form:
            found = self._children[node].setdefault(token, len(self._children))
            if found == len(self._children):
                self._children.append({})
                self._ends.append([])
                self._under.append(0)
                self._depths.append(self._depths[node] + 1)
            node = found
            self._under[node] |= 1 << term
        self._ends[node].append(term)

    def has_all(self, text: Progress) -> bool:
        """Return whether a text has all terms."""
        return text.met == self._all

    def n_done(self, text: Progress) -> int:
        """Return the number of tokens of terms in a text, those of a begun one included."""
        met = sum(size for i, size in enumerate(self.sizes) if text.met >> i & 1)
        if text.last >= 0 or not text.node:
            return met
        unmet = self._under[text.node] & ~text.met
        longest = max(size for i, size in enumerate(self.sizes) if unmet >> i & 1)
        return met + min(self._depths[text.node], longest - 1)

    def must_end_word(self, text: Progress) -> bool:
        """Return whether a letter now would change the word just completed."""
        return text.last >= 0 and self._is_word[text.last]

    def following(self, text: Progress, *, at_begin: bool) -> Iterator[int]:
        """Yield tokens that begin a term, or continue a begun one."""
        met, node = text.met, text.node
        if text.last >= 0 or not node:
            node = int(at_begin)
        for token, child in self._children[node].items():
            if self._under[child] & ~met:
                yield token

    def after(self, text: Progress, token: int, *, at_begin: bool, joins: bool) -> Progress:
        """Return the progress after a token.

        ``at_begin`` is True for the first token of a text, ``joins`` if its first character is a letter or digit.
        """
        met, node, last = text
        if node and (child := self._children[node].get(token)) is not None:
            # A longer form replaces the one that was complete.
            before = met & ~(1 << last) if last >= 0 else met
            if self._under[child] & ~before:
                return self._arrived(before, child)
        if joins and self.must_end_word(text):
            met &= ~(1 << last)
        child = self._children[int(at_begin)].get(token)
        if child is None or not self._under[child] & ~met:
            return Progress(met)
        return self._arrived(met, child)

    def _arrived(self, met: int, node: int) -> Progress:
        for term in self._ends[node]:
            if not met >> term & 1:
                return Progress(met | 1 << term, node, term)
        return Progress(met, node)
