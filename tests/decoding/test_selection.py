"""The selection in groups against a plain sort, with ties."""

from __future__ import annotations

import pytest
import torch

from attnkit.decoding.selection import argmax, topk, topk_continuations


def tied(*shape, seed=0):
    """Return whole numbers as floats, so that there are many equals, with a few -inf."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-4, 5, shape, generator=generator).float()
    return values.masked_fill(torch.rand(shape, generator=generator) < 0.1, -torch.inf)


def spread(*shape):
    """Return ties of words in groups whose peaks differ."""
    return torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(0)).float()


def by_sort(values, n):
    top, index = values.sort(dim=-1, descending=True, stable=True)
    return top[:, :n], index[:, :n]


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("make", [tied, torch.randn])
def test_best_is_a_stable_sort(n, make):
    values = make(30, 40)
    top, index = topk(values, n)
    expected = by_sort(values, n)
    assert torch.equal(top, expected[0])
    assert torch.equal(index, expected[1])


def test_best_takes_both_zeros_for_one_and_fills_up():
    top, index = topk(torch.tensor([[-0.0, 0.0, -1.0]]), 5)
    assert index.tolist() == [[0, 1, 2, 0, 0]]
    assert top.tolist() == [[0, 0, -1, -torch.inf, -torch.inf]]


@pytest.mark.parametrize("vocab_size", [5, 64, 128, 129, 192, 200, 1000])
@pytest.mark.parametrize("n_beams", [1, 4])
@pytest.mark.parametrize("make", [tied, spread, torch.randn])
def test_continuations_are_the_best_of_all(vocab_size, n_beams, make):
    for n in (1, 4, 9):
        log_probs, scores = make(20, n_beams, vocab_size), make(20, n_beams)
        top, flat = topk_continuations(log_probs, scores, n)
        expected, index = by_sort((log_probs + scores[..., None]).flatten(1), n)
        n_there = expected.shape[1]
        assert torch.equal(top[:, :n_there], expected)
        finite = expected > -torch.inf
        assert torch.equal(flat[:, :n_there][finite], index[finite])
        assert bool((top[:, n_there:] == -torch.inf).all())


@pytest.mark.parametrize("vocab_size", [5, 129, 192, 1000])
def test_argmax_is_the_first_of_the_highest(vocab_size):
    rows = tied(7, 3, vocab_size)
    expected = (rows == rows.amax(-1, keepdim=True)).int().argmax(-1)
    assert torch.equal(argmax(rows), expected)
