"""The encoded store: what is written is read, in bounded memory, and damage is named."""

from __future__ import annotations

import errno
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.data.store import Store, store_writer, write_store
from attnkit.errors import RunError, SystemFailure
from attnkit.io import atomic

ROWS = [[5, 6, 7], [], [8], [9, 10]]
rows = st.lists(st.lists(st.integers(0, 65_535), max_size=6), max_size=12)


@settings(max_examples=30, deadline=None)
@given(st.lists(rows, max_size=4), st.sampled_from([65_536, 65_537]))
def test_rows_come_back(tmp_path_factory: pytest.TempPathFactory, batches: list[list[list[int]]], vocab: int) -> None:
    store = write_store(tmp_path_factory.mktemp("store") / "s", batches, vocab)
    expected = [row for batch in batches for row in batch]
    assert len(store) == len(expected)
    assert [store[i].tolist() for i in range(len(store))] == expected
    assert store.lengths.tolist() == [len(row) for row in expected]
    assert store.lengths.dtype == np.int32
    assert store.vocab_size == vocab


@pytest.mark.parametrize(("vocab", "n_bytes"), [(65_536, 2), (65_537, 4)])
def test_ids_take_two_bytes_where_they_fit(tmp_path: Path, vocab: int, n_bytes: int) -> None:
    store = write_store(tmp_path / "s", [[[vocab - 1, 0]]], vocab)
    assert (tmp_path / "s" / "ids.bin").stat().st_size == 2 * n_bytes
    assert store[0].tolist() == [vocab - 1, 0]


def test_lengths_of_more_rows_than_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnkit.data.store._CHUNK", 3)
    lengths = [4, 0, 1, 3, 2, 2, 0, 5]
    store = write_store(tmp_path / "s", [[[1] * n for n in lengths]], 100)
    assert store.lengths.tolist() == lengths


def test_gathers_rows_in_the_order_asked(tmp_path: Path) -> None:
    store = write_store(tmp_path / "s", [ROWS], 100)
    ids, lengths = store.gather(np.array([3, 1, 0, 0]))
    assert ids.tolist() == [9, 10, 5, 6, 7, 5, 6, 7]
    assert lengths.tolist() == [2, 0, 3, 3]
    assert store.gather(np.array([], np.int64))[0].tolist() == []


@pytest.mark.parametrize("i", [4, -1])
def test_rows_outside_are_refused(tmp_path: Path, i: int) -> None:
    with pytest.raises(IndexError):
        write_store(tmp_path / "s", [ROWS], 100)[i]


@pytest.mark.parametrize(
    "other",
    [[[5, 6, 7], [], [8], [9, 11]], [[5, 6], [7], [8], [9, 10]], [[5, 6, 7], [8], [], [9, 10]], [*ROWS, []]],
    ids=["id", "border", "empty row moved", "empty row added"],
)
def test_fingerprint_follows_the_content(tmp_path: Path, other: list[list[int]]) -> None:
    first = write_store(tmp_path / "a", [ROWS], 100)
    same = write_store(tmp_path / "b", [ROWS[:1], [], ROWS[1:]], 100)
    assert first.fingerprint == same.fingerprint == Store.open(tmp_path / "a").fingerprint
    assert write_store(tmp_path / "c", [other], 100).fingerprint != first.fingerprint


@pytest.mark.parametrize("bad", [-1, 100, 2**33])
def test_ids_outside_the_vocabulary_leave_nothing(tmp_path: Path, bad: int) -> None:
    with pytest.raises(ValueError, match="vocabulary of 100"):
        write_store(tmp_path / "s", [[[1, bad]]], 100)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin"])
@pytest.mark.parametrize("change", ["cut", "grown", "gone"])
def test_wrong_sizes_name_the_file(tmp_path: Path, name: str, change: str) -> None:
    write_store(tmp_path / "s", [ROWS], 100)
    path = tmp_path / "s" / name
    data = path.read_bytes()
    path.write_bytes(data[:-1] if change == "cut" else data + b"\0")
    if change == "gone":
        path.unlink()
    with pytest.raises(RunError, match=rf"damaged: {name}") as caught:
        Store.open(tmp_path / "s")
    assert caught.value.where == str(path)


def test_offsets_of_another_store_are_refused(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [ROWS], 100)
    np.array([0, 3, 3, 4, 5], "<i8").tofile(tmp_path / "s" / "offsets.bin")
    with pytest.raises(RunError, match=r"offsets.bin does not match ids.bin"):
        Store.open(tmp_path / "s")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [("lines", 3, "describe"), ("dtype", "<u4", "describe"), ("ids", "x", "describe"), ("format", 2, "format 1")],
)
def test_a_changed_index_is_refused(tmp_path: Path, key: str, value: object, text: str) -> None:
    write_store(tmp_path / "s", [ROWS], 100)
    path = tmp_path / "s" / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(RunError, match=text):
        Store.open(tmp_path / "s")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"format": 1}', None])
def test_an_unreadable_index_is_refused(tmp_path: Path, content: bytes | None) -> None:
    write_store(tmp_path / "s", [ROWS], 100)
    path = tmp_path / "s" / "index.json"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(RunError, match=r"damaged: index.json"):
        Store.open(tmp_path / "s")


def test_writing_takes_the_memory_of_one_batch(tmp_path: Path) -> None:
    batch = [[1] * 20] * 500
    peaks = []
    for n in (10, 100):
        tracemalloc.start()
        write_store(tmp_path / str(n), (batch for _ in range(n)), 100)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 40_000  # the 90 more batches are 1.8 MB on disk


def test_rows_come_in_parts(tmp_path: Path) -> None:
    with atomic.atomic_dir(tmp_path / "s") as folder, store_writer(folder, 100) as writer:
        writer.append(np.array([5, 6]), np.array([], np.int64))
        writer.append(np.array([7, 8, 9], np.int32), np.array([3, 3, 4]))
        writer.append(np.array([10]), np.array([6]))
        writer.add([[], [1]])
    store = Store.open(tmp_path / "s")
    assert [store[i].tolist() for i in range(len(store))] == [[5, 6, 7], [], [8], [9, 10], [], [1]]
    assert store.ids.tolist() == [5, 6, 7, 8, 9, 10, 1]
    assert store.offsets.tolist() == [0, 3, 3, 4, 6, 6, 7]
    same = write_store(tmp_path / "t", [[[5, 6, 7], [], [8], [9, 10], [], [1]]], 100)
    assert same.fingerprint == store.fingerprint


@pytest.mark.parametrize(
    ("ids", "ends", "text"),
    [
        ([100], [1], "vocabulary of 100"),
        ([-1], [1], "vocabulary"),
        ([1], [2], "invalid row ends"),
        ([1, 2], [2, 1], "invalid row ends"),
    ],
)
def test_parts_of_rows_that_cannot_be_are_refused(tmp_path: Path, ids: list[int], ends: list[int], text: str) -> None:
    with (
        pytest.raises(ValueError, match=text),
        atomic.atomic_dir(tmp_path / "s") as folder,
        store_writer(folder, 100) as writer,
    ):
        writer.append(np.array(ids), np.array(ends))
    with (
        pytest.raises(ValueError, match="invalid row ends"),
        atomic.atomic_dir(tmp_path / "t") as folder,
        store_writer(folder, 9) as writer,
    ):
        writer.append(np.array([1, 2]), np.array([2]))
        writer.append(np.array([3]), np.array([1]))


def test_a_row_without_an_end_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="the last row is incomplete"),
        atomic.atomic_dir(tmp_path / "s") as folder,
        store_writer(folder, 9) as writer,
    ):
        writer.append(np.array([1, 2]), np.array([1]))


def test_released_pages_leave_memory_and_come_back(tmp_path: Path) -> None:
    status = Path("/proc/self/smaps_rollup")
    if not status.exists():
        pytest.skip("this system does not tell what is resident")

    def resident() -> int:
        return sum(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("Rss:"))

    store = write_store(tmp_path / "s", [[list(range(1000))] * 500] * 20, 1 << 17)  # 40 MB
    total = int(store.ids.sum())
    before = resident()
    store.release(0, len(store.ids))
    assert before - resident() > 30_000
    assert int(store.ids.sum()) == total


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EACCES])
def test_what_the_system_refuses_is_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_store(tmp_path / "s", [[[1, 2]]], 10)
    real = os.open

    def refuse(path: str | Path, *arguments: int, **options: int) -> int:
        if str(path).endswith("ids.bin"):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SystemFailure, match=r"cannot read .*ids\.bin"):
        Store.open(tmp_path / "s")
