"""Adapters against W + (alpha / r) B A (Hu et al. 2021, equation 3), written out in plain torch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.lora import LoraConfig, adapted_blocks, factor_names, factor_shapes
from attnkit.models.lora_layers import add_lora, merge_lora, merged_copy
from attnkit.models.translation import TranslationModel, build_model

SMALL = {"d_model": 16, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2, "d_ff": 32, "dropout": 0.0}
MODELS: dict[str, Any] = {
    "transformer": TransformerConfig(**SMALL),
    "pre-norm, untied": TransformerConfig(**SMALL, norm="pre", tie_embeddings="none"),
    "wide heads": TransformerConfig(**SMALL, head_width=10),
    "narrow heads": TransformerConfig(**SMALL, head_width=6),
    "weights per head": TransformerConfig(**SMALL, alignment="additive"),
    "gated, heads of odd width": TransformerConfig(**SMALL, head_width=5, glu=True, bias=False),
    "gru": RnnConfig(d_model=12, d_hidden=16, dropout=0.0),
    "lstm": RnnConfig(cell="lstm", d_model=12, d_hidden=16, encoder_layers=2, decoder_layers=2, dropout=0.0),
    "input feeding": RnnConfig(
        d_model=12, d_hidden=16, dropout=0.0, alignment="general", attention_query="current", input_feeding=True
    ),
    "no attention": RnnConfig(cell="rnn", d_model=12, d_hidden=16, dropout=0.0, alignment="none"),
}
LORA = LoraConfig(rank=3, alpha=5.0)


def build(name: str) -> TranslationModel:
    torch.manual_seed(1)
    return build_model(MODELS[name], 20, 20).eval()


def randomize(model: nn.Module) -> None:
    """Draw the factors B, which are zero at first."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".B"):
                parameter.normal_(std=0.3)


def by_hand(model: nn.Module, lora: LoraConfig) -> dict[str, Tensor]:
    """Return every weight with its adapters, block by block, from the names and shapes alone."""
    own = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    merged = {name: tensor for name, tensor in own.items() if ".lora." not in name}
    for name, blocks in adapted_blocks({n: tuple(t.shape) for n, t in merged.items()}, lora).items():
        a, b = (own[factor] for factor in factor_names(name))
        for number, (_, rows) in enumerate(blocks):
            n_rows = rows.stop - rows.start
            own_a = a[number * lora.rank : (number + 1) * lora.rank]
            own_b = b[number * n_rows : (number + 1) * n_rows]
            for i in range(n_rows):  # one row at a time: sum over r of (alpha / r) B[i, r] A[r]
                for r in range(lora.rank):
                    merged[name][rows.start + i] += lora.alpha / lora.rank * own_b[i, r] * own_a[r]
    return merged


def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(2)
    src, tgt = torch.randint(4, 20, (5, 7)), torch.randint(4, 20, (5, 6))
    mask = torch.arange(7)[None] < torch.tensor([7, 3, 5, 6, 7])[:, None]
    return src, mask, tgt


@pytest.mark.parametrize("name", MODELS)
def test_adapters_start_from_the_weights_and_equal_merged_weights(name: str) -> None:
    plain, adapted = build(name), build(name)
    add_lora(adapted, LORA)
    before = plain.hidden(*batch())
    torch.testing.assert_close(adapted.hidden(*batch()), before, rtol=0, atol=1e-6)
    randomize(adapted)
    plain.load_state_dict(by_hand(adapted, LORA), strict=False)
    expected = plain.hidden(*batch())
    assert not torch.allclose(expected, before, atol=1e-3)
    torch.testing.assert_close(adapted.hidden(*batch()), expected, rtol=1e-5, atol=2e-6)
    merged = merged_copy(adapted)
    torch.testing.assert_close(merged.hidden(*batch()), expected, rtol=1e-5, atol=2e-6)
    assert {n for n, _ in merged.named_parameters()} == {n for n, _ in plain.named_parameters()}
    assert any(".lora." in n for n, _ in adapted.named_parameters()), "the copy leaves the model as it is"


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_formula_and_weights_have_none(name: str) -> None:
    """dL/dB = (alpha / r) G A^T and dL/dA = (alpha / r) B^T G, for the gradient G of the merged weight."""
    adapted, plain = build(name).train(), build(name).train()
    add_lora(adapted, LORA)
    randomize(adapted)
    plain.load_state_dict(by_hand(adapted, LORA), strict=False)
    for model in (adapted, plain):
        (model.hidden(*batch()).square().sum() / 100).backward()
    whole = dict(plain.named_parameters())
    own = dict(adapted.named_parameters())
    assert all((parameter.grad is not None) == (".lora." in n) for n, parameter in own.items())
    blocks = adapted_blocks({n: tuple(p.shape) for n, p in whole.items()}, LORA)
    for weight, parts in blocks.items():
        a, b = (own[factor] for factor in factor_names(weight))
        assert a.grad is not None and b.grad is not None
        gradient = whole[weight].grad
        assert gradient is not None
        for k, (_, rows) in enumerate(parts):
            n, r = rows.stop - rows.start, LORA.rank
            block, own_a, own_b = gradient[rows], a[k * r : (k + 1) * r], b[k * n : (k + 1) * n]
            close = {"rtol": 1e-4, "atol": 1e-5}
            torch.testing.assert_close(b.grad[k * n : (k + 1) * n], LORA.scale * block @ own_a.T, **close)
            torch.testing.assert_close(a.grad[k * r : (k + 1) * r], LORA.scale * own_b.T @ block, **close)


def test_only_named_maps_are_adapted() -> None:
    shapes = {name: tuple(p.shape) for name, p in build("transformer").named_parameters()}
    found = adapted_blocks(shapes, LoraConfig(maps=("query", "value")))
    assert found == {
        **{f"{s}.layers.{i}.attention.projection.weight": [("query", slice(0, 16)), ("value", slice(32, 48))]
           for s in ("encoder", "decoder") for i in range(2)},
        **{f"decoder.layers.{i}.cross.projection.weight": [("query", slice(0, 16))] for i in range(2)},
        "decoder.memory.weight": [("value", slice(16, 32)), ("value", slice(48, 64))],
    }  # fmt: skip
    sizes = factor_shapes(shapes, LoraConfig(rank=4, maps=("value",)))
    assert sizes["decoder.memory.lora.weight.A"] == (8, 16) and sizes["decoder.memory.lora.weight.B"] == (32, 4)
    model = build("transformer")
    add_lora(model, LoraConfig(maps=("query", "value")))
    randomize(model)
    before = build("transformer").state_dict()["decoder.memory.weight"]
    after = merged_copy(model).state_dict()["decoder.memory.weight"]
    assert torch.equal(after[:16], before[:16]) and torch.equal(after[32:48], before[32:48])
    assert not torch.allclose(after[16:32], before[16:32]) and not torch.allclose(after[48:], before[48:])


@pytest.mark.parametrize(("name", "width"), [("wide heads", 20), ("narrow heads", 12)])
def test_blocks_of_the_memory_are_as_wide_as_all_heads(name: str, width: int) -> None:
    shapes = {key: tuple(parameter.shape) for key, parameter in build(name).named_parameters()}
    expected = [(kind, slice(n * width, (n + 1) * width)) for n, kind in enumerate(("key", "value") * 2)]
    assert adapted_blocks(shapes, LORA)["decoder.memory.weight"] == expected


def test_maps_that_the_model_lacks_are_named() -> None:
    for name, lacking in (("transformer", "gate"), ("no attention", "alignment")):
        with pytest.raises(ValueError, match=f"the model has no map '{lacking}'"):
            add_lora(build(name), LoraConfig(maps=("output", lacking) if name == "transformer" else ("cells", lacking)))
    with pytest.raises(ValidationError, match="a map is named twice"):
        LoraConfig(maps=("query", "query"))


def test_dropout_concerns_the_adapters_alone() -> None:
    model = build("transformer").train()
    add_lora(model, LoraConfig(dropout=0.5))
    expected = model.hidden(*batch())
    assert torch.equal(model.hidden(*batch()), expected), "B is zero"
    randomize(model)
    given = batch()
    assert not torch.allclose(model.hidden(*given), model.hidden(*given))
    model.eval()
    assert torch.equal(model.hidden(*given), model.hidden(*given))


def test_the_cells_of_a_decoding_step_have_their_adapters() -> None:
    model = build("gru")
    add_lora(model, LORA)
    randomize(model)
    src, mask, tgt = batch()
    state, steps = model.start(src, mask, 1, 6), []
    for at in range(tgt.shape[1]):
        features, state = model.step(tgt[:, at : at + 1], state)
        steps.append(features)
    torch.testing.assert_close(torch.cat(steps, 1), model.hidden(src, mask, tgt), rtol=1e-5, atol=1e-5)


def test_merging_in_place_gives_the_weights_of_the_copy() -> None:
    model = build("transformer")
    add_lora(model, LORA)
    randomize(model)
    copied, other = merged_copy(model).state_dict(), copy.deepcopy(model)
    merge_lora(other)
    assert copied.keys() == other.state_dict().keys()
    assert all(torch.equal(tensor, copied[name]) for name, tensor in other.state_dict().items())
    assert merged_copy(other) is other, "nothing is left to merge"
