"""A Transformer whose self-attention follows a sparse pattern: as its masks say, in training and step by step."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from attnkit.models.attention import patterns
from attnkit.models.attention.patterns import PATTERNS, PatternName, make_pattern
from attnkit.models.config import TransformerConfig
from attnkit.models.transformer import Transformer

V, SIZE, N_GLOBAL = 23, 2, 2
POSITIONS = ("sinusoidal", "rotary", "alibi", "relative")


def build(pattern: str, positions: str = "sinusoidal", layers: int = 2) -> Transformer:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_heads": 2, "encoder_layers": layers, "decoder_layers": layers, "d_ff": 24}
    sparse = {"pattern": pattern, "pattern_size": SIZE, "pattern_globals": N_GLOBAL}
    model = Transformer(TransformerConfig.model_validate({**sizes, **sparse, "positions": positions}), V, V)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return model.double().eval()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Return sources (3, 13) with padding, their mask, and targets (3, 12)."""
    torch.manual_seed(2)
    mask = torch.arange(13) < torch.tensor([13, 9, 1])[:, None]
    return torch.randint(4, V, (3, 13)).masked_fill(~mask, 0), mask, torch.randint(4, V, (3, 12))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("name", PATTERNS)
def test_the_fast_form_equals_the_one_that_builds_its_weights(
    name: PatternName, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "ROWS", 4)
    model, (src, mask, tgt) = build(name, positions), batch()
    seen: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    plain = model.decoder(tgt, model.encoder(src, mask, seen[0]), mask, seen[1:])
    torch.testing.assert_close(model.hidden(src, mask, tgt), plain, rtol=0, atol=1e-11)
    for weights, causal, n in ((seen[0], False, 13), (seen[1], True, 12)):
        allowed = torch.tensor(make_pattern(name, SIZE, causal, N_GLOBAL).dense_mask(n, n)).expand(3, 2, n, n)
        allowed = allowed if causal else allowed & mask[:, None, None, :]
        assert len(weights) == 2
        for layer in weights:
            assert torch.equal(layer != 0, allowed)
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(model.hidden(src, mask, tgt).sin().sum(), parameters, allow_unused=True)
    expected = torch.autograd.grad(plain.sin().sum(), parameters, allow_unused=True)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("name", PATTERNS)
@torch.inference_mode()
def test_stepping_equals_the_full_pass(name: PatternName, positions: str) -> None:
    model, (src, mask, _) = build(name, positions), batch()
    state = model.start(src, mask, 3, 12)
    words = torch.zeros(3, 1, 0, dtype=torch.int64)
    for t in range(12):
        prev = torch.randint(4, V, words.shape[:2])
        words = torch.cat((words, prev[:, :, None]), dim=2)
        found, state = model.step(prev, state)
        full = [model.hidden(src, mask, words[:, k])[:, -1] for k in range(words.shape[1])]
        torch.testing.assert_close(found, torch.stack(full, dim=1), rtol=0, atol=1e-11)
        if t >= 1:
            parents = torch.randint(0, words.shape[1], (len(words), 3 if t != 6 else 2))
            words = words.gather(1, parents[:, :, None].expand(-1, -1, words.shape[2]))
            state = state.reorder_beams(parents)
        if t == 4:
            rows = torch.tensor([2, 0])
            src, mask, words, state = src[rows], mask[rows], words[rows], state.select_rows(rows)


@torch.inference_mode()
def test_one_layer_sees_no_further_than_its_window() -> None:
    model, (src, _, _) = build("window", layers=1), batch()
    before = model.encoder(src, None)
    src = src.clone()
    src[:, 6] = 3
    moved = (model.encoder(src, None) != before).any(-1).any(0)
    assert moved.tolist() == [6 - SIZE <= n <= 6 + SIZE for n in range(13)]


def test_a_pattern_is_refused_where_it_cannot_be_followed() -> None:
    for other in ({"alignment": "additive"}, {"distribution": "sparsemax"}, {"attention_dropout": 0.1}):
        with pytest.raises(ValidationError, match="pattern window needs scaled_dot with softmax in all heads"):
            TransformerConfig.model_validate({"pattern": "window", **other})
    assert TransformerConfig().pattern == "none"


def test_a_model_without_a_pattern_takes_torchs_fused_attention() -> None:
    model, (src, mask, tgt) = build("none"), batch()
    with torch.profiler.profile() as profile:
        model.hidden(src, mask, tgt)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["aten::scaled_dot_product_attention"] == 6
