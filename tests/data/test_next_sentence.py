"""Pairs for next-sentence prediction: which follow, which do not, and that nothing but the words can tell."""

from __future__ import annotations

import numpy as np
import pytest

from attnkit.data.config import MaskingConfig
from attnkit.data.language_modeling import MlmMasking
from attnkit.data.masking import MaskVocabulary
from attnkit.data.next_sentence import NspDataset, segment_spans
from attnkit.data.packed_batches import PackedCorpora
from attnkit.data.store import Store, write_store
from attnkit.text.offsets import WordBoundaries

V, MASK, STOP = 5000, 4, 5
SIZES = [1, 2, 9, 40, 100, 31, 64, 18, 77, 25, 50, 12]


def documents() -> list[list[int]]:
    """Return documents of tokens that occur once, but for a stop after each few."""
    found, next_id = [], 6
    for number, size in enumerate(SIZES):
        document = list(range(next_id, next_id + size))
        next_id += size
        for place in range(number % 5 + 2, size, number % 5 + 3):
            document[place] = STOP
        found.append(document)
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(tmp_path_factory.mktemp("store") / "documents", [documents()], V)


def pairs(store: Store, **fields: object) -> NspDataset:
    config = MaskingConfig(**fields)  # type: ignore[arg-type]
    one = np.ones(V, np.uint8)
    corpora = PackedCorpora(store, 24, (6, 6))
    masking = MlmMasking(config, MaskVocabulary(MASK, np.arange(6, V)), WordBoundaries(one, one))
    return NspDataset(corpora, masking, np.arange(V) == STOP)


def parts(rows: NspDataset, epoch: int) -> list[tuple[list[int], list[int], int, int]]:
    """Return first part, second part, label and number of every row, masked tokens put back."""
    batch = rows.batch(np.arange(len(rows)), 1, epoch)
    assert batch.segments is not None and batch.follows is not None
    ids = batch.ids.numpy().copy().reshape(-1)
    ids[batch.chosen.numpy()] = batch.targets.numpy()
    found = []
    columns = ids.reshape(batch.ids.shape), batch.segments.numpy(), batch.follows.tolist(), batch.numbers.tolist()
    for row, segments, label, number in zip(*columns, strict=True):
        size = int((row != 0).sum())
        cut = int(segments.argmax())
        assert row[0] == 1 and row[cut - 1] == row[size - 1] == 2
        assert segments.tolist() == [0] * cut + [1] * (size - cut) + [0] * (len(row) - size)
        found.append((row[1 : cut - 1].tolist(), row[cut : size - 1].tolist(), label, number))
    return found


def test_stretches_hold_every_token_of_documents_with_two() -> None:
    lengths = np.array(SIZES, np.int32)
    cut = segment_spans(lengths, 21)
    held = [
        (int(document), token)
        for document, offset, length in zip(cut.documents, cut.offsets, cut.lengths, strict=True)
        for token in range(offset, offset + length)
    ]
    assert held == [(i, token) for i, size in enumerate(SIZES) if size > 1 for token in range(size)]
    assert cut.lengths.min() >= 2 and cut.lengths.max() <= 21


def test_half_of_the_pairs_follow_and_the_others_come_from_elsewhere(store: Store) -> None:
    text, rows = documents(), pairs(store)
    owner = {token: i for i, document in enumerate(text) for token in document if token != STOP}
    labels = []
    for epoch in range(30):
        for first, second, label, number in parts(rows, epoch):
            labels.append(label)
            assert first and second
            documents_of = [{owner[token] for token in part if token != STOP} for part in (first, second)]
            assert all(len(found) <= 1 for found in documents_of)
            whole = text[int(rows.pieces.documents[number])]
            together = any(first + second == whole[i : i + len(first + second)] for i in range(len(whole)))
            assert together == (label == 0)
            if label and all(documents_of):
                one, other = (min(found) for found in documents_of)
                assert one != other and one // 6 == other // 6, "another document of the same corpus"
    assert abs(np.mean(labels) - 0.5) < 3 * 0.5 / len(labels) ** 0.5


def test_both_kinds_of_second_parts_begin_where_a_sentence_does(store: Store) -> None:
    text = documents()
    before = {token: ids[i - 1] if i else STOP for ids in text for i, token in enumerate(ids) if token != STOP}
    begun: dict[int, list[bool]] = {0: [], 1: []}
    for epoch in range(10):
        for _, second, label, _ in parts(pairs(store), epoch):
            if second[0] != STOP:
                begun[label].append(before[second[0]] == STOP)
    shares = [float(np.mean(begun[label])) for label in (0, 1)]
    assert min(shares) > 0.8 and abs(shares[0] - shares[1]) < 0.1


def test_pairs_are_new_in_each_epoch_and_their_own_in_any_batch(store: Store) -> None:
    rows = pairs(store)
    assert parts(rows, 0) == parts(rows, 0) != parts(rows, 1)
    alone = rows.batch(np.array([3]), 1, 5)
    among = rows.batch(np.arange(len(rows)), 1, 5)
    place = among.numbers.tolist().index(3)
    size = alone.ids.shape[1]
    assert among.ids[place, :size].tolist() == alone.ids[0].tolist()
    assert among.follows is not None and alone.follows is not None and among.follows[place] == alone.follows[0]


@pytest.mark.parametrize("units", ["tokens", "spans"])
def test_counts_are_those_of_the_batch(store: Store, units: str) -> None:
    rows = pairs(store, mask_unit=units, mask_prob=0.3)
    for epoch in range(3):
        batch = rows.batch(np.array([4, 1, 7]), 1, epoch)
        assert rows.counts(np.array([4, 1, 7]), 1, epoch) == {"nll": len(batch.targets), "next": 3}
        assert not {0, 1, 2} & set(batch.targets.tolist())


def test_a_lonely_document_follows_itself(tmp_path_factory: pytest.TempPathFactory) -> None:
    alone = write_store(tmp_path_factory.mktemp("alone") / "documents", [[list(range(6, 60))]], V)
    one = np.ones(V, np.uint8)
    masking = MlmMasking(MaskingConfig(), MaskVocabulary(MASK, np.arange(6, V)), WordBoundaries(one, one))
    rows = NspDataset(PackedCorpora(alone, 24), masking, np.arange(V) == STOP)
    assert {label for *_, label, _ in parts(rows, 0)} == {0}
