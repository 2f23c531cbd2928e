"""A toy translation model, ragged data and a feed, all written here: the loop must work for anything that fits."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from attnkit.training.config import TrainingConfig
from attnkit.training.flat_optimizer import FlatParameterStore, Precision
from attnkit.training.loop import TrainingJob, fit
from attnkit.training.losses import LossTerm, linear_cross_entropy
from attnkit.training.records import EvaluationRecord, StepBatches, StepRecord
from attnkit.training.state import TrainState

VOCAB, WIDTH = 29, 12
MATRICES = {"mix.weight": (5, 7)}
"""What Muon trains: two maps, (5, 24) and (7, 24)."""


class Batch(NamedTuple):
    src: Tensor  # (B, S)
    mask: Tensor  # (B, S) True = real
    tgt_in: Tensor  # (B, T)
    positions: Tensor  # (N,) of real targets in B * T
    targets: Tensor  # (N,)


@dataclass(frozen=True)
class Place:
    epoch: int = 0
    index: int = 0


class Toy(nn.Module):
    """Predict each target from the one before it and the mean of the source; the output weight is the embedding."""

    def __init__(self, dropout: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.mix = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(WIDTH, VOCAB)
        self.output.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor([2.0]))

    def hidden(self, batch: Batch) -> Tensor:
        src = self.embedding(batch.src) * batch.mask[..., None]
        mean = src.sum(1, keepdim=True) / batch.mask.sum(1)[:, None, None]
        words = self.embedding(batch.tgt_in)
        both = torch.cat([words, mean.expand_as(words).to(words.dtype)], -1)
        return self.dropout(self.norm(torch.tanh(self.mix(self.dropout(both)))))


def make_pairs(n: int = 150, seed: int = 5) -> list[tuple[list[int], list[int]]]:
    """Return ragged pairs: the target is the source shifted by one letter."""
    draw = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(n):
        src = torch.randint(4, VOCAB, (int(torch.randint(1, 11, (), generator=draw)),), generator=draw)
        pairs.append((src.tolist(), [4 + (i - 3) % (VOCAB - 4) for i in src.tolist()]))
    return pairs


def collate(pairs: list[tuple[list[int], list[int]]]) -> Batch:
    src = nn.utils.rnn.pad_sequence([torch.tensor(s) for s, _ in pairs], batch_first=True)
    tgt = nn.utils.rnn.pad_sequence([torch.tensor([*t, 2]) for _, t in pairs], batch_first=True)
    tgt_in = nn.utils.rnn.pad_sequence([torch.tensor([1, *t]) for _, t in pairs], batch_first=True)
    flat = tgt.flatten()
    positions = flat.nonzero().squeeze(1)
    return Batch(src, src != 0, tgt_in, positions, flat[positions])


@dataclass
class Feed:
    """Slices of a fixed global batch: as ragged as can be, the first slice gets the most sentences."""

    pairs: list[tuple[list[int], list[int]]]
    size: int = 64
    accumulate: int = 1
    rank: int = 0
    world: int = 1
    even: bool = False

    def batch_at(self, place: Place, progress: float = 0.0) -> tuple[StepBatches, Place]:
        per_epoch = -(-len(self.pairs) // self.size)
        batch = self.pairs[place.index * self.size : (place.index + 1) * self.size]
        n = self.world * self.accumulate
        cuts = [round(len(batch) * (i / n) ** 0.8) for i in range(n + 1)]
        slices = [batch[a:b] for a, b in itertools.pairwise(cuts)]
        shares = [[part for part in slices[i : i + self.accumulate] if part] for i in range(0, n, self.accumulate)]
        mine = shares[self.rank]
        n_padding_batches = max(map(len, shares)) - len(mine) if self.even else 0
        mine = mine + [batch[:1]] * n_padding_batches
        counts = {"nll": sum(len(t) + 1 for _, t in batch), "length": len(batch)}
        done = place.index + 1
        batches = tuple(collate(part) for part in mine)
        epoch = place.epoch + done / per_epoch
        step = StepBatches(batches, n_padding_batches, counts, counts["nll"], epoch)
        return step, Place(place.epoch, done) if done < per_epoch else Place(place.epoch + 1, 0)


@dataclass(frozen=True)
class Loss:
    """Two terms with different counts, so that a mix-up of counts shows."""

    model: Toy
    label_smoothing: float = 0.1

    def __call__(self, batch: Batch) -> dict[str, LossTerm]:
        hidden = self.model.hidden(batch)
        rows = hidden.flatten(0, 1)[batch.positions]
        output = self.model.output
        total, nll = linear_cross_entropy(rows, output.weight, output.bias, batch.targets, self.label_smoothing)
        length = hidden[:, 0, 0].to(total.dtype).square().sum()
        return {
            "nll": LossTerm(total, reported=nll),
            "length": LossTerm(length, weight=0.3, reported=length.detach() * 0),
        }


def make_config(**parts: dict[str, object]) -> TrainingConfig:
    optimization = {"learning_rate": 0.02, "warmup_steps": 3, "schedule": "constant", "clip_norm": 0.5}
    limits = {"max_steps": 5, "metric": "loss"}
    tree = {
        "optimization": optimization | parts.get("optimization", {}),
        "limits": limits | parts.get("limits", {}),
        "evaluation": parts.get("evaluation", {}),
    }
    return TrainingConfig.model_validate(tree, strict=False)


def held_out_loss(model: nn.Module) -> dict[str, float]:
    batch = collate(make_pairs(20, seed=99))
    assert isinstance(model, Toy)
    assert not model.training
    rows = model.hidden(batch).flatten(0, 1)[batch.positions]
    logits = nn.functional.linear(rows, model.output.weight, model.output.bias)
    return {"loss": float(nn.functional.cross_entropy(logits.double(), batch.targets))}


class Setting(NamedTuple):
    job: TrainingJob
    state: TrainState

    def run(self) -> list[StepRecord | EvaluationRecord]:
        return list(fit(self.job, self.state))


def setting(
    config: TrainingConfig,
    *,
    dtype: torch.dtype = torch.float32,
    precision: Precision = "float32",
    dropout: float = 0.0,
    model_seed: int = 0,
    feed: dict[str, int] | None = None,
    **job: Any,
) -> Setting:
    """Build a fresh model, state and job; ``job`` overrides fields of Job."""
    model = Toy(dropout, model_seed).to(dtype)
    matrices = MATRICES if config.optimization.optimizer == "muon" else {}
    state = TrainState(FlatParameterStore(model, config.optimization, precision, matrices=matrices), Place())
    fields = {"feed": Feed(make_pairs(), **(feed or {})), "loss": Loss(model)} | job
    return Setting(TrainingJob(model=model, config=config, **fields), state)


@pytest.fixture
def toy() -> ModuleType:
    """This file as a module: test files cannot import each other."""
    return sys.modules[__name__]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
