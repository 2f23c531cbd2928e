"""Flat parameters and the optimizer on them against torch's own, parameter by parameter."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

from attnkit.training.config import OptimizationConfig
from attnkit.training.flat_optimizer import FlatParameterStore

CLIP_NORM = 2.2
CONFIG = OptimizationConfig(learning_rate=0.03, weight_decay=0.3, clip_norm=CLIP_NORM, betas=(0.8, 0.95))


def backward(toy: ModuleType, model: nn.Module, seed: int = 5) -> None:
    terms = toy.Loss(model)(toy.collate(toy.make_pairs(9, seed)))
    (terms["nll"].total / 40).backward()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_steps_equal_torch_adamw_with_groups(toy: ModuleType, dtype: torch.dtype, tolerance: float) -> None:
    ours, theirs = toy.Toy().to(dtype), toy.Toy().to(dtype)
    flat = FlatParameterStore(ours, CONFIG)
    groups = [
        {"params": [p for p in theirs.parameters() if p.dim() > 1], "weight_decay": 0.3},
        {"params": [p for p in theirs.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, betas=CONFIG.betas, eps=CONFIG.eps)
    clipped = 0
    for step in range(8):
        rate = 0.03 / (step + 1)
        backward(toy, ours, step)
        flat.accumulate_grads()
        norm = float(flat.grad_norm())
        flat.update(rate, norm)
        flat.zero_grad()
        for group in reference.param_groups:
            group["lr"] = rate
        reference.zero_grad()
        backward(toy, theirs, step)
        expected_norm = float(nn.utils.get_total_norm([p.grad for p in theirs.parameters() if p.grad is not None]))
        assert norm == pytest.approx(expected_norm, rel=tolerance)
        clipped += norm > CLIP_NORM
        for parameter in theirs.parameters():
            parameter.grad.mul_(min(1.0, CLIP_NORM / expected_norm))  # torch's own clipping divides by norm + 1e-6
        reference.step()
        for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert (a - b).norm() <= tolerance * b.norm(), name
    assert 0 < clipped < 8


def test_rates_and_frozen_parameters_equal_torch_adamw_with_groups(toy: ModuleType) -> None:
    ours, theirs = toy.Toy().double(), toy.Toy().double()
    names = [name for name, _ in ours.named_parameters()]
    frozen, rates = names[1], {name: 0.5**i for i, name in enumerate(names[2:])}
    for model in (ours, theirs):
        model.get_parameter(frozen).requires_grad_(False)
    flat = FlatParameterStore(ours, CONFIG, rates=rates)
    assert set(flat.views(flat.exp_avg)) == {*names} - {frozen}
    reference = torch.optim.AdamW(
        [{"params": [p], "name": name, "weight_decay": 0.3 * (p.dim() > 1)} for name, p in theirs.named_parameters()],
        betas=CONFIG.betas,
        eps=CONFIG.eps,
    )
    for step in range(4):
        for group in reference.param_groups:
            group["lr"] = 0.03 / (step + 1) * rates.get(group["name"], 1.0)
        backward(toy, ours, step)
        flat.accumulate_grads()
        flat.update(0.03 / (step + 1), 0.0)
        flat.zero_grad()
        reference.zero_grad()
        backward(toy, theirs, step)
        reference.step()
    for (name, a), (_, b), (_, c) in zip(*(m.named_parameters() for m in (ours, theirs, toy.Toy())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)
        assert torch.equal(a, c.double()) == (name == frozen)


def test_tied_weights_are_there_once(toy: ModuleType) -> None:
    model = toy.Toy()
    flat = FlatParameterStore(model, CONFIG)
    names = set(flat.views(flat.master))
    assert names == {"embedding.weight", "mix.weight", "mix.bias", "norm.weight", "norm.bias", "output.bias"}
    assert model.output.weight is model.embedding.weight
    assert model.embedding.weight.data_ptr() == flat.views(flat.master)["embedding.weight"].data_ptr()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_autograd_accumulates_into_the_buffer(toy: ModuleType, precision: str) -> None:
    model = toy.Toy()
    flat = FlatParameterStore(model, CONFIG, precision)
    before = [p.grad.data_ptr() for p in model.parameters()]
    for _ in range(2):
        backward(toy, model)
        flat.accumulate_grads()
    assert [p.grad.data_ptr() for p in model.parameters()] == before
    alone = toy.Toy().to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    backward(toy, alone)
    for name, view in flat.views(flat.gradient).items():
        # Exactly twice, also in bfloat16: the sum is held in float32.
        assert torch.equal(view, 2 * alone.get_parameter(name).grad.float()), name
    flat.zero_grad()
    assert not flat.gradient.any()
    assert not any(p.grad.any() for p in model.parameters())


def test_micro_batches_are_summed_in_float32(toy: ModuleType) -> None:
    flat = FlatParameterStore(toy.Toy(), CONFIG, "bfloat16")
    for value in (256.0, 1.0, 1.0):
        flat.model.mix.bias.grad.fill_(value)
        flat.accumulate_grads()
    assert flat.views(flat.gradient)["mix.bias"][0] == 258  # bfloat16 would stay at 256


def test_a_replaced_gradient_is_noticed(toy: ModuleType) -> None:
    model = toy.Toy()
    flat = FlatParameterStore(model, CONFIG)
    model.zero_grad(set_to_none=True)
    backward(toy, model)
    with pytest.raises(RuntimeError, match=r"'embedding\.weight' was replaced"):
        flat.accumulate_grads()


def test_bfloat16_works_with_a_rounded_copy_of_float32_masters(toy: ModuleType) -> None:
    model = toy.Toy()
    original = {n: p.detach().clone() for n, p in model.named_parameters()}
    flat = FlatParameterStore(model, CONFIG, "bfloat16")
    for name, master in flat.views(flat.master).items():
        assert torch.equal(master, original[name])
    for _ in range(3):
        backward(toy, model)
        flat.accumulate_grads()
        flat.update(1e-5, 0.0)  # too small to show in most bfloat16 weights, but not lost
        flat.zero_grad()
    assert flat.master.dtype == torch.float32
    for name, master in flat.views(flat.master).items():
        assert torch.equal(model.get_parameter(name), master.to(torch.bfloat16))
        if name in ("mix.weight", "output.bias"):
            assert (master != original[name]).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_showing_swaps_and_restores_exactly(toy: ModuleType, precision: str) -> None:
    model = toy.Toy()
    flat = FlatParameterStore(model, CONFIG, precision)
    other = torch.randn_like(flat.master)
    before = [(p.data_ptr(), p.dtype, p.detach().clone()) for p in model.parameters()]
    with flat.use_buffer(other) as shown:
        assert shown.embedding.weight.dtype == torch.float32
        assert torch.equal(shown.embedding.weight, flat.views(other)["embedding.weight"])
        assert shown.output.weight is shown.embedding.weight
    for parameter, (place, dtype, value) in zip(model.parameters(), before, strict=True):
        assert (parameter.data_ptr(), parameter.dtype) == (place, dtype)
        assert torch.equal(parameter, value)
    backward(toy, model)
    flat.accumulate_grads()
    assert flat.views(flat.gradient)["mix.weight"].any()


def test_frozen_parameters_stay(toy: ModuleType) -> None:
    model = toy.Toy()
    model.mix.weight.requires_grad_(False)
    frozen, free = model.mix.weight.detach().clone(), model.mix.bias.detach().clone()
    flat = FlatParameterStore(model, CONFIG)
    backward(toy, model)
    flat.accumulate_grads()
    flat.update(0.1, 0.0)
    assert torch.equal(model.mix.weight, frozen)
    assert not torch.equal(model.mix.bias, free)
    assert "mix.weight" not in flat.views(flat.gradient)


def test_norm_of_a_large_gradient_is_exact() -> None:
    model = nn.Linear(2000, 2000, bias=False)
    flat = FlatParameterStore(model, CONFIG)
    flat.gradient.normal_(std=0.01, generator=torch.Generator().manual_seed(1))
    assert float(flat.grad_norm()) == pytest.approx(float(flat.gradient.double().norm()), rel=1e-6)
