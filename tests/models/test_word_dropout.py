"""Word dropout: whole tokens lose their embedding in training, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.linear import WordDropout
from attnkit.models.rnn import RnnTranslator
from attnkit.models.transformer import Embedding, Transformer

SMALL: dict[str, Any] = {"d_model": 8, "dropout": 0.0}
IDS = torch.randint(4, 40, (50, 20), generator=torch.Generator().manual_seed(0))


def test_vectors_are_zero_or_scaled_as_often_as_said() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 30, 8)
    found = WordDropout(0.25)(x)
    is_dropped = (found == 0).all(dim=-1)
    torch.testing.assert_close(found[~is_dropped], x[~is_dropped] / 0.75)
    assert is_dropped.float().mean().item() == pytest.approx(0.25, abs=0.02)  # 6,000 draws: a deviation of .0056


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_positions_stay(positions: Any) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(**SMALL, n_heads=2, positions=positions, word_dropout=0.5)
    embedding = Embedding(config, 40)
    words = torch.nn.functional.embedding(IDS, embedding.words.weight) * embedding.scale
    places = embedding.eval()(IDS) - words
    found = embedding.train()(IDS) - places
    is_dropped = found.abs().amax(dim=-1) < 1e-5
    assert 400 < is_dropped.sum() < 600
    torch.testing.assert_close(found[~is_dropped], 2 * words[~is_dropped])


def test_recurrent_models_drop_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = RnnTranslator(RnnConfig(**SMALL, d_hidden=8, word_dropout=0.5), 40, 40)
    seen: list[int] = []
    forward = WordDropout.forward

    def count(self: WordDropout, x: torch.Tensor) -> torch.Tensor:
        found = forward(self, x)
        seen.append(int((found == 0).all(dim=-1).sum()))
        return found

    monkeypatch.setattr(WordDropout, "forward", count)
    model.train().hidden(IDS, None, IDS)
    assert len(seen) == 2 and all(400 < n < 600 for n in seen)


@pytest.mark.parametrize(
    ("build", "config"),
    [(Transformer, TransformerConfig(**SMALL, n_heads=2)), (RnnTranslator, RnnConfig(**SMALL, d_hidden=8))],
)
def test_nothing_changes_outside_training(build: Any, config: Any) -> None:
    found = []
    for rate in (0.0, 0.5):
        torch.manual_seed(1)
        model = build(config.model_copy(update={"word_dropout": rate}), 40, 40).eval()
        with torch.no_grad():
            found.append(model.hidden(IDS, None, IDS))
    assert torch.equal(*found)
