"""Batched token masking as a pure function of (seed, epoch, row)."""

from dataclasses import dataclass

import numpy as np

from attnkit.data.config import MaskingConfig
from attnkit.data.permutation import Bools, FeistelPermutation, Floats, Ids, uniform_per_token


@dataclass(frozen=True)
class MaskVocabulary:
    """Token ids for masking: mask, random replacements and unknown."""

    mask: int  #: id of [MASK]
    ordinary: Ids  #: ids of random replacements: all except special tokens
    unknown: int | None = None  #: id of unknown tokens, which are never masked; None: no such id


@dataclass(frozen=True)
class MaskedBatch:
    """Rows with masked tokens."""

    ids: Ids  #: (B, T) masked copy
    chosen: Ids  #: (N,) positions of the selected tokens in the flattened rows, ascending
    targets: Ids  #: (N,) original tokens at these positions


class Masking:
    """Random masking of tokens, words or spans for one epoch."""

    def __init__(self, config: MaskingConfig, words: MaskVocabulary, seed: int, epoch: int) -> None:
        self.config, self.words = config, words
        self._key = (seed, epoch)

    def counts(self, rows: Ids, n_free: Ids) -> Ids:
        """Return the number of tokens to mask per row (B,), for token-level masking.

        Args:
            rows: (B,) Number of each row in the corpus.
            n_free: (B,) Maskable tokens of each row.
        """
        wanted = self.config.mask_prob * n_free
        found = np.floor(wanted - self._dither(rows)).astype(np.int64) + 1
        return np.clip(found, 0, n_free)

    def choose(self, free: Bools, begins: Bools | None, rows: Ids) -> Bools:
        """Return the mask (B, T) of selected tokens; see ``apply`` for the arguments."""
        chosen = np.zeros(free.shape, np.bool_)
        chosen.reshape(-1)[self._choose(free, begins, rows)[0]] = True
        return chosen

    def apply(self, ids: Ids, free: Bools, begins: Bools | None, rows: Ids) -> MaskedBatch:
        """Select tokens and mask or replace them.

        Args:
            ids: (B, T) Tokens.
            free: (B, T) True at maskable tokens: neither special tokens nor padding.
            begins: (B, T) True at the first token of each word; unused if the masking unit is tokens.
            rows: (B,) Number of each row in the corpus.
        """
        chosen, unit_starts = self._choose(free, begins, rows)
        coins = self._coins("treat", unit_starts, rows, ids.shape[1])  # one draw per unit, shared by its tokens
        flat = ids.reshape(-1)
        targets = flat[chosen]
        masked = flat.copy()
        mask_prob, random_prob = self.config.mask_replace_prob, self.config.random_replace_prob
        masked[chosen[coins < mask_prob]] = self.words.mask
        other = chosen[(coins >= mask_prob) & (coins < mask_prob + random_prob)]
        draws = self._coins("word", other, rows, ids.shape[1]) * len(self.words.ordinary)
        masked[other] = self.words.ordinary[draws.astype(np.int64)]
        return MaskedBatch(masked.reshape(ids.shape), chosen, targets)

    def draws(self, chosen: Ids, rows: Ids, length: int) -> Floats:
        """Return a number in [0, 1) per selected token (N,), for what a model samples.

        Like masks, it depends on seed, epoch, row and position alone.
        """
        return self._coins("sample", chosen, rows, length)

    def _choose(self, free: Bools, begins: Bools | None, rows: Ids) -> tuple[Ids, Ids]:
        """Return the positions (N,) of selected tokens and of their units' first tokens.

        Positions are ascending in the flattened rows. Units are selected in random order until the row has its share.
        The last unit is selected with a probability that makes the expected number of selected tokens equal to the
        share. A short row may therefore have none.
        """
        config, length = self.config, free.shape[1]
        tokens = np.flatnonzero(free)  # (E,)
        opens = np.ones(len(tokens), np.bool_)  # (E,) True at the first token of each unit
        if config.mask_unit != "tokens":
            assert begins is not None
            # A token continues a word if it does not start one and the token before it is maskable, too.
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
        """Return which of the tokens that start a word also start a span.

        Spans cover all words. Each span ends after a word with a fixed probability, so lengths are geometric.
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
        """Return a pseudo-random number in (0, 1] per row, (B,)."""
        return FeistelPermutation("mask share", *self._key).uniform(rows) + 2**-32

    def _coins(self, purpose: str, places: Ids, rows: Ids, length: int) -> Floats:
        """Return a pseudo-random number in [0, 1) per position in the flattened rows."""
        return uniform_per_token(f"mask {purpose}", self._key, rows, *np.divmod(places, length))
