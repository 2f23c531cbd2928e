"""Masking: proportions within 3 sigma, whole words together, special tokens never, all of it keyed by its row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attnkit.data.config import MaskingConfig
from attnkit.data.masking import MaskedBatch, Masking, MaskVocabulary

V, MASK = 1000, 4
WORDS = MaskVocabulary(MASK, np.arange(5, V))
Ids = npt.NDArray[np.int64]


def text(n_rows: int, length: int = 128) -> tuple[Ids, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return ids, where they may be chosen, and where words begin: [CLS] words [SEP], padding behind some rows."""
    rng = np.random.default_rng(7)
    ids = rng.integers(5, V, (n_rows, length))
    sizes = np.where(np.arange(n_rows) % 3 == 0, rng.integers(5, length, n_rows), length)
    at = np.arange(length)
    ids[:, 0] = 1
    ids[at >= sizes[:, None]] = 0
    ids[np.arange(n_rows), sizes - 1] = 2
    middle = n_rows // 2
    ids[:middle, length // 4][ids[:middle, length // 4] > 4] = 2  # two passages in a row
    return ids, ids > 4, rng.random((n_rows, length)) < 0.7


def masked(ids: Ids, free: Any, begins: Any, rows: Ids | None = None, epoch: int = 0, **fields: Any) -> MaskedBatch:
    rows = np.arange(len(ids)) if rows is None else rows
    return Masking(MaskingConfig(**fields), WORDS, 1, epoch).apply(ids, free, begins, rows)


def within(found: float, n: int, share: float, sigmas: float = 3) -> bool:
    return abs(found - n * share) <= sigmas * math.sqrt(n * share * (1 - share))


@pytest.mark.parametrize("units", ["tokens", "words", "spans"])
def test_proportions_over_a_million_tokens(units: str) -> None:
    ids, free, begins = text(9700)
    assert free.sum() > 1e6
    found = masked(ids, free, begins, mask_unit=units)
    n = len(found.chosen)
    # Fewer draws than tokens: a row's share is fixed but for its last unit, a word's treatment is one draw.
    assert within(n, int(free.sum()), 0.15)
    new, old = found.ids.reshape(-1)[found.chosen], found.targets
    assert (old == ids.reshape(-1)[found.chosen]).all()
    draws = {"tokens": n, "words": n / 1.9, "spans": n / 9}[units]
    wide = math.sqrt(n / draws)  # tokens of a unit share their fate
    same = (new == old).sum()
    assert within((new == MASK).sum(), n, 0.8, 3 * wide)
    assert within(same, n, 0.1, 3 * wide)
    assert within(n - same - (new == MASK).sum(), n, 0.1, 3 * wide)
    assert (found.ids.reshape(-1) != ids.reshape(-1)).sum() == n - same


def test_random_words_are_all_ordinary_ones_alike() -> None:
    ids, free, begins = text(4000)
    found = masked(ids, free, begins, mask_replace_prob=0.0, random_replace_prob=1.0)
    new = found.ids.reshape(-1)[found.chosen]
    counts = np.bincount(new, minlength=V)
    assert counts[:5].sum() == 0
    expected = len(new) / (V - 5)
    chi = ((counts[5:] - expected) ** 2 / expected).sum()
    assert abs(chi - (V - 6)) < 4 * math.sqrt(2 * (V - 6))


@pytest.mark.parametrize("units", ["tokens", "words", "spans"])
def test_special_tokens_and_padding_are_never_chosen(units: str) -> None:
    ids, free, begins = text(600)
    for epoch in range(5):
        found = masked(ids, free, begins, mask_unit=units, mask_prob=0.9, epoch=epoch)
        assert free.reshape(-1)[found.chosen].all()
        assert (found.ids[~free] == ids[~free]).all()


@pytest.mark.parametrize("units", ["words", "spans"])
def test_words_are_chosen_and_treated_as_one(units: str) -> None:
    ids, free, begins = text(400)
    found = masked(ids, free, begins, mask_unit=units)
    chosen = np.zeros(ids.size, bool)
    chosen[found.chosen] = True
    kinds = np.where(found.ids == MASK, 1, np.where(found.ids == ids, 2, 3)).reshape(-1)
    n_pairs = n_mixed = 0
    for row in range(len(ids)):
        for place in range(1, ids.shape[1]):
            at = row * ids.shape[1] + place
            if free[row, place] and free[row, place - 1] and not begins[row, place]:
                assert chosen[at] == chosen[at - 1]
                n_pairs += chosen[at]
                if chosen[at] and kinds[at] != kinds[at - 1]:
                    assert {2, 3} == {kinds[at], kinds[at - 1]}
                    n_mixed += 1
    # A random word is the word itself once in so many entries; drawn apart, 2 of 100 pairs would be mixed.
    assert n_pairs > 1000 and n_mixed < 0.01 * n_pairs, (n_pairs, n_mixed)


def test_spans_have_geometric_lengths() -> None:
    ids = np.full((300, 400), 9)
    ids[:, 0] = 1
    masking = Masking(MaskingConfig(mask_unit="spans", mask_prob=1 - 1e-12), WORDS, 3, 0)  # chooses every unit
    chosen, unit_starts = masking._choose(ids > 4, np.ones(ids.shape, bool), np.arange(300))
    assert len(chosen) == 300 * 399
    sizes = np.unique(unit_starts, return_counts=True)[1]
    assert sizes.max() == 10
    whole = sizes[sizes < 10]
    for length in range(1, 6):  # P(n) = .2 * .8^(n - 1), cut at ten
        p = 0.2 * 0.8 ** (length - 1)
        assert abs((sizes == length).sum() - p * len(sizes)) < 4 * math.sqrt(len(sizes) * p) + 300
    assert len(whole) > 0.8 * len(sizes)


def test_a_row_is_masked_alike_wherever_it_stands() -> None:
    ids, free, begins = text(50)
    for units in ("tokens", "words", "spans"):
        whole = masked(ids, free, begins, mask_unit=units)
        order = np.array([40, 3, 17])
        some = masked(ids[order], free[order], begins[order], rows=order, mask_unit=units)
        assert (some.ids == whole.ids[order]).all()


def test_epochs_and_seeds_mask_differently() -> None:
    ids, free, begins = text(50)
    first, second = (masked(ids, free, begins, epoch=epoch) for epoch in (0, 1))
    assert len(np.intersect1d(first.chosen, second.chosen)) < 0.3 * len(first.chosen)
    again = masked(ids, free, begins, epoch=1)
    assert (again.ids == second.ids).all()
    other = Masking(MaskingConfig(), WORDS, 2, 0).apply(ids, free, begins, np.arange(50))
    assert len(np.intersect1d(first.chosen, other.chosen)) < 0.3 * len(first.chosen)


def test_counts_are_known_without_choosing() -> None:
    ids, free, begins = text(500)
    for share in (0.15, 0.4, 0.01):
        masking = Masking(MaskingConfig(mask_prob=share), WORDS, 5, 2)
        chosen = masking.choose(free, begins, np.arange(500))
        assert (chosen.sum(1) == masking.counts(np.arange(500), free.sum(1))).all()
        assert (np.flatnonzero(chosen) == masking.apply(ids, free, begins, np.arange(500)).chosen).all()


def test_a_row_without_anything_to_choose() -> None:
    ids = np.array([[1, 2, 0, 0], [1, 9, 2, 0]])
    found = masked(ids, ids > 4, np.ones(ids.shape, bool), mask_unit="words", mask_prob=0.999999999)
    assert found.chosen.tolist() == [5] and found.targets.tolist() == [9]
    nothing = masked(ids[:1], ids[:1] > 4, np.ones((1, 4), bool), mask_unit="words")
    assert len(nothing.chosen) == 0
    assert Masking(MaskingConfig(), WORDS, 1, 0).counts(np.arange(2), np.zeros(2, int)).tolist() == [0, 0]


def test_shares_are_of_one_whole() -> None:
    with pytest.raises(ValueError, match="must sum to at most 1"):
        MaskingConfig(mask_replace_prob=0.9, random_replace_prob=0.2)
    assert MaskingConfig().unchanged == pytest.approx(0.1)
