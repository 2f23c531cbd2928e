"""Products of int16, which screen the output layer of float32, beside float64."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from attnkit.kernels.jit import is_available, no_refcount
from attnkit.kernels.simd.packing import PackedWeights, aligned, pack
from attnkit.kernels.simd.targets import choose_target

COLUMNS, INPUTS = 128, 256


class Products(NamedTuple):
    products: NDArray[np.int64]


@pytest.fixture(scope="module")
def multiply() -> Any:
    if not is_available() or not choose_target().fast_int16:
        pytest.skip("no products of int16 on this processor")
    from attnkit.kernels.simd.rows import make_quantize
    from attnkit.kernels.sublayers import NOTHING, build_linear

    target = choose_target()
    quantize, linear = make_quantize(target, "int16"), build_linear(target, "int16", "store")

    @no_refcount
    def loop(model: Any, x: Any, n_rows: Any, encoded: Any, scales: Any, out: Any) -> None:
        for m in range(n_rows):
            quantize(x + 4 * INPUTS * m, INPUTS >> 4, encoded + 2 * INPUTS * m, scales + 4 * m)
        linear(model, 0, (encoded, scales, n_rows), (out, 4 * COLUMNS), NOTHING)

    def multiply(x: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32]) -> Any:
        packed = pack(weight, bias, target, "int16")
        table = np.array([[*(part.ctypes.data for part in packed), COLUMNS, INPUTS]], np.int64)
        n, rows = len(x), aligned(x)
        out, encoded = np.zeros((n + 8, COLUMNS), np.float32), np.zeros((n + 8, INPUTS), np.int16)
        scales = np.zeros(n + 8, np.float32)
        loop(Products(table), rows.ctypes.data, n, encoded.ctypes.data, scales.ctypes.data, out.ctypes.data)
        return out[:n]

    return multiply


def cases() -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return rows (M, K) and weights (N, K): random, parallel (the largest sums), constant, spikes, zeros, tiny."""
    chance = np.random.default_rng(0)
    weight = chance.normal(size=(COLUMNS, INPUTS))
    spikes = np.where(chance.random((COLUMNS, INPUTS)) < 0.02, weight * 100, weight / 100)
    one_block = np.where(np.arange(INPUTS) < 64, weight, 0)
    found = [(chance.normal(size=(13, INPUTS)), weight)]
    found += [(each[:13], each) for each in (weight, spikes, one_block, np.ones((COLUMNS, INPUTS)), -weight)]
    found += [(-weight[:13], weight), (np.zeros((3, INPUTS)), weight), (weight[:5] * 1e-12, weight * 1e8)]
    return found


def test_products_are_nearly_exact(multiply: Any) -> None:
    bias = np.linspace(-3, 3, COLUMNS)
    for x, weight in cases():
        # The largest block of 64 inputs sets the scale.
        lengths = [np.sqrt(np.square(each.reshape(len(each), -1, 64)).sum(2)).max(1) for each in (x, weight)]
        largest = [np.abs(each).max(1) * 46_000 / 32_767 for each in (x, weight)]
        steps = [np.maximum(*pair) / 46_000 for pair in zip(lengths, largest, strict=True)]
        norms = [np.linalg.norm(each, axis=1) for each in (x, weight)]
        bound = np.outer(steps[0], norms[1]) + np.outer(norms[0], steps[1])
        bound *= 0.51 * np.sqrt(INPUTS)  # the length of a rounding error of up to half a step
        found = multiply(x.astype(np.float32), weight.astype(np.float32), bias.astype(np.float32))
        error = np.abs(found - (x @ weight.T + bias))
        assert np.all(error <= bound + 1e-6 * (np.outer(*norms) + 3)), error.max()


def unpack(packed: PackedWeights) -> NDArray[np.float32]:
    """Return the weights (N, K) that packed integers and their scales represent."""
    return packed.weights.transpose(0, 2, 1, 3).reshape(len(packed.scale), -1) * packed.scale[:, None]


def test_weights_of_int16_are_unpacked() -> None:
    weight = np.random.default_rng(1).normal(size=(100, 200)).astype(np.float32)
    packed = pack(weight, np.zeros(100, np.float32), choose_target(), "int16")
    assert np.abs(unpack(packed)[:100, :200] - weight).max() < packed.scale.max() * 0.51
    assert not unpack(packed)[100:].any() and not unpack(packed)[:, 200:].any()
