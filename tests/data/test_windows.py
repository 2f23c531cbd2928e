"""Windows over long contexts: every token in some, each best in the one that a loop finds, and rows read back."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.data.config import WindowsConfig, WindowSizes
from attnkit.data.store import write_store
from attnkit.data.windows import NO_ANSWER, InMemoryTokens, StridedContextDataset, cut_windows
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=5), st.integers(1, 10))
def test_every_token_is_in_a_window_and_best_in_one(contexts: list[tuple[int, int]], stride: int) -> None:
    lengths = np.array([n for n, _ in contexts])
    rooms = np.array([stride + more for _, more in contexts])
    found = cut_windows(lengths, rooms, stride)
    for context, (length, room) in enumerate(zip(lengths.tolist(), rooms.tolist(), strict=True)):
        mine = np.flatnonzero(found.contexts == context)
        spans = list(zip(found.begins[mine].tolist(), found.ends[mine].tolist(), strict=True))
        assert all(0 <= begin <= end <= length and end - begin == min(room, length) for begin, end in spans)
        assert all(0 < after[0] - before[0] <= stride for before, after in itertools.pairwise(spans))
        assert len(spans) == max(1, 1 + -(-(length - room) // stride))
        owners: list[list[int]] = [[] for _ in range(length)]
        for number, row in enumerate(mine):
            for token in range(found.best_begins[row], found.best_ends[row]):
                owners[token].append(number)
        for token in range(length):
            # As in Devlin et al.'s code: the smaller of the text before and behind counts.
            shown = [min(token - begin, end - 1 - token) if begin <= token < end else -1 for begin, end in spans]
            assert owners[token] == [shown.index(max(shown))]


def test_windows_worked_out_by_hand() -> None:
    found = cut_windows(np.array([10, 0]), np.array([6, 6]), 3)
    # 0-5, 3-8 and, to be full, 4-9. Token 4 has 1 behind it in the first and 1 before it in the second: the earlier.
    assert list(zip(found.begins, found.ends, strict=True)) == [(0, 6), (3, 9), (4, 10), (0, 0)]
    assert list(zip(found.best_begins, found.best_ends, strict=True)) == [(0, 5), (5, 7), (7, 10), (0, 0)]
    with pytest.raises(ValueError, match="skip tokens"):
        cut_windows(np.array([10]), np.array([2]), 3)


def rows_of(
    seed: int, max_length: int = 24, separators: int = 1
) -> tuple[StridedContextDataset, list[list[int]], list[list[int]], list[tuple[int, int]]]:
    drawn = random.Random(seed)
    contexts = [[drawn.randrange(4, 99) for _ in range(drawn.randint(1, 50))] for _ in range(4)]
    questions = [[drawn.randrange(4, 99) for _ in range(drawn.randint(1, 9))] for _ in range(6)]
    of = [drawn.randrange(4) for _ in questions]
    answers = []
    for context in of:
        first = drawn.randrange(len(contexts[context]))
        last = min(len(contexts[context]) - 1, first + drawn.randrange(4))
        answers.append(NO_ANSWER if drawn.random() < 0.2 else (first, last))
    sizes = WindowSizes(max_length, stride=5, max_question_length=6, max_answer_length=30, separators=separators)
    rows = StridedContextDataset(
        InMemoryTokens(questions), InMemoryTokens(contexts), np.array(of), sizes, np.array(answers)
    )
    return rows, questions, [contexts[context] for context in of], answers


@pytest.mark.parametrize("separators", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_rows_hold_question_and_window(seed: int, separators: int) -> None:
    rows, questions, contexts, answers = rows_of(seed, separators=separators)
    indices = np.random.default_rng(seed).permutation(len(rows))
    batch = rows.batch(indices)
    answered = dict.fromkeys(range(len(questions)), 0)
    for place, row in enumerate(indices.tolist()):
        question = int(rows.questions[row])
        begin, end = int(rows.windows.begins[row]), int(rows.windows.ends[row])
        asked, window = questions[question][:6], contexts[question][begin:end]
        expected = [BOS_ID, *asked, *[EOS_ID] * separators, *window, EOS_ID]
        n_padding = batch.ids.shape[1] - len(expected)
        assert batch.ids[place].tolist() == expected + [PAD_ID] * n_padding
        assert batch.real[place].tolist() == [True] * len(expected) + [False] * n_padding
        assert rows.lengths[0][row] == len(expected) <= 24
        first = len(asked) + 1 + separators
        segments = [0] * first + [1] * (len(window) + 1) + [0] * n_padding
        assert batch.segments[place].tolist() == segments
        assert batch.ids[place][batch.context[place]].tolist() == window
        best = range(int(rows.windows.best_begins[row]), int(rows.windows.best_ends[row]))
        assert batch.best[place].nonzero().flatten().tolist() == [first + token - begin for token in best]
        answer = (
            contexts[question][answers[question][0] : answers[question][1] + 1] if answers[question][0] >= 0 else []
        )
        low, high = int(batch.firsts[place]), int(batch.lasts[place])
        inside = begin <= answers[question][0] and answers[question][1] < end and bool(answer)
        assert (low > 0) == inside == bool(rows.answered[row])
        if inside:
            answered[question] += 1
            assert batch.ids[place, low : high + 1].tolist() == answer
            found = rows.in_context(row, low, high)
            assert contexts[question][found[0] : found[1]] == answer
    # Windows overlap by more than the longest answer: each that there is lies in one at least.
    assert all(bool(n) == (answers[question] != NO_ANSWER) for question, n in answered.items())


def test_rows_of_one_question_each_alone_are_those_of_the_batch() -> None:
    rows = rows_of(7)[0]
    whole = rows.batch(np.arange(len(rows)))
    for row in range(len(rows)):
        alone = rows.batch(np.array([row]))
        length = alone.ids.shape[1]
        for name, part in vars(alone).items():
            other = vars(whole)[name][row]
            assert part[0].tolist() == (other[:length] if part.ndim == 2 else other).tolist()


def test_a_store_serves_as_memory_does(tmp_path: Path) -> None:
    rows, questions, _, answers = rows_of(3)
    drawn = random.Random(3)
    contexts = [[drawn.randrange(4, 99) for _ in range(drawn.randint(1, 50))] for _ in range(4)]
    stored = StridedContextDataset(
        write_store(tmp_path / "q", [questions], 99),
        write_store(tmp_path / "c", [contexts], 99),
        rows._context_of,
        WindowSizes(24, stride=5, max_question_length=6, max_answer_length=30),
        np.array(answers),
    )
    indices = np.arange(len(rows))[::-1].copy()
    assert stored.batch(indices).ids.tolist() == rows.batch(indices).ids.tolist()


def test_the_fingerprint_sees_every_change() -> None:
    def fingerprint(question: int = 5, context: int = 6, stride: int = 4, answer: int = 1) -> str:
        sizes = WindowSizes(12, stride, max_question_length=4, max_answer_length=30)
        given = InMemoryTokens([[question]]), InMemoryTokens([[context] * 20])
        return StridedContextDataset(*given, np.array([0]), sizes, np.array([[0, answer]])).fingerprint

    assert len({fingerprint(), fingerprint(7), fingerprint(5, 7), fingerprint(5, 6, 5), fingerprint(5, 6, 4, 2)}) == 5
    assert fingerprint() == fingerprint()


@pytest.mark.parametrize("n_question", [1, 12, 25, 38])
@pytest.mark.parametrize("n_answer", [1, 15, 30])
def test_by_default_answers_are_whole_in_the_window_they_belong_to(n_question: int, n_answer: int) -> None:
    """Rows of 128 tokens, which small models learn from, and answers anywhere in a context of 400."""
    sizes, context = WindowsConfig().within(128), InMemoryTokens([[9] * 400])
    rows = StridedContextDataset(InMemoryTokens([[8] * n_question]), context, np.array([0]), sizes)
    found = rows.windows
    for first in range(400 - n_answer + 1):
        owner = np.flatnonzero((found.best_begins <= first) & (first < found.best_ends))
        assert len(owner) == 1 and first + n_answer <= found.ends[owner[0]], first


def test_a_stride_that_is_asked_for_is_kept() -> None:
    rows = StridedContextDataset(
        InMemoryTokens([[8] * 9]), InMemoryTokens([[9] * 400]), np.array([0]), WindowsConfig(stride=50).within(128)
    )
    assert rows.windows.begins.tolist()[:5] == [0, 50, 100, 150, 200]


def test_settings_that_leave_tokens_out_are_refused() -> None:
    with pytest.raises(ValueError, match="leaves 61 tokens for the context, given max_question_length=64"):
        WindowsConfig(max_length=128, stride=100, max_question_length=64).within(512)


@pytest.mark.parametrize("longest", [8, 9, 24, 128, 200, 384, 512, 10_000])
def test_windows_fit_the_model_where_nobody_says_otherwise(longest: int) -> None:
    sizes = WindowsConfig().within(longest)
    assert sizes.max_length == min(384, longest)
    assert 0 < sizes.stride <= sizes.max_length - 3 - sizes.max_question_length
    if sizes.max_length == 384:
        assert (sizes.stride, sizes.max_question_length) == (128, 64)
    if sizes.max_length == 128:  # 77 beside the longest question, and three quarters of it
        assert (sizes.max_question_length, sizes.stride) == (48, 57)
