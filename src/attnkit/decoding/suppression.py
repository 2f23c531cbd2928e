"""Phrases that a search must not produce, however they are split into tokens.

A token is forbidden if it completes a phrase: the text so far and the token then hold the phrase between two boundaries
of words. Whether it does depends on the text so far only through a state: the parts of phrases that the text ends with,
and whether it ends at a boundary. States are found when a search reaches them. Letters: B sentences, K beams, V words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Part = tuple[int, int]  # a phrase, and how many of its bytes the text ends with


class TextEnd(NamedTuple):
    """What the text so far says about phrases."""

    parts: frozenset[Part]
    joins: bool  #: whether a letter now would belong to the last word


class SuppressedPhrases:
    """Phrases that are never produced, as bytes of tokens."""

    def __init__(self, phrases: Sequence[str], token_bytes: Sequence[bytes], joins: Callable[[str], bool]) -> None:
        """Take phrases without space around them, and the bytes of each token (V,).

        ``joins`` says whether a character belongs to a word together with letters beside it.
        """
        self._joins = joins
        self._phrases = [phrase.encode() for phrase in dict.fromkeys(phrases)]
        self._tokens = token_bytes
        self._sorted = sorted((token, id) for id, token in enumerate(token_bytes) if token)
        self._by_beginning = sorted((phrase, number) for number, phrase in enumerate(self._phrases))
        # Tokens that are a phrase, or begin with one: after the boundary of a word, and after a letter.
        alone = [(number, 0) for number, phrase in enumerate(self._phrases) if not self._joins(first_character(phrase))]
        whole = [(number, 0) for number in range(len(self._phrases))]
        self._at_once = {is_inside: set(self._completing(alone if is_inside else whole)) for is_inside in (False, True)}
        # Phrases that begin inside of a token, after a boundary within it.
        self._inner = {id: found for id in range(len(token_bytes)) if (found := list(self._begun_inside(id)))}
        self._always = {id for id, parts in self._inner.items() if any(part is None for part in parts)}
        self._numbers: dict[TextEnd, int] = {}
        self._states: list[TextEnd] = []
        self._next: dict[tuple[int, int], int] = {}
        self._forbidden: list[Tensor] = []  # (V,) for each state
        self.first = self._number(TextEnd(frozenset(), False))  #: number of the state before the first token

    def start(self, n_sentences: int, words: Tensor | None = None) -> SuppressionState:
        """Return the states of a search; ``words`` (M,) are the tokens of its shortlist."""
        return SuppressionState(self, n_sentences, words)

    def forbidden(self, states: Sequence[int]) -> Tensor:
        """Return which tokens (len(states), V) are forbidden after texts in these states."""
        return torch.stack([self._forbidden[state] for state in states])

    def after(self, state: int, token: int) -> int:
        """Return the number of the state that a token leads to."""
        found = self._next.get((state, token))
        if found is None:
            found = self._next[state, token] = self._number(self._advanced(self._states[state], token))
        return found

    def _number(self, state: TextEnd) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
            barred = torch.zeros(len(self._tokens), dtype=torch.bool)
            barred[list(self._always | self._at_once[state.joins] | set(self._completing(state.parts)))] = True
            self._forbidden.append(barred)
        return number

    def _completing(self, parts: Iterable[Part]) -> Iterator[int]:
        """Yield tokens that complete a phrase which the text has begun."""
        for number, n_bytes in parts:
            phrase = self._phrases[number]
            rest = phrase[n_bytes:]
            at = bisect_left(self._sorted, (rest, -1))
            while at < len(self._sorted) and self._sorted[at][0].startswith(rest):
                token, id = self._sorted[at]
                if len(token) == len(rest) or self._is_boundary(
                    last_character(phrase), first_character(token[len(rest) :])
                ):
                    yield id
                at += 1

    def _advanced(self, state: TextEnd, token: int) -> TextEnd:
        """Return the state after a token."""
        text = self._tokens[token]
        if not text:
            return state
        parts = {
            (number, n_bytes + len(text))
            for number, n_bytes in state.parts
            if len(self._phrases[number]) > n_bytes + len(text) and self._phrases[number].startswith(text, n_bytes)
        }
        parts.update(
            (number, len(text))
            for number in self._beginning_with(text)
            if not (state.joins and self._joins(first_character(self._phrases[number])))
        )
        parts.update(part for part in self._inner.get(token, ()) if part is not None)
        return TextEnd(frozenset(parts), self._joins(last_character(text)))

    def _begun_inside(self, id: int) -> Iterator[Part | None]:
        """Yield the phrases that begin after a token's first byte; None for a whole one."""
        token = self._tokens[id]
        for begin in range(1, len(token)):
            if token[begin] & 0xC0 == 0x80 or not self._is_boundary(
                last_character(token[:begin]), first_character(token[begin:])
            ):
                continue
            rest = token[begin:]
            for number in self._beginning_with(rest):
                yield number, len(rest)
            for end in range(begin + 1, len(token) + 1):
                at = bisect_left(self._by_beginning, (token[begin:end], -1))
                is_phrase = at < len(self._by_beginning) and self._by_beginning[at][0] == token[begin:end]
                if is_phrase and (
                    end == len(token) or self._is_boundary(last_character(token[:end]), first_character(token[end:]))
                ):
                    yield None

    def _beginning_with(self, text: bytes) -> Iterator[int]:
        """Yield the longer phrases with this prefix."""
        at = bisect_left(self._by_beginning, (text, -1))
        while at < len(self._by_beginning) and self._by_beginning[at][0].startswith(text):
            phrase, number = self._by_beginning[at]
            if len(phrase) > len(text):
                yield number
            at += 1

    def _is_boundary(self, before: str, after: str) -> bool:
        """Return whether a word may end between two characters."""
        return not (self._joins(before) and self._joins(after))


class SuppressionState:
    """States of the texts of a search, one per beam."""

    def __init__(self, phrases: SuppressedPhrases, n_sentences: int, words: Tensor | None) -> None:
        """Start sentences; words of the search are indices of a shortlist ``words`` (M,)."""
        self._phrases, self._words = phrases, words
        self._numbers = [] if words is None else words.tolist()
        self._states = [[phrases.first] for _ in range(n_sentences)]  # (B, K)

    def mask(self, scores: Tensor) -> None:
        """Set forbidden words to -inf in scores (B, K, V) in place."""
        # All beams are equal at first: one state, and as many rows as there are beams.
        width = scores.shape[1]
        flat = [state for own in self._states for state in (own * width if len(own) < width else own)]
        barred = self._phrases.forbidden(flat).to(scores.device)  # (B * K, V)
        if self._words is not None:
            barred = barred[:, self._words]
        n_words = barred.shape[1]
        scores[..., :n_words].masked_fill_(barred.view(*scores.shape[:2], n_words), -torch.inf)

    def advance(self, parents: Tensor | None, words: Tensor) -> None:
        """Append words (B, K) to beams ``parents`` (B, K); None: each extends itself."""
        after, numbers = self._phrases.after, self._numbers
        chosen = words.tolist()
        before = [list(range(words.shape[1]))] * len(chosen) if parents is None else parents.tolist()
        self._states = [
            [after(own[parent], numbers[word] if numbers else word) for parent, word in zip(*row, strict=True)]
            for own, *row in zip(self._states, before, chosen, strict=True)
        ]

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the sentences of the given rows (n,)."""
        self._states = [self._states[row] for row in rows.tolist()]


def first_character(text: bytes) -> str:
    """Return the first character of UTF-8 text, U+FFFD if it is not whole."""
    return text[:4].decode(errors="replace")[:1] or " "


def last_character(text: bytes) -> str:
    """Return the last character of UTF-8 text, U+FFFD if it is not whole."""
    return text[-4:].decode(errors="replace")[-1:] or " "
