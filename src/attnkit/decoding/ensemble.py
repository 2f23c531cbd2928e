"""Ensemble of models that are decoded together (Sutskever et al. 2014).

Letters: B batch, K beam, S source length, V vocabulary, D model width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnkit.decoding.constraints import Constraints
from attnkit.decoding.shortlist import BatchShortlist
from attnkit.protocols import Decodable, DecoderState


class Ensemble:
    """Models with their states: the log of the mean of their probabilities, the mean of their attention weights."""

    def __init__(
        self,
        models: Sequence[Decodable],
        states: Sequence[DecoderState],
        *,
        normalised: bool = True,
        shortlist: BatchShortlist | None = None,
    ) -> None:
        """Take models and their first states; a lone model's logits keep its precision unless they are normalised.

        With a shortlist words are places in its union, in what comes and in what goes.
        """
        self.models = list(models)
        self.states = list(states)
        self.shortlist = shortlist
        # A softmax in half precision would lose the differences between beams.
        self._widens = normalised or len(self.models) > 1
        self._buffers: dict[str, Tensor] = {}

    def logits(self, prev: Tensor, rules: Constraints) -> Tensor:
        """Step every model over the words prev (B, K) and return logits (B, K, V), free to be overwritten.

        The repetition penalty is part of each model's distribution, so it comes before the mean over models.

        Raises:
            ValueError: the models have target vocabularies of different sizes.
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
