"""The loss of sequence-to-sequence models: the negative log-likelihood of the target."""

from __future__ import annotations

from collections.abc import Callable

import torch

from attnkit.data.pairs import PairBatch
from attnkit.models.autoencoder import SequenceAutoencoder
from attnkit.models.translation import TranslationModel
from attnkit.training.losses import LossTerm, linear_cross_entropy


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
