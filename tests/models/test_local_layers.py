"""BERT with global and local layers, and other parts of ModernBERT (Warner et al. 2024)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from test_passages import PASSAGES, SMALL, bert, ids
from torch import Tensor

from attnkit.models.bert import Bert, SequenceClassifier, TokenTagger
from attnkit.models.language_config import BertConfig
from attnkit.models.layers import PackedLayout

MODERN: dict[str, Any] = {"norm": "pre", "embedding_norm": True, "positions": "rotary", "glu": True, "bias": False}
MODERN |= {"norm_bias": False, "head_bias": False, "n_segments": 1, "rope_base": 5e4, "local_rope_base": 300.0}
MODERN |= {"local_window": 4, "n_layers": 4, "pooler": "mlm_head"}


def rotated(x: Tensor, base: float) -> Tensor:
    """Rotate pairs (x_i, x_(i+d/2)) of x (T, d) by position, as complex numbers."""
    half = x.shape[-1] // 2
    speeds = torch.tensor([base ** (-2 * i / x.shape[-1]) for i in range(half)], dtype=x.dtype)
    turns = torch.arange(len(x), dtype=x.dtype)[:, None] * speeds
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(turns), turns)
    return torch.cat((turned.real, turned.imag), dim=-1)


def tiles(model: Bert, tiled: bool) -> Bert:
    """Let local layers of short rows be computed as those of long rows are."""
    assert model.local_attention is not None and model.local_attention.tiles_from == 512
    model.local_attention.tiles_from = 0 if tiled else 512
    return model


def defined(model: Bert, config: BertConfig, row: Tensor) -> Tensor:
    """Return the features (T, D) of one row by loops over heads and tokens."""
    weights = dict(model.named_parameters())

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (config.d_model,), weights[f"{name}.weight"], None, config.norm_eps)

    x = norm(weights["embedding.weight"][row], "embedding_norm")
    for i in range(config.n_layers):
        name, local = f"layers.{i}", i % config.global_every != 0
        y = x if i == 0 else norm(x, f"{name}.around_attention.norm")
        projected = y @ weights[f"{name}.attention.projection.weight"].t()
        heads = []
        for head in range(config.n_heads):
            d = config.d_head
            q, k, v = (projected[:, part * config.d_model + head * d :][:, :d] for part in range(3))
            q, k = (rotated(part, config.local_rope_base if local else config.rope_base) for part in (q, k))
            context = []
            for t in range(len(row)):
                reach = (config.local_window or 0) // 2 if local else len(row)
                near = slice(max(0, t - reach), t + reach + 1)
                context.append((q[t] @ k[near].t() / d**0.5).softmax(-1) @ v[near])
            heads.append(torch.stack(context))
        x = x + torch.cat(heads, -1) @ weights[f"{name}.attention.output.weight"].t()
        y = norm(x, f"{name}.around_feed_forward.norm")
        inner = F.gelu(y @ weights[f"{name}.feed_forward.up.weight"].t()) * (
            y @ weights[f"{name}.feed_forward.gate.weight"].t()
        )
        x = x + inner @ weights[f"{name}.feed_forward.down.weight"].t()
    return norm(x, "norm")


@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize("changes", [{}, {"global_every": 2}, {"global_every": 1}, {"local_window": 7}], ids=str)
def test_features_are_those_of_the_definition(changes: dict[str, Any], tiled: bool) -> None:
    model, rows = tiles(bert(**{**MODERN, **changes}), tiled), ids(2, 20)
    config = BertConfig(**{**SMALL, **MODERN, **changes})
    with torch.no_grad():
        found = model.hidden(rows, PackedLayout.unpacked(2))
        expected = torch.stack([defined(model, config, row) for row in rows])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize("positions", ["rotary", "alibi", "learned"])
def test_padding_and_passages_change_nothing(positions: str, tiled: bool) -> None:
    """Also in rows that are longer than the window, and in padding that no window reaches."""
    model, rows = tiles(bert(**MODERN | {"positions": positions}), tiled), ids(3, 12)
    packed = model.hidden(rows, PackedLayout.packed(1, PASSAGES))
    for row, numbers, found in zip(rows, PASSAGES, packed, strict=True):
        for number in numbers.unique():
            alone = model.hidden(row[numbers == number][None], PackedLayout.unpacked(1))[0]
            torch.testing.assert_close(found[numbers == number], alone, rtol=0, atol=1e-9)
    real = torch.arange(12) < torch.tensor([[12], [3], [1]])
    padded = model.hidden(rows, PackedLayout.padded(real))
    padded[real].sum().backward()
    for row, n, found in zip(rows, real.sum(1).tolist(), padded, strict=True):
        alone = model.hidden(row[None, :n], PackedLayout.unpacked(1))[0]
        torch.testing.assert_close(found[:n], alone, rtol=0, atol=1e-9)
    assert all(bool(part.grad.isfinite().all()) for part in model.parameters() if part.grad is not None)


def test_all_ways_to_the_weights_give_the_same_gradients() -> None:
    """Tiles, and a dense mask, which recorded weights and dropout of attention need."""
    model, rows = tiles(bert(**MODERN), True), ids(2, 12)
    gradients = []
    for seen, dropout in ((None, 0.0), ([], 0.0), (None, 1e-12)):
        model.zero_grad()
        assert model.local_attention is not None
        model.local_attention.dropout = dropout
        found = model.train().hidden(rows, PackedLayout.unpacked(2), seen=seen)
        found.square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        if seen:
            local = [not bool(layer[..., 0, 3:].any()) for layer in seen]
            assert local == [False, True, True, False] and bool(seen[1][..., 0, :3].all())
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], rtol=0, atol=1e-8)


def test_a_mean_is_of_real_tokens_only() -> None:
    config = BertConfig(**{**SMALL, **MODERN, "dropout": 0.0, "pooling": "mean"})
    torch.manual_seed(3)
    model, rows, real = SequenceClassifier(config, 50, 3), ids(2, 9), torch.arange(9) < torch.tensor([[9], [4]])
    tagger = TokenTagger(config, 50, 3)
    with torch.no_grad():
        found = model.eval()(rows, real)
        alone = model(rows[1:, :4], real[1:, :4])
        torch.testing.assert_close(found[1:], alone)
        features = model.encoder.hidden(rows[1:, :4], PackedLayout.unpacked(1)).mean(1)
        torch.testing.assert_close(alone, model.output(model.pooler(features)))  # type: ignore[misc]
        features = tagger.eval().encoder.hidden(rows[:1], PackedLayout.unpacked(1))
        torch.testing.assert_close(tagger(rows[:1], real[:1]), tagger.output(tagger.pooler(features)))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"embedding_norm": True}, "embedding_norm needs norm pre"),
        ({"local_window": 8, "alignment": "additive"}, "local_window needs alignment scaled_dot"),
        ({"pooler": "mlm_head", "next_sentence": True}, "next_sentence needs a pooler other than mlm_head"),
        ({"pooler": "mlm_head", "d_embedding": 8}, "pooler mlm_head needs d_embedding unset"),
        ({"local_window": 1}, "greater than or equal to 2"),
        ({"local_rope_base": float("nan")}, "less than or equal to 1000000000"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        BertConfig(**{**SMALL, **fields})
