"""A model small enough to enumerate, whose next word depends on the source and on every word before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

N_CODES = 9973


@dataclass(frozen=True)
class TableState:
    codes: Tensor  # (B, K)
    src_mask: Tensor  # (B, S)
    n_beams: int
    steps_left: int
    record: bool
    attention: Tensor | None = None

    def reorder_beams(self, parents: Tensor) -> TableState:
        assert parents.shape[1] <= self.n_beams
        assert int(parents.max()) < self.codes.shape[1]
        return replace(self, codes=self.codes.gather(1, parents))

    def select_rows(self, sentences: Tensor) -> TableState:
        return replace(self, codes=self.codes[sentences], src_mask=self.src_mask[sentences])


class TableModel(nn.Module):
    """Hashes source and words so far to a row of random features. In float64, so that batches never change a logit."""

    def __init__(self, seed: int, vocab_size: int, sharpness: float, coarse: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.features = torch.randn(N_CODES, 8, generator=generator, dtype=torch.float64) * sharpness
        self.weight = torch.randn(vocab_size, 8, generator=generator, dtype=torch.float64)
        self.coarse = coarse

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> TableState:
        mask = torch.ones_like(src, dtype=torch.bool) if src_mask is None else src_mask
        codes = torch.zeros(len(src), 1, dtype=torch.long)
        for column in range(src.shape[1]):
            new = (codes * 131 + src[:, column : column + 1] * 17 + 5) % N_CODES
            codes = torch.where(mask[:, column : column + 1], new, codes)
        return TableState(codes, mask, n_beams, max_length, record)

    def step(self, prev: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        assert prev.shape == state.codes.shape, "K is 1 until reorder has widened the state"
        assert state.steps_left > 0, "more steps than start was told"
        codes = (state.codes * 1009 + prev * 31 + 7) % N_CODES
        attention = None
        if state.record:
            columns = torch.arange(state.src_mask.shape[1])
            looks = self.features[(codes[..., None] + columns) % N_CODES, 0]  # (B, K, S)
            attention = looks.masked_fill(~state.src_mask[:, None], -torch.inf).softmax(-1).float()
        return self.features[codes], replace(state, codes=codes, attention=attention, steps_left=state.steps_left - 1)

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        logits = hidden @ (self.weight if ids is None else self.weight[ids]).T
        return logits.round() if self.coarse else logits


@pytest.fixture(scope="session")
def make_model() -> Callable[..., TableModel]:
    """Return a model from (seed, vocab_size, sharpness, coarse: logits are integers, so that scores tie)."""

    def make(seed: int = 0, vocab_size: int = 9, sharpness: float = 0.8, coarse: bool = False) -> TableModel:
        return TableModel(seed, vocab_size, sharpness, coarse)

    return make


@pytest.fixture(scope="session")
def make_sources() -> Callable[[int, int], list[list[int]]]:
    """Return (seed, n) random source sentences of 1 to 9 words."""

    def make(seed: int, n: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, 10, (n,), generator=generator).tolist()
        return [torch.randint(3, 50, (length,), generator=generator).tolist() for length in lengths]

    return make


@pytest.fixture(scope="session")
def pad() -> Callable[[Sequence[Sequence[int]]], tuple[Tensor, Tensor]]:
    """Turn rows of different lengths into ids (B, S) and a mask (B, S)."""

    def to_batch(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        length = max(len(row) for row in rows)
        ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], dtype=torch.long)
        return ids, torch.arange(length) < torch.tensor([[len(row)] for row in rows])

    return to_batch
