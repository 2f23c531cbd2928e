"""Compiled searches that would run for long end when they are stopped; sentences that go on keep their results."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from test_compiled_generator import SMALL, compile_gpt, make_gpt
from test_compiled_search import BASE, compile_model, make_model

from attnkit.compiled.workers import Watch
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.hypothesis import NOTHING
from attnkit.decoding.stopping import StopFlags
from attnkit.engine.search_backend import LineSegment, SearchJob, WholeSearch, search_parts
from attnkit.kernels.jit import is_available
from attnkit.models.config import TransformerConfig

pytestmark = pytest.mark.skipif(not is_available(), reason="numba is not installed")
LONG = 8000  #: tokens: minutes of work for one sentence, and no test waits for its end


def engine(n_threads: int) -> Any:
    config = TransformerConfig(**BASE, positions="sinusoidal", max_length=LONG)
    return compile_model(make_model(config, 64, 5), config, 64, n_threads=n_threads)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_search_without_end_is_stopped_and_others_keep_their_results(beam_size: int, n_threads: int) -> None:
    # Without a word that ends them, translations are as long as their limits, which differ here.
    settings = SearchConfig(beam_size=beam_size, num_hypotheses=min(2, beam_size), min_length=LONG - 1)
    sources = [[3 + (i * j) % 60 for j in range(1, 5 + i % 7)] for i in range(60)]
    searcher = engine(n_threads)
    expected = searcher.search(sources, [20] * 60, settings)
    assert all(len(own[0].ids) == 20 for own in expected)
    endless = range(0, 60, 3)
    most = [LONG if i in endless else 20 for i in range(60)]
    flags = StopFlags(60)
    timer = threading.Timer(0.4, lambda: [flags.set(i) for i in endless])
    timer.start()
    found = searcher.search(sources, most, settings, flags.check(range(60)))
    assert [found[i] for i in endless] == [[NOTHING]] * len(endless)
    others = [i for i in range(60) if i not in endless]
    assert [found[i] for i in others] == [expected[i] for i in others]
    # The memory that it has used is as good as new.
    assert searcher.search(sources, [20] * 60, settings) == expected


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_sentences_are_reported_as_they_are_done(beam_size: int, n_threads: int) -> None:
    settings = SearchConfig(beam_size=beam_size, min_length=LONG - 1)
    sources = [[3 + (i * j) % 60 for j in range(1, 5 + i % 7)] for i in range(60)]
    endless = (0, 30)  # fewer than a thread works on
    flags, counts = StopFlags(60), list[int]()

    def note(n_done: int) -> None:
        counts.append(n_done)
        if n_done == 58:  # all that end by themselves: nothing else ends this search
            flags.set_all()

    most = [LONG if i in endless else 20 for i in range(60)]
    engine(n_threads).search(sources, most, settings, flags.check(range(60)), note)
    assert counts[0] == 0 and 58 in counts and counts == sorted(counts)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_results_are_handed_on_while_others_are_searched(
    beam_size: int, n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the main thread, too, which has a watch for it; each once, as it is at the end."""
    monkeypatch.setattr(Watch, "SECONDS", 0.005)
    settings = SearchConfig(beam_size=beam_size, num_hypotheses=min(2, beam_size), min_length=LONG - 1)
    sources = [[3 + (i * j) % 60 for j in range(1, 5 + i % 7)] for i in range(60)]
    endless = (0, 30)  # fewer than a thread works on
    most, searcher = [LONG if i in endless else 20 for i in range(60)], engine(n_threads)

    def search() -> tuple[Any, dict[int, Any]]:
        flags, told = StopFlags(60), dict[int, Any]()

        def report(number: int, hypotheses: Any) -> None:
            assert number not in told
            told[number] = hypotheses
            if len(told) == 58:  # all that end by themselves: nothing else ends this search
                flags.set_all()

        return searcher.search(sources, most, settings, flags.check(range(60)), report=report), told

    with ThreadPoolExecutor(1) as thread:
        for found, told in (search(), thread.submit(search).result()):
            assert sorted(told) == [i for i in range(60) if i not in endless]
            # Their flags are set while they are done: they have no words at the end.
            assert [found[i] for i in endless] == [[NOTHING]] * 2
            expected = searcher.search(sources, [20] * 60, settings)
            assert all(str(told[i]) == str(expected[i]) for i in told), "NaN scores are equal, too"


@pytest.mark.parametrize("beside", [False, True])
def test_what_a_receiver_raises_is_raised_at_the_end(beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the main thread and beside it; the search can still be stopped, and the next one works."""
    monkeypatch.setattr(Watch, "SECONDS", 0.005)
    settings, searcher = SearchConfig(beam_size=2, min_length=LONG - 1), engine(1)
    sources, most = [[5, 6, 7]] * 6, [LONG, *[20] * 5]

    def search() -> Any:
        flags, n_told = StopFlags(6), list[int]()

        def report(number: int, hypotheses: Any) -> None:
            n_told.append(number)
            flags.set(0)
            searcher.search(sources, [20] * 6, settings)

        with pytest.raises(ValueError, match="cannot search where they come from"):
            searcher.search(sources, most, settings, flags.check(range(6)), report=report)
        assert len(n_told) == 1
        return searcher.search(sources, [20] * 6, settings)

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(search).result() if beside else search()
    assert found == searcher.search(sources, [20] * 6, settings)


def test_segments_of_earlier_windows_count() -> None:
    searcher, settings = engine(1), SearchConfig(beam_size=1, max_length=20)
    parts = [LineSegment(i, 0, [3 + i, 5 + i], []) for i in range(20)]
    counts: list[int] = []
    batches = [range(first, first + 5) for first in range(0, 20, 5)]
    found = search_parts(WholeSearch(searcher, 10), parts, batches, SearchJob(settings), counts.append)
    assert counts == sorted(counts) and counts[-1] == 20 and all(found)
    # Each window starts with what came before it, and its loops have nothing done yet.
    assert counts.count(0) >= 3 and counts.count(10) >= 3


def test_sentences_that_wait_are_not_begun_when_all_are_stopped() -> None:
    searcher = engine(1)
    settings = SearchConfig(beam_size=4, min_length=LONG - 1)
    found = searcher.search([[5] * 900] * 2000, [LONG] * 2000, settings, lambda: np.ones(2000, bool))
    assert found == [[NOTHING]] * 2000


def test_a_text_without_end_is_stopped() -> None:
    config = SMALL.model_copy(update={"max_length": LONG})
    compiled = compile_gpt(make_gpt(config, 3), config, LONG)
    settings = SearchConfig(beam_size=1, min_length=LONG - 10)
    flags = StopFlags(3)
    timer = threading.Timer(0.3, flags.set_all)
    timer.start()
    assert compiled.search([[1, 5, 6]] * 3, [LONG - 5] * 3, settings, flags.check(range(3))) == [NOTHING] * 3
