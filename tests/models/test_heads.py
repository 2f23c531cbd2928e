"""What stands on a pretrained encoder: shapes of the world it sees, frozen layers, and spans found by a plain loop."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from attnkit.models.bert import (
    Bert,
    SequenceClassifier,
    SpanPredictor,
    TokenTagger,
    best_span,
    encoder_without_mlm_head,
    freeze,
    layers_of,
)
from attnkit.models.language_config import BertConfig

V = 40
SMALL: dict[str, Any] = {"d_model": 32, "n_heads": 4, "n_layers": 3, "d_ff": 64, "max_length": 32, "dropout": 0.0}


def config(**fields: Any) -> BertConfig:
    return BertConfig(**{**SMALL, "attention_dropout": 0.0, **fields})


def rows(n: int = 3, length: int = 9) -> tuple[Tensor, Tensor]:
    """Return ids and which of them are real, the rows being of different lengths."""
    ids = torch.randint(4, V, (n, length), generator=torch.Generator().manual_seed(3))
    return ids, torch.arange(length) < torch.tensor([length, length - 2, length - 5])[:, None]


def test_padding_changes_no_answer() -> None:
    ids, real = rows()
    torch.manual_seed(1)
    for model in (SequenceClassifier(config(), V, 5), TokenTagger(config(), V, 5)):
        model = model.double().eval()
        together = model(ids, real)
        for i, n in enumerate(real.sum(1).tolist()):
            alone = model(ids[i : i + 1, :n], real[i : i + 1, :n])
            found = together[i : i + 1] if isinstance(model, SequenceClassifier) else together[i : i + 1, :n]
            torch.testing.assert_close(found, alone, rtol=1e-9, atol=1e-9)


def test_the_classifier_reads_the_first_token_through_tanh() -> None:
    torch.manual_seed(1)
    model = SequenceClassifier(config(), V, 5).double().eval()
    ids, real = rows()
    from attnkit.models.layers import PackedLayout

    first = model.encoder.hidden(ids, PackedLayout.padded(real))[:, 0]
    pooled = torch.tanh(first @ model.pooler.linear.weight.T + model.pooler.linear.bias)
    torch.testing.assert_close(model(ids, real), pooled @ model.output.weight.T + model.output.bias)


def test_a_reader_points_nowhere_but_where_it_may() -> None:
    torch.manual_seed(1)
    model = SpanPredictor(config(), V).eval()
    ids, real = rows()
    allowed = real & (torch.arange(9) >= 4)
    logits = model(ids, real, (torch.arange(9) >= 4).long().expand(3, -1), allowed)
    assert logits.shape == (2, 3, 9)
    assert (logits.isinf() == ~allowed).all()
    assert logits.softmax(-1)[:, :2].sum(-1).allclose(torch.ones(2, 2))


@pytest.mark.parametrize("longest", [1, 3, 100])
def test_the_best_span_is_a_plain_loops(longest: int) -> None:
    generator = torch.Generator().manual_seed(7)
    starts, ends = (torch.randn(20, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    starts[:, :2] = ends[:, :2] = -math.inf
    first, last, score = best_span(starts, ends, longest)
    for i in range(20):
        spans = [(float(starts[i, a] + ends[i, b]), a, b) for a in range(8) for b in range(a, min(8, a + longest))]
        best = max(spans)
        assert (float(score[i]), int(first[i]), int(last[i])) == best


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_parameter_is_of_one_layer_or_of_prediction(norm: str) -> None:
    encoder = Bert(encoder_config(norm), V)
    groups = layers_of(encoder)
    assert len(groups) == 1 + 3 + (norm == "pre")
    seen = {id(parameter) for group in groups for parameter in group}
    names = {name for name, parameter in encoder.named_parameters() if id(parameter) in seen}
    others = {name for name, _ in encoder.named_parameters()} - names
    assert {name.split(".")[0] for name in others} == {"predictor", "output", "next_sentence"}
    assert {name for name, _ in encoder_without_mlm_head(encoder_config(norm), V).named_parameters()} == names


def encoder_config(norm: str) -> BertConfig:
    return config(norm=norm, tie_embeddings=False, next_sentence=True)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_frozen_layers_have_no_gradient(n: int) -> None:
    model = SequenceClassifier(config(), V, 2)
    freeze(model.encoder, n)
    ids, real = rows()
    model(ids, real).sum().backward()
    for i, group in enumerate(layers_of(model.encoder)):
        moved = [p.grad is not None for p in group]
        assert not any(moved) if n and i <= n else any(moved)
    assert model.output.weight.grad is not None


def test_more_layers_cannot_be_frozen_than_there_are() -> None:
    with pytest.raises(ValueError, match="cannot freeze 4 layers: the encoder has 3"):
        freeze(Bert(config(), V), 4)
