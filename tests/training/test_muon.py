"""Muon against a float64 computation in numpy from the papers' equations, and against torch.optim.Muon."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnkit.training.config import OptimizationConfig
from attnkit.training.flat_optimizer import FlatParameterStore
from attnkit.training.muon import Muon, orthogonalize

Matrix = NDArray[np.float64]
MATRICES = {"mix.weight": (5, 7)}  # as in the module of the toy model: two maps, (5, 24) and (7, 24)
CONFIG = OptimizationConfig(optimizer="muon", learning_rate=0.03, weight_decay=0.3, clip_norm=2.2, betas=(0.8, 0.95))


def polynomial(matrix: Matrix) -> Matrix:
    """Return U p(S) Vᵀ, with the five iterations applied to singular values: Jordan et al. 2024."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values = values / np.sqrt((values**2).sum())  # of the matrix divided by its Frobenius norm
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left * values @ right


def random_matrix(rows: int, columns: int, spread: float = 0.0, seed: int = 0) -> Matrix:
    """Return a matrix whose singular values fall by a factor of 10 to the power ``spread``."""
    draws = np.random.default_rng(seed).normal(size=(rows, columns))
    left, _, right = np.linalg.svd(draws, full_matrices=False)
    return left * np.logspace(0, -spread, min(rows, columns)) @ right


@pytest.mark.parametrize("shape", [(8, 8), (24, 6), (6, 24), (1, 5), (40, 33)])
def test_orthogonalized_matrices_have_the_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    matrices = np.stack([random_matrix(*shape, spread, seed) for seed, spread in enumerate((0.0, 0.5, 1.5, 4.0))])
    found = orthogonalize(torch.from_numpy(matrices)).numpy()
    for one, own in zip(found, matrices, strict=True):
        np.testing.assert_allclose(one, polynomial(own), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("dtype", "slack"), [(torch.float64, 0.0), (torch.float32, 1e-4), (torch.bfloat16, 0.08)])
@pytest.mark.parametrize("shape", [(32, 32), (96, 32), (32, 96)])
def test_orthogonalized_matrices_are_close_to_u_v(shape: tuple[int, int], dtype: torch.dtype, slack: float) -> None:
    matrix = random_matrix(*shape, spread=1.0)
    values = np.linalg.svd(matrix, compute_uv=False)
    assert values[-1] / np.linalg.norm(values) > 0.01  # the polynomial lifts smaller ones less
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    found = orthogonalize(torch.from_numpy(matrix)[None].to(dtype))[0].double().numpy()
    inner = left.T @ found @ right.T  # of an exact U Vᵀ: the identity
    assert 0.68 - slack <= np.diag(inner).min() <= np.diag(inner).max() <= 1.14 + slack
    assert np.abs(inner - np.diag(np.diag(inner))).max() <= 1e-9 + slack
    assert np.abs(np.linalg.svd(found, compute_uv=False) - 1).max() <= 0.32 + slack


def test_the_documented_bounds_are_those_of_the_polynomial() -> None:
    values = np.linspace(0.01, 1, 100_001)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    assert 0.68 <= values.min() < 0.69
    assert 1.13 < values.max() <= 1.14


def test_scale_does_not_matter_and_zero_stays_zero() -> None:
    matrices = torch.from_numpy(np.stack([random_matrix(6, 9), 1e-6 * random_matrix(6, 9), np.zeros((6, 9))]))
    found = orthogonalize(matrices)
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)
    assert not found[2].any()


class Reference:
    """AdamW and Muon in numpy, written from the equations of the papers."""

    def __init__(self, weights: dict[str, Matrix], config: OptimizationConfig) -> None:
        self.weights, self.config, self.n_steps = weights, config, 0
        self.first = {name: np.zeros_like(w) for name, w in weights.items()}
        self.second = {name: np.zeros_like(w) for name, w in weights.items()}

    def step(self, gradients: dict[str, Matrix], rate: float) -> float:
        norm = float(np.sqrt(sum((g**2).sum() for g in gradients.values())))
        self.n_steps += 1
        for name, gradient in gradients.items():
            gradient = gradient * min(1.0, self.config.clip_norm / norm)
            weight = self.weights[name]
            decay = self.config.weight_decay if weight.ndim > 1 else 0.0
            update = self.muon(name, gradient) if name in MATRICES else self.adamw(name, gradient)
            self.weights[name] = weight - rate * decay * weight - rate * update
        return norm

    def adamw(self, name: str, gradient: Matrix) -> Matrix:
        """Loshchilov and Hutter 2019, algorithm 2, lines 7 to 10."""
        (b1, b2), t = self.config.betas, self.n_steps
        self.first[name] = b1 * self.first[name] + (1 - b1) * gradient
        self.second[name] = b2 * self.second[name] + (1 - b2) * gradient**2
        corrected = self.first[name] / (1 - b1**t), self.second[name] / (1 - b2**t)
        return corrected[0] / (np.sqrt(corrected[1]) + self.config.eps)

    def muon(self, name: str, gradient: Matrix) -> Matrix:
        """Momentum as a sum (Jordan et al. 2024), whose scale orthogonalizing removes; factor of Liu et al. 2025."""
        mu = self.config.muon_momentum
        self.first[name] = mu * self.first[name] + gradient
        nesterov = gradient + mu * self.first[name]
        maps = np.split(nesterov, np.cumsum(MATRICES[name])[:-1])
        return np.concatenate([0.2 * np.sqrt(max(m.shape)) * polynomial(m) for m in maps])


def backward(toy: ModuleType, model: nn.Module, seed: int) -> None:
    terms = toy.Loss(model)(toy.collate(toy.make_pairs(9, seed)))
    (terms["nll"].total / 40).backward()


def arrays(tensors: dict[str, Tensor]) -> dict[str, Matrix]:
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}


@pytest.mark.parametrize("rates", [{}, {"mix.weight": 0.25}])
def test_steps_equal_the_equations(toy: ModuleType, rates: dict[str, float]) -> None:
    model = toy.Toy().double()
    store = FlatParameterStore(model, CONFIG, rates=rates, matrices=MATRICES)
    reference = Reference(arrays(dict(model.named_parameters())), CONFIG)
    slower = Reference(arrays(dict(model.named_parameters())), CONFIG)  # at the rate of mix.weight
    clipped = 0
    for step in range(8):
        rate = 0.03 / (step + 1)
        backward(toy, model, step)
        store.accumulate_grads()
        gradients = arrays({name: p.grad for name, p in model.named_parameters()})
        norm = float(store.grad_norm())
        clipped += norm > CONFIG.clip_norm
        assert norm == pytest.approx(reference.step(gradients, rate), rel=1e-12)
        slower.step(gradients, rate * rates.get("mix.weight", 1.0))
        store.update(rate, norm)
        store.zero_grad()
        for name, parameter in model.named_parameters():
            wanted = (slower if name in rates else reference).weights[name]
            np.testing.assert_allclose(parameter.detach().numpy(), wanted, rtol=1e-9, atol=1e-12, err_msg=name)
    assert 0 < clipped < 8


@pytest.mark.parametrize("shape", [(6, 6), (12, 5), (5, 12)])
@pytest.mark.parametrize("momentum", [0.95, 0.0])
def test_steps_equal_torch_muon(shape: tuple[int, int], momentum: float) -> None:
    torch.manual_seed(1)
    weight = torch.randn(shape)
    theirs = nn.Parameter(weight.clone())
    options = {"lr": 0.02, "weight_decay": 0.1, "momentum": momentum, "adjust_lr_fn": "match_rms_adamw"}
    reference = torch.optim.Muon([theirs], **options)
    gradient, exp_avg = torch.zeros(shape), torch.zeros(shape)
    ours = Muon([(weight, gradient)], torch.bfloat16, momentum)
    start = weight.clone()
    for _ in range(6):
        theirs.grad = torch.randn(shape)
        gradient.copy_(theirs.grad)
        reference.step()
        ours.update(weight.flatten(), gradient.view(-1), exp_avg.view(-1), 0.02, 0.1)
    # Both round to bfloat16, but not at the same places.
    assert (weight - theirs).norm() <= 0.02 * (theirs - start).norm()


def test_updates_are_as_large_as_those_of_adamw() -> None:
    for shape in ((64, 64), (256, 64), (64, 256)):
        weight, gradient = torch.zeros(shape), torch.randn(shape, generator=torch.Generator().manual_seed(2))
        Muon([(weight, gradient)], torch.float32, 0.95).update(
            weight.view(-1), gradient.view(-1), torch.zeros(weight.numel()), 1.0, 0.0
        )
        assert 0.15 <= float(weight.square().mean().sqrt()) <= 0.25


def test_a_step_is_the_same_in_any_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    gradients = torch.randn(7, 6, 4, dtype=torch.float64)
    found = []
    for n_elements in (6 * 4, 3 * 6 * 4, 1000):  # one, three and seven at a time
        monkeypatch.setattr("attnkit.training.muon._STACK", n_elements)
        weights, own = torch.zeros(7, 6, 4, dtype=torch.float64), gradients.clone()
        pairs = list(zip(weights, own, strict=True))
        Muon(pairs, torch.float64, 0.9).update(weights.view(-1), own.view(-1), torch.zeros_like(own).view(-1), 0.1, 0.1)
        found.append(weights)
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(found[2], found[0], rtol=1e-12, atol=1e-15)


def test_matrices_have_momentum_and_no_second_moment(toy: ModuleType) -> None:
    store = FlatParameterStore(toy.Toy(), CONFIG, matrices=MATRICES)
    others = {"embedding.weight", "mix.bias", "norm.weight", "norm.bias", "output.bias"}
    assert set(store.views(store.exp_avg)) == others | {"mix.weight"}
    assert set(store.views(store.exp_avg_sq)) == others
    assert set(store.tensors()[1]) == {f"exp_avg.{n}" for n in {*others, "mix.weight"}} | {
        f"exp_avg_sq.{n}" for n in others
    }


def test_frozen_matrices_stay(toy: ModuleType) -> None:
    model = toy.Toy()
    model.mix.weight.requires_grad_(False)
    frozen, free = model.mix.weight.detach().clone(), model.mix.bias.detach().clone()
    store = FlatParameterStore(model, CONFIG, matrices={})
    backward(toy, model, 1)
    store.accumulate_grads()
    store.update(0.1, 0.0)
    assert torch.equal(model.mix.weight, frozen)
    assert not torch.equal(model.mix.bias, free)


def test_a_model_of_matrices_alone() -> None:
    model = nn.Linear(6, 4, bias=False)
    store = FlatParameterStore(model, CONFIG, matrices={"weight": (4,)})
    before = model.weight.detach().clone()
    model(torch.randn(3, 6)).square().sum().backward()
    store.accumulate_grads()
    store.update(0.1, 1.0)
    assert len(store.exp_avg_sq) == 0
    assert not torch.equal(model.weight, before)
