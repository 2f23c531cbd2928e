"""Pairs segmented at random: what a segmentation depends on, and counts that fit it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from attnkit.data.config import DataConfig
from attnkit.data.loader import BatchLoader, DataPosition
from attnkit.data.pairs import Pairs, write_pairs
from attnkit.data.subword_sampling import SampledPairs, Samplers
from attnkit.text.config import VocabularyConfig
from attnkit.text.encoding import EncodedLines
from attnkit.text.subword_sampling import subword_sampler
from attnkit.text.vocabulary import train_vocabulary

SIDES = (
    ["the lower the newer", "newest and lowest", "a new town", "widening towns", "lower", "the newest town of all"] * 5,
    ["je niedriger desto neuer", "neueste und niedrigste", "eine neue Stadt", "Städte", "niedriger", "die neueste"] * 5,
)
VOCABULARY = train_vocabulary([*SIDES[0], *SIDES[1]], VocabularyConfig(size=330))


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    rows = [EncodedLines.of(VOCABULARY.encode(side)) for side in SIDES]
    size = VOCABULARY.vocab_size
    return write_pairs(tmp_path / "pairs", [[rows]], (size, size), DataConfig(src=("a",), tgt=("b",)))


def sampled(pairs: Pairs, dropout: float = 0.3) -> SampledPairs:
    return SampledPairs(
        pairs, Samplers(*(subword_sampler(VOCABULARY, longest=256, dropout=dropout, alpha=None) for _ in range(2)))
    )


def rows_of(data: SampledPairs, indices: list[int], seed: int = 1, epoch: int = 0) -> list[tuple[list[int], list[int]]]:
    """Return the ids of both sides of each pair, without padding, BOS and EOS."""
    batch = data.batch(np.array(indices), seed, epoch)
    ends = np.cumsum([int((row > 0).sum()) for row in batch.tgt_in])
    targets = [batch.targets[begin : end - 1].tolist() for begin, end in pairwise([0, *ends])]
    return [(row[row > 2].tolist(), target) for row, target in zip(batch.src, targets, strict=True)]


def test_text_stays_and_segmentation_changes(pairs: Pairs) -> None:
    data, everything = sampled(pairs), list(range(len(pairs)))
    first, second = rows_of(data, everything, epoch=0), rows_of(data, everything, epoch=1)
    for number, row in enumerate(first):
        assert VOCABULARY.decode(row) == [side[number] for side in SIDES]
    assert sum(a != b for a, b in zip(first, second, strict=True)) > len(first) / 2
    assert first != rows_of(data, everything, seed=2)
    assert len({tuple(row[0]) for row in first[:: len(set(SIDES[0]))]}) > 1  # equal lines are segmented apart
    assert data.fingerprint == pairs.fingerprint  # the encoded text is the same


def test_a_pair_depends_on_nothing_around_it(pairs: Pairs) -> None:
    data = sampled(pairs)
    together = rows_of(data, [3, 0, 7, 5])
    assert together == [rows_of(data, [number])[0] for number in (3, 0, 7, 5)]


def test_ranks_and_micro_batches_share_a_step(pairs: Pairs) -> None:
    data = sampled(pairs)

    def targets(rank: int, world: int, accumulate: int) -> list[NDArray[np.int64]]:
        step, _ = BatchLoader(data, 1, 400, accumulate, rank, world).batch_at(DataPosition(2, 0))
        assert step.counts["nll"] == total
        return [batch.targets.numpy() for batch in step.micro_batches]

    step, _ = BatchLoader(data, 1, 400).batch_at(DataPosition(2, 0))
    total = sum(len(batch.targets) for batch in step.micro_batches)
    assert step.counts["nll"] == total
    whole = np.sort(step.micro_batches[0].targets.numpy())
    for world, accumulate in ((1, 3), (2, 2), (3, 1)):
        parts = [one for rank in range(world) for one in targets(rank, world, accumulate)]
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), whole)


def test_an_empty_batch_is_refused(pairs: Pairs) -> None:
    with pytest.raises(ValueError, match="empty batch"):
        sampled(pairs).batch(np.array([], np.int64))
