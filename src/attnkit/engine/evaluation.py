"""Sequence-to-sequence loss, and evaluation on development sets by greedy search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from attnkit.data.loader import Batching, make_batches
from attnkit.data.pairs import PairBatch
from attnkit.decoding.config import SearchConfig
from attnkit.engine.searching import LineSegment, SearchBackend, SearchJob
from attnkit.engine.task import Stop, until_stopped
from attnkit.models.translation import TranslationModel
from attnkit.training.losses import LossTerm, linear_cross_entropy

if TYPE_CHECKING:
    from attnkit.models.autoencoder import SequenceAutoencoder


def seq2seq_loss(
    model: TranslationModel | SequenceAutoencoder, device: torch.device, smoothing: float
) -> Callable[[PairBatch], dict[str, LossTerm]]:
    """Return the loss function of a batch, in nats, summed over its target tokens."""

    def loss(batch: PairBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        hidden = model.hidden(batch.src, batch.src_mask, batch.tgt_in)  # (B, T, D)
        # Only positions with a target reach the vocabulary projection.
        chosen = hidden.flatten(0, 1).index_select(0, batch.positions)  # (N, D)
        total, nll = linear_cross_entropy(chosen, model.output.weight, model.output.bias, batch.targets, smoothing)
        return {"nll": LossTerm(total, reported=nll)}

    return loss


def greedy_ids(
    searcher: SearchBackend, parts: Sequence[LineSegment], config: SearchConfig, stop: Stop | None
) -> list[list[int]]:
    """Return the ids of each part's best hypothesis.

    Raises:
        EvaluationCancelled: A stop was requested between two batches.
    """
    batches = make_batches([len(part.ids) for part in parts], Batching())
    # Lazy, so that a requested stop is noticed between any two batches.
    requested = ([parts[i] for i in batch] for batch in until_stopped(stop, batches))
    found: list[list[int]] = [[] for _ in parts]
    results = searcher.search_all(requested, SearchJob(config))
    for batch, hypotheses in zip(batches, results, strict=True):
        for i, best in zip(batch, hypotheses, strict=True):
            found[i] = best[0].ids
    return found


def sample_indices(n_rows: int, n_samples: int) -> NDArray[np.int64]:
    """Return the indices of at most ``n_samples`` rows, spread evenly from the first to the last."""
    return np.linspace(0, n_rows - 1, min(n_samples, n_rows)).astype(int)
