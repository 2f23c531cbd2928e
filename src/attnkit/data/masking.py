"""Masking for masked language models: a pure function of (seed, epoch, row), computed for a batch at once."""

from dataclasses import dataclass

import numpy as np

from attnkit.data.config import MaskingConfig
from attnkit.data.permutation import Bools, FeistelPermutation, Floats, Ids, uniform_per_token


@dataclass(frozen=True)
class MaskVocabulary:
    """Ids that masking needs: the mask, possible replacements, the unknown token."""

    mask: int  #: the id of [MASK]
    ordinary: Ids  #: the ids that a token may be replaced by: all but special ones
    unknown: int | None = None  #: an id in the text that is never masked, as its text is unknown. None without one.


@dataclass(frozen=True)
class MaskedBatch:
    """Rows with masked tokens."""

    ids: Ids  #: (B, T), a copy
    chosen: Ids  #: (N,) places of the chosen tokens in the flattened rows, ascending
    targets: Ids  #: (N,) what stood there


class Masking:
    """Random masking of tokens, words or spans for one epoch."""

    def __init__(self, config: MaskingConfig, words: MaskVocabulary, seed: int, epoch: int) -> None:
        self.config, self.words = config, words
        self._key = (seed, epoch)

    def counts(self, rows: Ids, n_free: Ids) -> Ids:
        """Return the number of tokens to mask per row (B,), for token-level masking.

        Args:
            rows: (B,) number of each row in the corpus.
            n_free: (B,) tokens of each row that may be chosen.
        """
        wanted = self.config.mask_prob * n_free
        found = np.floor(wanted - self._dither(rows)).astype(np.int64) + 1
        return np.clip(found, 0, n_free)

    def choose(self, free: Bools, begins: Bools | None, rows: Ids) -> Bools:
        """Return (B, T) which tokens are chosen; see ``apply``."""
        chosen = np.zeros(free.shape, np.bool_)
        chosen.reshape(-1)[self._choose(free, begins, rows)[0]] = True
        return chosen

    def apply(self, ids: Ids, free: Bools, begins: Bools | None, rows: Ids) -> MaskedBatch:
        """Select tokens and mask them.

        Args:
            ids: (B, T) the tokens.
            free: (B, T) True where a token may be chosen: not at special ones, nor at padding.
            begins: (B, T) True where a token begins a word; not needed where tokens are the units.
            rows: (B,) number of each row in the corpus.
        """
        chosen, unit_starts = self._choose(free, begins, rows)
        coins = self._coins("treat", unit_starts, rows, ids.shape[1])  # one for all tokens of a unit
        flat = ids.reshape(-1)
        targets = flat[chosen]
        masked = flat.copy()
        mask_prob, random_prob = self.config.mask_replace_prob, self.config.random_replace_prob
        masked[chosen[coins < mask_prob]] = self.words.mask
        other = chosen[(coins >= mask_prob) & (coins < mask_prob + random_prob)]
        draws = self._coins("word", other, rows, ids.shape[1]) * len(self.words.ordinary)
        masked[other] = self.words.ordinary[draws.astype(np.int64)]
        return MaskedBatch(masked.reshape(ids.shape), chosen, targets)

    def _choose(self, free: Bools, begins: Bools | None, rows: Ids) -> tuple[Ids, Ids]:
        """Return (N,) the chosen tokens' places in the flattened rows, ascending, and those of their units' starts.

        A row's units are chosen in a random order until the row has its share. The unit that the share ends in is
        chosen with the probability that makes the expected number of tokens the share exactly. So a short row may have
        none.
        """
        config, length = self.config, free.shape[1]
        tokens = np.flatnonzero(free)  # (E,)
        opens = np.ones(len(tokens), np.bool_)  # (E,) True at the first token of each unit
        if config.mask_unit != "tokens":
            assert begins is not None
            # A word continues where the token before it may be chosen too and no word begins.
            opens[1:] = begins.reshape(-1)[tokens[1:]] | (np.diff(tokens) > 1) | (tokens[1:] % length == 0)
            if config.mask_unit == "spans":
                opens = self._spans(tokens, opens, rows, length)
        unit = np.cumsum(opens) - 1  # (E,) the unit of each token
        firsts = tokens[opens]  # (U,) the place of each unit's first token
        owner = firsts // length
        order = np.lexsort((self._coins("order", firsts, rows, length), owner))
        sizes, owners = np.bincount(unit, minlength=len(firsts))[order], owner[order]
        behind = np.cumsum(sizes) - sizes
        row_starts = np.searchsorted(owners, np.arange(len(rows)))
        before = behind - behind[row_starts[owners]] if len(owners) else behind
        wanted = config.mask_prob * free.sum(1)
        dither = self._dither(rows)
        taken = np.zeros(len(order), np.bool_)
        taken[order] = before + sizes * dither[owners] <= wanted[owners]
        kept = taken[unit]
        return tokens[kept], firsts[unit[kept]]

    def _spans(self, tokens: Ids, opens: Bools, rows: Ids, length: int) -> Bools:
        """Return which tokens begin a span, of those that begin a word.

        Spans tile each stretch of words: one ends after a word with a fixed probability, so lengths are geometric.
        """
        firsts = np.flatnonzero(opens)
        starts = self._coins("span", tokens[firsts], rows, length) < self.config.span_geometric_p
        gaps = np.ones(len(firsts), np.bool_)
        previous = tokens[firsts[1:] - 1]
        gaps[1:] = (tokens[firsts[1:]] - previous > 1) | (tokens[firsts[1:]] % length == 0)
        starts |= gaps
        at = np.arange(len(firsts))
        since = at - np.maximum.accumulate(np.where(starts, at, 0))
        starts |= since % self.config.max_span_words == 0
        found = np.zeros(len(tokens), np.bool_)
        found[firsts[starts]] = True
        return found

    def _dither(self, rows: Ids) -> Floats:
        """Return (B,) numbers in (0, 1]."""
        return FeistelPermutation("mask share", *self._key).uniform(rows) + 2**-32

    def _coins(self, purpose: str, places: Ids, rows: Ids, length: int) -> Floats:
        """Return a number in [0, 1) for each place of the flattened rows."""
        return uniform_per_token(f"mask {purpose}", self._key, rows, *np.divmod(places, length))
