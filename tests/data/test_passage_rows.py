"""Packed documents as rows: every token of every document is there once, with the right neighbours and targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnkit.data.config import MaskingConfig
from attnkit.data.language_modeling import ClmDataset, MlmDataset, MlmMasking
from attnkit.data.loader import BatchLoader, DataPosition
from attnkit.data.masking import MaskVocabulary
from attnkit.data.packed_batches import PackedCorpora
from attnkit.data.store import Store, write_store
from attnkit.text.offsets import WordBoundaries

V, MASK = 60, 4
GOES_ON = (np.arange(V) % 3 == 0).astype(np.uint8)
DOCUMENTS = [
    [int(x) for x in np.random.default_rng(i).integers(5, V, n)] for i, n in enumerate([3, 40, 1, 9, 0, 22, 6])
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(tmp_path_factory.mktemp("store") / "documents", [DOCUMENTS], V)


def masked(store: Store, **fields: object) -> MlmDataset:
    config = MaskingConfig(**fields)  # type: ignore[arg-type]
    boundaries = WordBoundaries(GOES_ON, np.ones(V, np.uint8))
    masking = MlmMasking(config, MaskVocabulary(MASK, np.arange(5, V)), boundaries)
    return MlmDataset(PackedCorpora(store, 12), masking)


def read(rows: MlmDataset) -> list[list[int]]:
    """Return the passages of all rows with masked tokens put back, each without its ends."""
    batch = rows.batch(np.arange(len(rows)), 1, 0)
    ids = batch.ids.numpy().copy().reshape(-1)
    ids[batch.chosen.numpy()] = batch.targets.numpy()
    ids = ids.reshape(batch.ids.shape)
    passages = np.zeros_like(ids) if batch.passages is None else batch.passages.numpy()
    found = []
    for row, numbers in zip(ids, passages, strict=True):
        for number in np.unique(numbers):
            here = row[numbers == number]
            if here[0]:
                assert (here[0], here[-1]) == (1, 2) and (here[1:-1] > 4).all()
                found.append(here[1:-1].tolist())
            else:
                assert not here.any()
    return found


def test_every_document_is_there_in_passages(store: Store) -> None:
    pieces = [document[i : i + 10] for document in DOCUMENTS for i in range(0, len(document), 10)]
    assert sorted(read(masked(store))) == sorted(pieces)


def test_whole_rows_come_first(store: Store) -> None:
    rows = masked(store)
    batch = rows.batch(np.arange(len(rows))[::-1].copy(), 1, 0)
    assert batch.passages is not None
    alone = [len(set(numbers.tolist())) == 1 for numbers in batch.passages]
    assert alone == [i < batch.n_unmixed for i in range(len(rows))] and 0 < batch.n_unmixed < len(rows)
    whole = rows.batch(np.arange(batch.n_unmixed), 1, 0)
    assert whole.passages is None and whole.n_unmixed == batch.n_unmixed and whole.bounds is None


@pytest.mark.parametrize("make", [masked, ClmDataset])
def test_bounds_are_where_passages_begin_and_the_last_one_ends(store: Store, make: Any) -> None:
    rows = make(store) if make is masked else make(PackedCorpora(store, row_length=12))
    batch = rows.batch(np.arange(len(rows)), 1, 0)
    assert batch.bounds is not None and batch.bounds.dtype == torch.int32 and batch.passages is not None
    flat = [(row, number) for row, numbers in enumerate(batch.passages.tolist()) for number in numbers]
    begins = [at for at in range(len(flat)) if at == 0 or flat[at] != flat[at - 1]]
    assert batch.bounds.tolist() == [*begins, len(flat)]


@pytest.mark.parametrize("units", ["tokens", "words", "spans"])
def test_counts_are_those_of_the_batch(store: Store, units: str) -> None:
    rows = masked(store, mask_unit=units, mask_prob=0.3)
    for epoch in range(4):
        for indices in (np.arange(len(rows)), np.array([2, 0])):
            batch = rows.batch(indices, 1, epoch)
            assert rows.counts(indices, 1, epoch) == {"nll": len(batch.targets)}


@pytest.mark.parametrize("units", ["tokens", "words", "spans"])
def test_nothing_but_words_is_ever_hidden_and_each_epoch_hides_others(store: Store, units: str) -> None:
    rows = masked(store, mask_unit=units, mask_prob=0.5)
    found = []
    for epoch in range(20):
        batch = rows.batch(np.arange(len(rows)), 1, epoch)
        read = batch.ids.numpy().copy().reshape(-1)
        read[batch.chosen.numpy()] = batch.targets.numpy()
        assert batch.targets.min() > 4 and (batch.ids.reshape(-1)[read <= 4].numpy() == read[read <= 4]).all()
        found.append(tuple(batch.chosen.tolist()))
    assert len(set(found)) == 20


def test_a_step_masks_alike_for_any_number_of_ranks(store: Store) -> None:
    rows = masked(store, mask_prob=0.3)
    steps = [BatchLoader(rows, 3, 48, rank=rank, world=2).batch_at(DataPosition(1, 1))[0] for rank in range(2)]
    alone = BatchLoader(rows, 3, 48).batch_at(DataPosition(1, 1))[0]
    targets = [int(t) for step in steps for part in step.micro_batches for t in part.targets]
    assert sorted(targets) == sorted(int(t) for part in alone.micro_batches for t in part.targets)
    assert alone.counts == steps[0].counts == {"nll": len(targets)}


def test_next_tokens_follow_what_is_read(store: Store) -> None:
    rows = ClmDataset(PackedCorpora(store, 12))
    batch = rows.batch(np.arange(len(rows)), 1, 0)
    assert rows.counts(np.arange(len(rows))) == {"nll": sum(map(len, DOCUMENTS))} == {"nll": len(batch.targets)}
    before = batch.ids.reshape(-1)[batch.chosen].tolist()
    pairs = sorted(zip(before, batch.targets.tolist(), strict=True))
    assert pairs == sorted(pair for document in DOCUMENTS for pair in zip([1, *document], document, strict=False))


def test_a_passage_reads_its_own_document_alone(store: Store) -> None:
    rows = ClmDataset(PackedCorpora(store, 12))
    batch = rows.batch(np.arange(len(rows)), 1, 0)
    assert batch.passages is not None
    for row, numbers in zip(batch.ids.tolist(), batch.passages.tolist(), strict=True):
        for number in set(numbers):
            here = [token for token, owner in zip(row, numbers, strict=True) if owner == number and token]
            text = here[1:] if here[:1] == [1] else here
            assert any(text == document[i : i + len(text)] for document in DOCUMENTS for i in range(len(document) + 1))


def test_a_batch_holds_as_many_tokens_as_it_may(store: Store) -> None:
    rows = masked(store)
    feed = BatchLoader(rows, 3, 48)
    sizes = [sum(len(part.ids) for part in feed.batch_at(DataPosition(0, i))[0].micro_batches) for i in range(2)]
    assert rows.sizes.tolist().count(12) >= 4 and max(sizes) == 4, "four full rows of 12 are 48 tokens"
    assert sum(int(part.sum()) for part in rows.lengths) == rows.sizes.sum()


def test_an_epoch_holds_the_rows_that_were_drawn(store: Store) -> None:
    rows = ClmDataset(PackedCorpora(store, 12, (2, 5), alpha=0.0))
    drawn = rows.mixture.draw(3, 1)
    assert drawn is not None and len(set(drawn.tolist())) == len(drawn) != len(rows)
    feed = BatchLoader(rows, 3, 24, sampler=rows.mixture.draw)
    found = [
        number
        for i in range(feed.plan(1).n_batches)
        for part in feed.batch_at(DataPosition(1, i))[0].micro_batches
        for number in part.numbers.tolist()
    ]
    assert sorted(found) == sorted(drawn.tolist())
    numbers = drawn.astype(np.int64)
    corpora = np.bincount(rows.mixture.corpus(numbers), rows.sizes[rows.mixture.rows(numbers)])
    assert abs(corpora[0] / corpora.sum() - 0.5) < 0.1
