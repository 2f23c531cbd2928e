"""Ensemble of models that are decoded together (Sutskever et al. 2014), over all words or over a shortlist.

A shortlist restricts a search to some words per sentence; logits are computed for their union only. In the search a
word is its place in the union, which is in the order of ids and starts with padding, begin and end: so ties are broken
as they are over the whole vocabulary. What a sentence may not use has probability 0 for it, whatever others use.

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
from attnkit.decoding.constraints import Constraints, SourceBatch, Sources
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, Decodable, DecoderState

ROUND = 512  #: multiple to which the number of words of a batch is rounded up


class BatchShortlist:
    """The words of a batch. Probabilities are shared out among those that a sentence may use."""

    def __init__(self, own: Sequence[NDArray[np.int64]], device: torch.device) -> None:
        """Take the ids that each sentence may use, ascending, one at least."""
        usable = np.zeros((len(own), 1 + max([EOS_ID, *(int(ids[-1]) for ids in own)])), bool)  # (B, ids)
        for row, ids in zip(usable, own, strict=True):
            row[ids] = True
        inside: NDArray[np.bool_] = np.any(usable, 0)
        inside[[PAD_ID, BOS_ID, EOS_ID]] = True
        # A product of new widths is compiled first, which costs as much as many products: so the union is filled up to
        # a size that recurs.
        inside[np.flatnonzero(~inside)[: -int(inside.sum()) % ROUND]] = True
        union = np.flatnonzero(inside)
        self.words = torch.from_numpy(union).to(device)  #: (M,): the ids of the union, ascending
        self._barred = torch.from_numpy(~usable[:, None, union]).to(device)  # (B, 1, M), the same for all beams

    def mask_unlisted(self, logits: Tensor) -> Tensor:
        """Set to -inf, in place, the logits (B, K, M) of words that a sentence may not use."""
        return logits.masked_fill_(self._barred, -torch.inf)

    def select_rows(self, rows: Tensor) -> None:
        """Drop all sentences but the given rows (n,)."""
        self._barred = self._barred[rows]


def apply_shortlist(
    sources: Sources, batch: SourceBatch, config: SearchConfig
) -> tuple[BatchShortlist | None, SourceBatch, SearchConfig]:
    """Return the shortlist of a batch, and batch and settings in its terms; None and both as they are without one.

    Raises ``ValueError``: there is not one list of ids per sentence, or an id is below 0.
    """
    if sources.allowed is None:
        return None, batch, config
    if len(sources.allowed) != len(batch.limits):
        counts = f"{len(sources.allowed)} shortlists for {len(batch.limits)} sentences"
        raise ValueError(f"{counts}; one per sentence is needed")
    prefixes = [[]] * len(batch.limits) if batch.prefix is None else batch.prefix.tolist()
    own = []
    for ids, prefix in zip(sources.allowed, prefixes, strict=True):
        if len(ids) and int(min(ids)) < 0:
            raise ValueError("shortlist ids must not be negative")
        # A sentence must be able to end, and to follow its prefix.
        forced = np.array([EOS_ID, *(id for id in prefix if id != PAD_ID)], np.int64)
        own.append(np.unique(np.concatenate([ids, forced])).astype(np.int64))
    shortlist = BatchShortlist(own, batch.device)
    if batch.prefix is not None:
        # Padding, BOS and EOS keep their ids: they come first in the union.
        batch = replace(batch, prefix=torch.searchsorted(shortlist.words, batch.prefix))
    if config.n_words is not None:
        # The union is ascending: unused ids are at its end here as well.
        config = config.model_copy(update={"n_words": int((shortlist.words < config.n_words).sum())})
    return shortlist, batch, config


class Ensemble:
    """Models with their decoder states: log of the mean probabilities, mean attention weights."""

    def __init__(self, models: Sequence[Decodable], states: Sequence[DecoderState], *, normalised: bool = True,
                 shortlist: BatchShortlist | None = None) -> None:  # fmt: skip
        """Take models and their first states; a lone model's logits keep its precision unless they are normalised.

        With a shortlist words are places in its union, in what comes and in what goes.
        """
        self.models, self.states, self.shortlist = list(models), list(states), shortlist
        # A softmax in half precision would lose the differences between beams.
        self._widens = normalised or len(self.models) > 1
        self._buffers: dict[str, Tensor] = {}

    def logits(self, prev: Tensor, rules: Constraints) -> Tensor:
        """Step every model over the words prev (B, K) and return logits (B, K, V), free to be overwritten.

        The repetition penalty is part of each model's distribution, so it comes before the mean over models.

        Raises ``ValueError``: the models have target vocabularies of different sizes.
        """
        found, short = [], self.shortlist
        words = prev if short is None else short.words[prev]  # (B, K), ids of the full vocabulary
        for i, model in enumerate(self.models):
            hidden, self.states[i] = model.step(words, self.states[i])  # (B, K, D)
            logits = model.head(hidden) if short is None else short.mask_unlisted(model.head(hidden, short.words))
            if self._widens and logits.dtype != torch.float32:
                logits = self._scratch(f"logits {i}", logits).copy_(logits)
            found.append(rules.apply_repetition_penalty(logits))
        if len(found) == 1:
            return found[0]
        if len({logits.shape for logits in found}) > 1:
            raise ValueError("the models of an ensemble must share their target vocabulary")
        log_probs = torch.stack([logits.log_softmax(-1) for logits in found])  # (models, B, K, V)
        # log of the mean of probabilities, not the mean of logs
        return log_probs.logsumexp(0).sub_(math.log(len(found)))

    def log_probs(self, logits: Tensor) -> Tensor:
        """Return what ``logits`` returned as log-probabilities, in a tensor that the next call overwrites."""
        buffer = self._scratch("log_probs", logits)
        return buffer.copy_(logits) if len(self.models) > 1 else torch.log_softmax(logits, -1, out=buffer)

    def _scratch(self, name: str, like: Tensor) -> Tensor:
        """Return float32 memory of the shape of another tensor, the same at every step.

        Freed tensors of megabytes go back to the system: page faults would take half of each step.
        """
        # The batch only shrinks during a search, so the first step's memory fits all later ones.
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < like.numel():
            buffer = self._buffers[name] = torch.empty(like.numel(), device=like.device)
        return buffer[: like.numel()].view(like.shape)

    @property
    def attention(self) -> Tensor | None:
        """Return the last step's weights (B, K, S), or None unless every model records them."""
        weights = [state.attention for state in self.states]
        present = [weight.float() for weight in weights if weight is not None]
        if not present or len(present) < len(weights):
            return None
        # (models, B, K, S) to (B, K, S)
        return present[0] if len(present) == 1 else torch.stack(present).mean(0)

    def reorder_beams(self, parents: Tensor) -> None:
        """Let beam k of sentence b continue the old beam parents[b, k] (B, K)."""
        self.states = [state.reorder_beams(parents) for state in self.states]

    def select_rows(self, rows: Tensor) -> None:
        """Drop all sentences but the given rows (n,)."""
        self.states = [state.select_rows(rows) for state in self.states]
        if self.shortlist is not None:
            self.shortlist.select_rows(rows)
