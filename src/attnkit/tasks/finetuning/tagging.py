"""What a tagger learns from and what it finds: a tag for the first token of each word. Knows no text.

Letters: N words of a batch, L tags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attnkit.data.loader import Batching, make_batches
from attnkit.data.token_classification import UNKNOWN, TagBatch, TokenClassificationDataset, group_by_sentence
from attnkit.engine.task import Stop, until_stopped
from attnkit.models.heads import TokenClassifier
from attnkit.models.linear import without_dropout
from attnkit.training.losses import LossTerm

_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class TagPrediction:
    """What a tagger says of the words of some sentences."""

    tags: list[list[int]]
    """The likeliest tag of each word, by sentence."""
    probabilities: list[list[float]]
    """Of these tags."""
    nll: float
    """Sum over the words whose tag is known, in nats."""
    n_known: int


def tag_logits(model: TokenClassifier, batch: TagBatch) -> Tensor:
    """Return logits (N, L) of a batch's words, of float32 at least."""
    logits: Tensor = model(batch.ids, batch.real).flatten(0, 1).index_select(0, batch.firsts)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def tag_loss(
    model: TokenClassifier, device: torch.device, smoothing: float, weights: Tensor | None = None
) -> Callable[[TagBatch], Mapping[str, LossTerm]]:
    """Return the loss of a batch: the negative log-likelihood of its words' tags, each times the weight of its tag."""
    weighed = None if weights is None else weights.to(device)

    def loss(batch: TagBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        logits = tag_logits(model, batch)
        by_tag = None if weighed is None else weighed.to(logits.dtype)
        total = _cross_entropy(logits, batch.tags, by_tag, smoothing)
        return {"nll": LossTerm(total, reported=_cross_entropy(logits.detach(), batch.tags))}

    return loss


def find_tags(
    model: TokenClassifier, rows: TokenClassificationDataset, device: torch.device, stop: Stop | None = None
) -> TagPrediction:
    """Return the tags of all words of all rows. Raises ``EvaluationCancelled`` where a stop is asked for."""
    tags: list[list[int]] = [[] for _ in range(len(rows))]
    sure: list[list[float]] = [[] for _ in range(len(rows))]
    nll, n_known = 0.0, 0
    with without_dropout(model), torch.inference_mode():
        for indices in until_stopped(stop, make_batches(rows.lengths[0].tolist(), Batching(_BATCH_TOKENS, "tokens"))):
            batch = rows.batch(np.asarray(indices, np.int64)).to(device)
            logits = tag_logits(model, batch)
            nll += float(_cross_entropy(logits, batch.tags))
            n_known += int((batch.tags != UNKNOWN).sum())
            best = logits.softmax(-1).max(-1)
            owners = (batch.firsts // batch.ids.shape[1]).tolist()
            for owner, tag, probability in zip(owners, best.indices.tolist(), best.values.tolist(), strict=True):
                tags[indices[owner]].append(tag)
                sure[indices[owner]].append(probability)
    return TagPrediction(list(group_by_sentence(rows, tags)), list(group_by_sentence(rows, sure)), nll, n_known)


def _cross_entropy(logits: Tensor, tags: Tensor, weights: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
    return F.cross_entropy(logits, tags, weights, ignore_index=UNKNOWN, reduction="sum", label_smoothing=smoothing)
