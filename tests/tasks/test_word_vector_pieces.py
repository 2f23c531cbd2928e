"""Pieces, legs and joins of word vectors: every word belongs to one piece, and every piece is done once."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit.data.store import write_store
from attnkit.data.words import Encoded
from attnkit.engine.resolve import resolve
from attnkit.kernels.word2vec_backend import PieceStats
from attnkit.tasks.word2vec import loop as module
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.loop import WorkerPool, average_replicas
from attnkit.tasks.word2vec.matrices import Matrices, MatrixShape, copied, empty
from attnkit.tasks.word2vec.workload import (
    MAX_PIECE,
    MIN_PIECE,
    ROUND,
    build_workload,
    chunk_boundaries,
    n_copies,
    n_threads,
    piece_size,
)
from attnkit.text.word_vocabulary import WordVocabulary


def test_threads_never_share_the_top_of_a_tree() -> None:
    text: Any = {"data": {"files": ("text.txt",)}, "threads": 4}
    shared = Word2VecConfig(**text)
    assert (n_threads(shared), n_copies(shared)) == (4, 1)
    tree = Word2VecConfig(**text, loss="hierarchical")
    assert (n_threads(tree), n_copies(tree)) == (1, 1)
    copies = Word2VecConfig(**text, loss="hierarchical", deterministic=True)
    assert (n_threads(copies), n_copies(copies)) == (4, 4)


@pytest.mark.parametrize("most", [1, 3, 7, 50, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_pieces_are_whole_lines_where_lines_are_short(most: int, seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 20, 40)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    found = chunk_boundaries(starts, most)
    assert found[0] == 0 and found[-1] == starts[-1]
    sizes = np.diff(found)
    assert sizes.min() > 0 and sizes.max() <= most
    for place in found:
        line = int(np.searchsorted(starts, place, side="right")) - 1
        assert place in starts or lengths[line] > most  # only what is longer than a piece is cut


def test_pieces_of_a_text_by_hand() -> None:
    assert chunk_boundaries(np.array([0, 3, 6, 16]), 4).tolist() == [0, 3, 6, 10, 14, 16]
    assert chunk_boundaries(np.array([0, 2, 4]), 4).tolist() == [0, 4]
    assert chunk_boundaries(np.array([0]), 4).tolist() == [0]


def test_only_copies_make_pieces_depend_on_threads() -> None:
    assert piece_size(10**9, 1) == MAX_PIECE
    assert piece_size(10**9, 8) * 8 <= ROUND
    assert piece_size(100, 1) == piece_size(100, 2) == MIN_PIECE
    assert piece_size(10**9, 1, slow=True) == MIN_PIECE


def test_the_rate_falls_in_a_straight_line(tmp_path: Path) -> None:
    words = WordVocabulary([f"w{number}" for number in range(8)], np.full(8, MIN_PIECE // 2))
    store = write_store(tmp_path / "words", [[list(range(8))] * (MIN_PIECE // 2)], len(words))
    chosen = {"alpha": 0.5, "min_alpha": 0.1, "epochs": 2}
    config = resolve({"task": "word2vec", "data.files": ["-"], "threads": 1, **chosen}).config
    work = build_workload(config, Encoded(words, store, len(store)), tmp_path, lambda text: None)
    assert work.n_pieces == 4
    assert [work.rate(step) for step in (0, 2, 8)] == pytest.approx([0.5, 0.4, 0.1])


class Marks:
    """Pieces that count themselves, in places where no two threads write."""

    def __init__(self, n_pieces: int, seconds: float = 0.0, concurrent: bool = True) -> None:
        self.shapes = {"inputs": MatrixShape(n_pieces, 16)}
        self.n_pieces, self.where, self.concurrent = n_pieces, "here", concurrent
        self.seconds = seconds
        self.threads: Counter[int] = Counter()

    def begin(self, matrices: Matrices) -> None: ...

    def settle(self) -> None: ...

    def rate(self, step: int) -> float:
        return 0.0

    def piece(self, matrices: Matrices, epoch: int, number: int) -> PieceStats:
        time.sleep(self.seconds)
        self.threads[threading.get_ident()] += 1
        matrices["inputs"][number] += 1 + epoch
        return PieceStats(float(number), 1, 1)


def work_off(work: Marks, matrices: Matrices, threads: int, copies: int, stop: Any = lambda: False) -> list[int]:
    """Do an epoch in legs; return how many pieces each had."""
    sizes: list[int] = []
    while sum(sizes) < work.n_pieces:
        with closing(WorkerPool(work, matrices, threads, copies, stop)) as legs:
            first = sum(sizes)
            found = legs.run_slice(0, first)
            assert [tally.loss for tally in found] == list(range(first, first + len(found)))
            sizes.append(len(found))
    return sizes


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("seconds", [0.0, 0.004])
def test_threads_do_every_piece_once(threads: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", seconds)
    work = Marks(60, seconds=0.0005)
    matrices = empty(work.shapes)
    sizes = work_off(work, matrices, threads, 1)
    assert (matrices["inputs"] == 1).all()
    assert len(sizes) > 1
    assert seconds == 0 or (len(work.threads) > 1) == (threads > 1)


def test_a_stop_ends_a_leg_after_the_pieces_that_are_begun() -> None:
    work = Marks(100, seconds=0.002)
    matrices = empty(work.shapes)
    asked = iter([False] * 10 + [True] * 1000)
    with closing(WorkerPool(work, matrices, 2, 1, lambda: next(asked))) as legs:
        done = len(legs.run_slice(0, 0))
    assert 10 <= done <= 14
    assert matrices["inputs"][:, 0].tolist() == [1] * done + [0] * (100 - done)


def test_a_stop_that_is_asked_for_once_leaves_no_piece_out() -> None:
    work = Marks(60, seconds=0.002)
    matrices = empty(work.shapes)
    answers, lock = itertools.cycle([False] * 6 + [True]), threading.Lock()

    def stop() -> bool:
        with lock:
            return next(answers)

    assert len(work_off(work, matrices, 4, 1, stop)) > 4
    assert (matrices["inputs"] == 1).all()


def test_what_shares_nothing_is_done_by_one_thread() -> None:
    work = Marks(20, concurrent=False)
    matrices = empty(work.shapes)
    work_off(work, matrices, 4, 1)
    assert set(work.threads) == {threading.get_ident()}


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_copies_are_joined_at_the_same_pieces_whatever_the_clock_says(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", seconds)
    work = Marks(11)
    matrices = empty(work.shapes)
    sizes = work_off(work, matrices, 3, 3)
    assert sizes == ([3, 3, 3, 2] if not seconds else [11])
    expected = [1 / np.sqrt(3)] * 9 + [1 / np.sqrt(2)] * 2
    assert matrices["inputs"][:, 0].tolist() == pytest.approx(expected)


def test_a_join_by_hand() -> None:
    base, copies = np.zeros((3, 16), np.float32), [np.zeros((3, 16), np.float32) for _ in range(4)]
    base[1], copies[0][1], copies[1][1], copies[2][1], copies[3][1] = 2, 3, 5, 2, 2
    idle = np.full((3, 16), 9, np.float32)
    average_replicas(base, copies, [idle], 0, 1)
    assert base[:, 0].tolist() == [0, 2 + (1 + 3) / 2, 0]
    assert all((other == base).all() for other in (*copies, idle))


def test_an_error_in_a_thread_is_raised_and_ends_the_others() -> None:
    class Failing(Marks):
        def piece(self, matrices: Matrices, epoch: int, number: int) -> PieceStats:
            if number == 5:
                raise ArithmeticError("piece 5")
            return super().piece(matrices, epoch, number)

    work = Failing(1000, seconds=0.001)
    with pytest.raises(ArithmeticError), closing(WorkerPool(work, empty(work.shapes), 2, 1)) as legs:
        legs.run_slice(0, 0)
    assert sum(work.threads.values()) < 50


def test_rows_begin_where_the_loops_want_them() -> None:
    matrices = empty({"inputs": MatrixShape(5, 20)})
    assert matrices["inputs"].shape == (5, 32)
    for found in (matrices, copied(matrices)):
        assert found["inputs"].ctypes.data % 64 == 0 and found["inputs"].flags.c_contiguous
