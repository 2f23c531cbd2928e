"""Decoding constraints: forbidden words, prefixes, lengths, repetition penalty.

Forbidden words cannot be chosen, but the distribution is not renormalised, so results keep the log-probability that the
model assigns to them. Only the repetition penalty changes the distribution (as in CTRL). Letters: B sentences, K beams,
V words, T words so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID

if TYPE_CHECKING:
    from attnkit.decoding.required_terms import RequiredTerm
    from attnkit.decoding.stopping import StopCheck
    from attnkit.decoding.suppression import SuppressedPhrases, SuppressionState


@dataclass(frozen=True)
class Sources:
    """Inputs of a search, one sentence per row."""

    ids: Tensor  #: (B, S), padded at the end
    mask: Tensor | None = None  #: (B, S), True at real tokens; None if nothing is padded
    prefix: Tensor | None = None  #: (B, P) ids of forced prefixes, padded; included in score and length
    keys: Sequence[int] | None = None  #: random-number key per sentence, e.g. its line number; None: its index
    # Shortlist of each sentence: the ids allowed besides EOS and its prefix; None: the whole vocabulary.
    allowed: Sequence[NDArray[np.int32]] | None = None
    context_ids: Tensor | None = None  #: (B, T) preceding ids, e.g. a prompt, seen by the repetition constraints
    suppressed: SuppressedPhrases | None = None  #: phrases that are never produced, unless a prefix has them
    required: RequiredTerms | None = None  #: terms that translations must have; for beam search
    n_given: int = 0  #: first tokens of the prefixes that are part of the task, whose probability does not count
    stops: StopCheck | None = None  #: says which sentences are to end, whatever is found of them


@dataclass(frozen=True)
class RequiredTerms:
    """Terms that the translations of a batch must have."""

    terms: Sequence[Sequence[RequiredTerm]]  #: of each sentence
    joins: Tensor  #: (V,), True for tokens that continue a word


@dataclass(frozen=True)
class SourceBatch:
    """Validated inputs of a search, one sentence per row."""

    lengths: list[int]  #: number of source tokens per sentence
    limits: list[int]  #: maximum steps per sentence, from its source length and prefix
    prefix: Tensor | None  #: forced prefixes (B, P), padded at the end, or None
    shortest_prefix: int
    keys: list[int]  #: random-number key per sentence, combined with the seed
    device: torch.device
    context_ids: Tensor | None = None  #: words (B, T) that precede the first step, or None
    n_given: int = 0  #: first tokens of the prefixes whose probability does not count
    suppressed: SuppressedPhrases | None = None
    words: Tensor | None = None  #: ids (M,) of the words of a shortlist, or None
    required: RequiredTerms | None = None
    stops: StopCheck | None = None

    def stopped(self, alive: Tensor) -> Tensor | None:
        """Return which of the sentences ``alive`` (n,) are to end; None if none is."""
        flags = None if self.stops is None else self.stops()  # (B,)
        if flags is None or not flags.any():
            return None
        return torch.from_numpy(flags).to(alive.device)[alive]


def make_batch(sources: Sources, config: SearchConfig) -> SourceBatch:
    """Validate the inputs and set the maximum number of steps per sentence.

    Raises ``ValueError`` if shapes do not match, or a prefix contains BOS_ID, EOS_ID or padding before a word.
    """
    n_sentences, n_tokens = sources.ids.shape
    prefix, keys = sources.prefix, sources.keys
    lengths = [n_tokens] * n_sentences if sources.mask is None else sources.mask.sum(1).tolist()
    if keys is not None and len(keys) != n_sentences:
        raise ValueError(f"{len(keys)} keys for {n_sentences} sentences; one per sentence is needed")
    if prefix is not None:
        if prefix.ndim != 2 or prefix.shape[0] != n_sentences:
            raise ValueError("prefix must be (B, P), one row per sentence")
        is_word = prefix != PAD_ID
        # A word to the right of padding, or a special token among the words.
        if bool((is_word[:, 1:] & ~is_word[:, :-1]).any()) or bool(((prefix == BOS_ID) | (prefix == EOS_ID)).any()):
            raise ValueError("a prefix must contain only words, with padding only at its end")
    if sources.context_ids is not None and (len(sources.context_ids) != n_sentences or sources.allowed is not None):
        raise ValueError("context_ids must have one row per sentence, and cannot be combined with a shortlist")
    if sources.required is not None and len(sources.required.terms) != n_sentences:
        raise ValueError(f"terms of {len(sources.required.terms)} sentences for {n_sentences}")
    forced = [0] * n_sentences if prefix is None else is_word.sum(1).tolist()
    least = [m + 1 for m in forced]  # steps without which a prefix, terms and EOS do not fit
    if sources.required is not None:
        own = [sum(term.n_tokens for term in terms) for terms in sources.required.terms]
        least = [m + n for m, n in zip(least, own, strict=True)]
    return SourceBatch(
        lengths=lengths,
        limits=[max(config.limit(n), config.min_length + 1, m) for n, m in zip(lengths, least, strict=True)],
        prefix=prefix if max(forced, default=0) else None,
        shortest_prefix=min(forced, default=0),
        keys=list(range(n_sentences)) if keys is None else list(keys),
        device=sources.ids.device,
        context_ids=sources.context_ids,
        n_given=sources.n_given,
        suppressed=sources.suppressed,
        required=sources.required,
        stops=sources.stops,
    )


class Constraints:
    """Constraints of one search, with the words so far if a constraint needs them."""

    def __init__(self, config: SearchConfig, batch: SourceBatch) -> None:
        self.config = config
        self.prefix, self.n_given = batch.prefix, batch.n_given
        self.words: Tensor | None = None
        self.suppression: SuppressionState | None = None
        if batch.suppressed is not None:
            self.suppression = batch.suppressed.start(len(batch.limits), batch.words)
        if config.no_repeat_ngram_size or config.repetition_penalty != 1:
            none = torch.empty(len(batch.limits), 0, dtype=torch.long, device=batch.device)
            self.words = (none if batch.context_ids is None else batch.context_ids)[:, None]

    def apply_repetition_penalty(self, logits: Tensor) -> Tensor:
        """Apply the repetition penalty to logits (B, K, V) in place and return them."""
        penalty = self.config.repetition_penalty
        if penalty != 1 and self.words is not None and self.words.shape[-1]:
            used = logits.gather(-1, self.words)  # (B, K, T)
            # Dividing positive and multiplying negative logits lowers both (Keskar et al. 2019).
            logits.scatter_(-1, self.words, torch.where(used > 0, used / penalty, used * penalty))
        return logits

    def forced(self, step: int) -> tuple[Tensor, Tensor] | None:
        """Return a step's forced words and mask (B, 1), or None past all prefixes."""
        if self.prefix is None or step >= self.prefix.shape[1]:
            return None
        words = self.prefix[:, step : step + 1]
        return words, words != PAD_ID

    def force(self, words: Tensor, step: int) -> Tensor:
        """Return the chosen words (B, K) of a step, replaced by forced words if any."""
        forced = self.forced(step)
        return words if forced is None else torch.where(forced[1], forced[0], words)

    def mask_logits(self, log_probs: Tensor, step: int) -> None:
        """Set log-probabilities (B, K, V) of all but allowed (or forced) words to -inf."""
        forced = self.forced(step)
        if forced is None:
            self.mask_scores(log_probs, step)
            return
        words, there = forced[0].expand(log_probs.shape[:2])[..., None], forced[1][..., None]
        kept = log_probs.gather(-1, words)  # (B, K, 1)
        if step < self.n_given:
            kept = torch.zeros_like(kept)
        self.mask_scores(log_probs, step)
        log_probs.masked_fill_(there, -torch.inf)
        log_probs.scatter_(-1, words, torch.where(there, kept, log_probs.gather(-1, words)))

    def mask_scores(self, scores: Tensor, step: int) -> None:
        """Set forbidden words to -inf in place, in logits or log-probabilities (B, K, V)."""
        end = scores[..., EOS_ID].clone() if step < self.config.min_length else None
        # PAD and BOS have ids below EOS.
        scores[..., :EOS_ID] = -torch.inf
        if self.config.no_unk:
            scores[..., UNK_ID] = -torch.inf
        if self.config.n_words is not None:
            # Ids that only pad the vocabulary to a round size.
            scores[..., self.config.n_words :] = -torch.inf
        if self.suppression is not None:
            self.suppression.mask(scores)
        size = self.config.no_repeat_ngram_size
        if size and self.words is not None and (n_words := self.words.shape[-1]) >= size:
            # (B, K, T - size + 1, size): all n-grams so far.
            grams = self.words.unfold(-1, size, 1)
            recent = self.words[..., None, n_words - size + 1 :]  # (B, K, 1, size - 1)
            repeats = (grams[..., :-1] == recent).all(-1)  # (B, K, T - size + 1)
            # Where nothing repeats, this masks PAD again.
            scores.scatter_(-1, torch.where(repeats, grams[..., -1], PAD_ID), -torch.inf)
        if end is not None:
            scores[..., EOS_ID] = -torch.inf
            # If neither constraints nor shortlist leave a word, the sentence may end before its minimum length.
            stuck = scores.amax(-1) == -torch.inf
            scores[..., EOS_ID] = torch.where(stuck, end, -torch.inf)

    def advance(self, parents: Tensor | None, words: Tensor) -> None:
        """Append words (B, K) to beams ``parents`` (B, K); None: each extends itself."""
        if self.suppression is not None:
            self.suppression.advance(parents, words)
        if self.words is None:
            return
        old = self.words
        if parents is not None:
            old = old.gather(1, parents[..., None].expand(*parents.shape, old.shape[-1]))
        self.words = torch.cat([old, words[..., None]], -1)  # (B, K, T + 1)

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the sentences of the given rows (n,)."""
        if self.suppression is not None:
            self.suppression.select_rows(rows)
        if self.words is not None:
            self.words = self.words[rows]
        if self.prefix is not None:
            self.prefix = self.prefix[rows]
