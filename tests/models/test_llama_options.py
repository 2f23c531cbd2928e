"""Options that Llama has and GPT-2 lacks: groups of heads, their width, scaled positions, RMSNorm, no biases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from packed_models import PASSAGES, make
from pydantic import ValidationError

from attnkit.models.gpt import Gpt
from attnkit.models.language_config import GptConfig
from attnkit.models.layers import PackedLayout
from attnkit.models.position_tables import RopeScaling

ROTARY: dict[str, Any] = {"positions": "rotary", "rope_base": 300.0, "normalization": "rms", "bias": False, "glu": True}
OPTIONS: dict[str, dict[str, Any]] = {
    "groups": {**ROTARY, "n_key_value_heads": 2},
    "groups of positions by bias": {"positions": "alibi", "n_key_value_heads": 1},
    "wide heads": {**ROTARY, "head_width": 12},
    "narrow heads in groups": {**ROTARY, "head_width": 4, "n_key_value_heads": 2},
    "heads that do not divide the width": {**ROTARY, "n_heads": 3, "head_width": 6},
    "other functions": {"head_width": 10, "alignment": ("scaled_dot", "additive", "general", "similarity")},
    "scaled": {**ROTARY, "rope_scaling": RopeScaling(kind="llama3", factor=4.0, original_length=16)},
    "scaled alike": {**ROTARY, "head_width": 16, "rope_scaling": RopeScaling(kind="linear", factor=2.5)},
}


def gpt(name: str) -> Gpt:
    model = make("gpt", **OPTIONS[name]).eval()
    assert isinstance(model, Gpt)
    return model


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_of_beams_equal_the_full_pass(name: str) -> None:
    """Beams have other texts and are reordered midway."""
    model = gpt(name)
    rows, further = torch.randint(4, 50, (2, 5)), torch.randint(4, 50, (2, 3, 6))
    with torch.inference_mode():
        state = model.start(rows, None, 3, 7)
        features, state = model.step(rows[:, -1:], state)
        state = state.reorder_beams(torch.zeros(2, 3, dtype=torch.int64))
        texts = rows[:, None].repeat(1, 3, 1)
        for t in range(6):
            if t == 3:
                parents = torch.tensor([[2, 0, 0], [1, 1, 2]])
                state = state.reorder_beams(parents)
                texts = texts.gather(1, parents[:, :, None].expand(-1, -1, texts.shape[2]))
            texts = torch.cat((texts, further[:, :, t : t + 1]), dim=2)
            features, state = model.step(further[:, :, t], state)
            whole = model.hidden(texts.flatten(0, 1), PackedLayout.unpacked(6))[:, -1].view(2, 3, -1)
            torch.testing.assert_close(features, whole, rtol=1e-9, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("name", OPTIONS)
def test_a_passage_is_what_it_is_alone(name: str) -> None:
    model, rows = gpt(name), torch.randint(4, 50, (3, 12))
    packed = model.hidden(rows, PackedLayout.packed(1, PASSAGES))
    for row, numbers, found in zip(rows, PASSAGES, packed, strict=True):
        for number in numbers.unique():
            here = numbers == number
            alone = model.hidden(row[here][None], PackedLayout.unpacked(1))[0]
            torch.testing.assert_close(found[here], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", OPTIONS)
def test_matrices_are_as_many_as_the_configuration_says(name: str) -> None:
    config = GptConfig(**{"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "max_length": 64, **OPTIONS[name]})
    model = gpt(name)
    found = sum(p.numel() for key, p in model.named_parameters() if p.dim() > 1 and key != "output.weight")
    assert config.min_parameters(50) == found
    weights = model.attention_weights(torch.randint(4, 50, (1, 6)), PackedLayout.unpacked(1))["decoder"]
    assert weights.shape == (1, 2, config.n_heads, 6, 6)


def test_scaling_is_the_formula_of_llama_3_frequency_by_frequency() -> None:
    scaling = RopeScaling(kind="llama3", factor=8.0, original_length=8192)
    turns = np.array([100.0, 4.0, 3.0, 1.0, 0.5])  # within 8,192 tokens
    kept = np.array([1.0, 1.0, 2 / 3, 0.0, 0.0])  # by hand, with 1 and 4 turns as bounds
    frequencies = 2 * math.pi * turns / 8192
    np.testing.assert_allclose(scaling.scaled(frequencies) / frequencies, kept + (1 - kept) / 8, rtol=1e-12)
    halved = RopeScaling(kind="linear", factor=2.0).scaled(frequencies)
    np.testing.assert_allclose(halved, frequencies / 2, rtol=1e-12)


def test_positions_scaled_linearly_are_fractions_of_positions() -> None:
    """Position interpolation (Chen et al. 2023): every second position of the scaled model is one of the plain."""
    rows = torch.randint(4, 50, (1, 9))
    plain = make("gpt", positions="rotary").eval()
    scaled = make("gpt", positions="rotary", rope_scaling=RopeScaling(kind="linear", factor=2.0)).eval()
    places = torch.arange(9)[None]
    with torch.no_grad():
        wanted = plain.hidden(rows, PackedLayout(1, 1, None, places))
        found = scaled.hidden(rows, PackedLayout(1, 1, None, 2 * places % 16))
    torch.testing.assert_close(found[:, :8], wanted[:, :8], rtol=1e-9, atol=1e-9)
    assert not torch.allclose(scaled.hidden(rows, PackedLayout.unpacked(1)), wanted)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rope_scaling": {"kind": "linear", "factor": 2.0}}, "needs positions=rotary, not learned"),
        ({"positions": "rotary", "rope_scaling": {"kind": "yarn", "factor": 2.0}}, "'linear' or 'llama3'"),
        ({"positions": "rotary", "rope_scaling": {"kind": "linear", "factor": 0.5}}, "greater than or equal to 1"),
        ({"positions": "rotary", "head_width": 7}, "even head width, not 7"),
        ({"n_heads": 3, "d_model": 32}, "must be a multiple of n_heads"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        GptConfig(**fields)
