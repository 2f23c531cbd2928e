"""What a training step sees of R-Drop and of sampled subwords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnkit.data.pairs import make_batch
from attnkit.engine.seq2seq import seq2seq_loss
from attnkit.models.config import TransformerConfig
from attnkit.models.translation import build_model
from attnkit.tasks.translation.task import TASK
from attnkit.training.consistency import linear_consistency

BATCH = make_batch((np.array([5, 6, 7, 8, 9]), np.array([3, 2])), (np.array([7, 8, 9, 4, 5, 6]), np.array([2, 4])))


def model_of(dropout: float) -> Any:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "d_ff": 32}
    return build_model(TransformerConfig(**sizes, dropout=dropout), 30, 30).train()


def test_both_passes_have_their_own_dropout_and_the_same_targets() -> None:
    """The loss of one batch equals that of two passes of the model, whose dropout is drawn for the doubled batch."""
    model, cpu = model_of(0.5), torch.device("cpu")
    torch.manual_seed(7)
    found = seq2seq_loss(model, cpu, 0.1, 5.0)(BATCH)["nll"]
    torch.manual_seed(7)
    mask = None if BATCH.src_mask is None else torch.cat([BATCH.src_mask] * 2)
    hidden = model.hidden(torch.cat([BATCH.src] * 2), mask, torch.cat([BATCH.tgt_in] * 2))
    first, second = (one.flatten(0, 1)[BATCH.positions] for one in hidden.chunk(2))
    assert not torch.allclose(first, second)
    features = torch.cat([first, second])
    total, nll = linear_consistency(features, model.output.weight, model.output.bias, BATCH.targets, 5.0, 0.1)
    torch.testing.assert_close(found.total, total)
    assert found.reported is not None
    torch.testing.assert_close(found.reported, nll)


def test_without_dropout_there_is_no_divergence() -> None:
    model, cpu = model_of(0.0), torch.device("cpu")
    once, twice = (seq2seq_loss(model, cpu, 0.1, alpha)(BATCH)["nll"] for alpha in (0.0, 5.0))
    torch.testing.assert_close(twice.total, once.total)
    torch.testing.assert_close(twice.reported, once.reported)


def test_the_task_passes_the_weight_on(workshop: Any, tmp_path: Path) -> None:
    settings = {"model__dropout": 0.5, "regularization": {"r_drop": 5.0}}
    losses = []
    for alpha in (0.0, 5.0):
        config = workshop.configure("transformer", **{**settings, "regularization": {"r_drop": alpha}})
        folder = tmp_path / f"{alpha}"
        list(TASK.prepare(config, folder, None, None))
        data = TASK.load_data(config, folder)
        torch.manual_seed(3)
        model = TASK.build_model(config, data)
        loss = TASK.loss(config, model, data, torch.device("cpu"))
        losses.append(loss(data.pairs.batch(np.arange(4)))["nll"].total.item())
    assert losses[1] > losses[0] + 1


@pytest.mark.parametrize(
    ("kind", "settings"), [("bpe", {"bpe_dropout": 0.9}), ("unigram", {"unigram_alpha": 0.0}), ("bpe", {})]
)
def test_training_text_is_segmented_anew(workshop: Any, tmp_path: Path, kind: str, settings: dict[str, float]) -> None:
    config = workshop.configure(
        "transformer", regularization=settings, vocabulary={"kind": kind, "size": 400, "min_frequency": 1}
    )
    list(TASK.prepare(config, tmp_path / "data", None, None))
    data = TASK.load_data(config, tmp_path / "data")
    lengths = [sum(len(data.pairs.batch(np.array([row]), 1, epoch).targets) for row in range(20)) for epoch in range(3)]
    usual = int(data.pairs.lengths[1][:20].sum())
    assert (len({*lengths}) > 1 and min(lengths) > usual) if settings else {*lengths} == {usual}
    assert TASK.dataset(data) is data.pairs
