"""Ensemble decoding (Sutskever et al. 2014), optionally with shortlists.

A shortlist restricts a sentence to some words; logits are computed only for the union of a batch's shortlists. During
the search, a word is an index in that union, which is sorted by id and starts with PAD, BOS and EOS. Ties are therefore
broken as without a shortlist. Words outside a sentence's own shortlist have probability 0.

Letters: B batch, K beam, S source length, V vocabulary, M words of the union, D model width.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Constraints, RequiredTerms, SourceBatch, Sources
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Decodable, DecoderState

ROUND = 512  #: the number of words in a union is rounded up to a multiple of this


class BatchShortlist:
    """Union of a batch's shortlists; each sentence is limited to its own words."""

    def __init__(self, own: Sequence[NDArray[np.int64]], device: torch.device) -> None:
        """Build the union of ``own``: ascending ids per sentence, at least one each."""
        usable = np.zeros((len(own), 1 + max([EOS_ID, *(int(ids[-1]) for ids in own)])), bool)  # (B, ids)
        for row, ids in zip(usable, own, strict=True):
            row[ids] = True
        inside: NDArray[np.bool_] = np.any(usable, 0)
        inside[[PAD_ID, BOS_ID, EOS_ID]] = True
        # The first matrix product of a new width is compiled, which costs as much as many products. The union is
        # therefore filled up to a size that recurs.
        inside[np.flatnonzero(~inside)[: -int(inside.sum()) % ROUND]] = True
        union = np.flatnonzero(inside)
        self.words = torch.from_numpy(union).to(device)  #: (M,): the ids of the union, ascending
        self._barred = torch.from_numpy(~usable[:, None, union]).to(device)  # (B, 1, M), the same for all beams

    def mask_unlisted(self, logits: Tensor) -> Tensor:
        """Set logits (B, K, M) outside each sentence's shortlist to -inf in place."""
        return logits.masked_fill_(self._barred, -torch.inf)

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the sentences of the given rows (n,)."""
        self._barred = self._barred[rows]


def apply_shortlist(
    sources: Sources, batch: SourceBatch, config: SearchConfig
) -> tuple[BatchShortlist | None, SourceBatch, SearchConfig]:
    """Return the shortlist of a batch, and its batch and settings in union indices.

    Without shortlists, returns None and both unchanged. Raises ``ValueError`` for a missing list or a negative id.
    """
    if sources.allowed is None:
        return None, batch, config
    if len(sources.allowed) != len(batch.limits):
        counts = f"{len(sources.allowed)} shortlists for {len(batch.limits)} sentences"
        raise ValueError(f"{counts}; one per sentence is needed")
    prefixes = [[]] * len(batch.limits) if batch.prefix is None else batch.prefix.tolist()
    terms = [()] * len(batch.limits) if batch.required is None else batch.required.terms
    own = []
    for ids, prefix, needed in zip(sources.allowed, prefixes, terms, strict=True):
        if len(ids) and int(min(ids)) < 0:
            raise ValueError("shortlist ids must not be negative")
        # Every sentence needs EOS and the words of its prefix and of its terms.
        needed_ids = [id for term in needed for form in term.forms + term.first_forms for id in form]
        forced = np.array([EOS_ID, *(id for id in prefix if id != PAD_ID), *needed_ids], np.int64)
        free = np.asarray(ids, np.int64)
        own.append(np.unique(np.concatenate([free[free != UNK_ID] if config.no_unk else free, forced])))
    shortlist = BatchShortlist(own, batch.device)
    batch = replace(batch, words=shortlist.words)
    if batch.prefix is not None:
        # Padding, BOS and EOS keep their ids: they come first in the union.
        batch = replace(batch, prefix=torch.searchsorted(shortlist.words, batch.prefix))
    if batch.required is not None:
        places = {id: place for place, id in enumerate(shortlist.words.tolist())}
        renumbered = [[term.renumbered(places.__getitem__) for term in own] for own in batch.required.terms]
        batch = replace(batch, required=RequiredTerms(renumbered, batch.required.joins[shortlist.words]))
    # Words of the union have other numbers than UNK_ID.
    config = config.model_copy(update={"no_unk": False})
    if config.n_words is not None:
        # The union is ascending, so unused ids are at its end, too.
        config = config.model_copy(update={"n_words": int((shortlist.words < config.n_words).sum())})
    return shortlist, batch, config


class Ensemble:
    """Models with decoder states, whose probabilities and attention are averaged."""

    def __init__(self, models: Sequence[Decodable], states: Sequence[DecoderState], *, normalised: bool = True,
                 shortlist: BatchShortlist | None = None) -> None:  # fmt: skip
        """Initialize from models and their first decoder states.

        Logits of a single model keep its precision unless ``normalised``. With a shortlist, words are union indices.
        """
        self.models, self.states, self.shortlist = list(models), list(states), shortlist
        # A softmax in half precision would lose the differences between beams.
        self._widens = normalised or len(self.models) > 1
        self._buffers: dict[str, Tensor] = {}

    def logits(self, prev: Tensor, rules: Constraints) -> Tensor:
        """Run one step on words ``prev`` (B, K) and return logits (B, K, V).

        The caller may overwrite the result. The repetition penalty is applied to each model before averaging.

        Raises ``ValueError`` if the models' target vocabularies differ in size.
        """
        found, short = [], self.shortlist
        words = prev if short is None else short.words[prev]  # (B, K), ids of the full vocabulary
        for i, model in enumerate(self.models):
            hidden, self.states[i] = model.step(words, self.states[i])  # (B, K, D)
            logits = model.head(hidden) if short is None else short.mask_unlisted(model.head(hidden, short.words))
            if self._widens and logits.dtype != torch.float32:
                logits = self._scratch(f"logits {i}", logits).copy_(logits)
            logits = rules.apply_repetition_penalty(logits)
            if len(self.models) == 1:
                return logits
            found.append(logits.log_softmax(-1))
        if len({each.shape for each in found}) > 1:
            raise ValueError("the models of an ensemble must share their target vocabulary")
        log_probs = torch.stack(found)  # (models, B, K, V)
        # Log of the mean probabilities, not the mean of the logs.
        return log_probs.logsumexp(0).sub_(math.log(len(found)))

    def log_probs(self, logits: Tensor) -> Tensor:
        """Return ``logits`` as log-probabilities, in a buffer that the next call reuses."""
        buffer = self._scratch("log_probs", logits)
        return buffer.copy_(logits) if len(self.models) > 1 else torch.log_softmax(logits, -1, out=buffer)

    def _scratch(self, name: str, like: Tensor) -> Tensor:
        """Return a float32 buffer with the shape of ``like``, reused at every step.

        Large freed tensors return to the system, and page faults would then take half of the time of each step.
        """
        # The batch only shrinks during a search, so the buffer of an early step fits all later ones.
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < like.numel():
            buffer = self._buffers[name] = torch.empty(like.numel(), device=like.device)
        return buffer[: like.numel()].view(like.shape)

    @property
    def attention(self) -> Tensor | None:
        """Attention (B, K, S) of the last step, or None unless all models record it."""
        weights = [state.attention for state in self.states]
        present = [weight.float() for weight in weights if weight is not None]
        if not present or len(present) < len(weights):
            return None
        # (models, B, K, S) to (B, K, S)
        return present[0] if len(present) == 1 else torch.stack(present).mean(0)

    def reorder_beams(self, parents: Tensor) -> None:
        """Make beam k of sentence b continue the old beam ``parents[b, k]`` (B, K)."""
        self.states = [state.reorder_beams(parents) for state in self.states]

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the sentences of the given rows (n,)."""
        self.states = [state.select_rows(rows) for state in self.states]
        if self.shortlist is not None:
            self.shortlist.select_rows(rows)
