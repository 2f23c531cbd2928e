"""The queue of a model is bounded in time: who cannot be served soon is refused at once, the rest served in time."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from attnkit.decoding.stopping import StopFlags
from attnkit.errors import DataError
from attnkit.serving import batching
from attnkit.serving.batching import Batcher, OnDone, Worker
from attnkit.serving.limits import Limits, RefusedError

A_CHARACTER = 0.0001  # seconds that the model takes


class Simulation:
    """A model whose batches take time on a clock of its own, and requests that arrive meanwhile."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, limits: Limits, arrivals: list[tuple[float, str]], a_batch: float = 0.001
    ) -> None:
        self.clock, self.a_batch = 0.0, a_batch
        monkeypatch.setattr(batching, "time", SimpleNamespace(monotonic=lambda: self.clock))
        self.arrivals = arrivals[::-1]
        self.came: dict[str, float] = {}
        self.begun: dict[str, float] = {}
        self.done: dict[str, float] = {}
        self.refused: dict[str, float] = {}
        self.busy, self.sizes = 0.0, list[int]()
        self.tasks: list[asyncio.Task[None]] = []
        self.speed = 1.0
        self.loop = asyncio.new_event_loop()
        self.batcher = Batcher(self.compute, limits)

    def compute(
        self, items: list[str], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone
    ) -> Sequence[str]:
        self.sizes.append(len(items))
        seconds = (self.a_batch + A_CHARACTER * sum(map(len, items))) / self.speed
        end = self.clock + seconds
        self.begun |= dict.fromkeys(items, self.clock)
        while self.arrivals and self.arrivals[-1][0] <= end:
            self.clock = max(self.clock, self.arrivals[-1][0])
            asked = threading.Event()
            self.loop.call_soon_threadsafe(self.ask, self.arrivals.pop()[1], asked)
            assert asked.wait(20)
        self.clock, self.busy = end, self.busy + seconds
        self.done |= dict.fromkeys(items, end)
        return items

    def ask(self, text: str, asked: threading.Event) -> None:
        self.came[text] = self.clock
        self.tasks.append(self.loop.create_task(self.submit(text)))
        self.loop.call_soon(asked.set)  # after the first step of the task: it waits, or is refused

    async def submit(self, text: str) -> None:
        try:
            assert await self.batcher.submit([text]) == [text]
        except RefusedError as refused:
            assert refused.status == 503 and int(refused.headers["Retry-After"]) >= 1
            self.refused[text] = self.clock

    def run(self) -> None:
        async def all_of_them() -> None:
            while self.arrivals:  # and the model is idle
                at, text = self.arrivals.pop()
                self.clock = max(self.clock, at)
                self.ask(text, threading.Event())
                while left := [task for task in self.tasks if not task.done()]:  # more come meanwhile
                    await asyncio.gather(*left)
            await asyncio.gather(*self.tasks)

        self.loop.run_until_complete(asyncio.wait_for(all_of_them(), 60))
        self.batcher.close()
        self.batcher.join(20)
        self.loop.close()


def arriving(rate: float, seconds: float, n_characters: int = 20) -> list[tuple[float, str]]:
    """Return times and texts, each of another number, of requests at random moments."""
    rng, now, found = random.Random(3), 0.0, []
    while now < seconds:
        found.append((now, f"{len(found):06d}" + "x" * rng.randint(0, 2 * n_characters - 12)))
        now += rng.expovariate(rate)
    return found


CAPACITY = 1 / (20 * A_CHARACTER)  # requests a second, in large batches


@pytest.mark.parametrize(
    ("load", "max_wait", "a_batch", "served"),
    [
        (0.5, 1.0, 0.001, 1.0),
        (2.0, 1.0, 0.001, 0.95),
        (10.0, 1.0, 0.001, 0.95),
        (2.0, 0.1, 0.001, 0.9),
        (2.0, 0.2, 0.03, 0.3),
    ],
)
def test_who_is_served_is_served_within_the_bound(
    monkeypatch: pytest.MonkeyPatch, load: float, max_wait: float, a_batch: float, served: float
) -> None:
    """Of 0.1 s a batch of the largest size takes more; of 0.2 s the last model takes a sixth to begin with a batch.

    There a queue that took few lines would make small batches, for which it would take fewer still.
    """
    limits = Limits(max_wait=max_wait)
    model = Simulation(monkeypatch, limits, arriving(load * CAPACITY, 5.0), a_batch)
    model.run()
    assert len(model.done) + len(model.refused) == len(model.came)
    took = sorted(model.done[text] - model.came[text] for text in model.done)
    assert took[int(0.99 * len(took))] <= limits.max_wait
    assert max(model.begun[text] - model.came[text] for text in model.begun) <= limits.max_wait
    assert all(model.refused[text] == model.came[text] for text in model.refused), "at once"
    assert max(model.sizes) <= limits.batch_lines
    if load > 1:
        assert len(model.done) >= served * CAPACITY * model.clock, "the model is not idle"
        assert took[len(took) // 2] > 0.5 * limits.max_wait, "nor is more refused than need be"
    else:
        assert not model.refused


def test_a_model_that_becomes_slow_refuses_those_that_have_waited_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were accepted at the speed of before."""
    limits = Limits(max_wait=1.0)
    model = Simulation(monkeypatch, limits, arriving(0.9 * CAPACITY, 6.0))
    fast = model.compute

    def compute(items: list[str], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone) -> Sequence[str]:
        model.speed = 1.0 if model.clock < 3 else 0.01
        return fast(items, options, worker, stops, on_done)

    model.batcher.compute = compute
    model.run()
    late = [text for text in model.refused if model.refused[text] > model.came[text]]
    assert late and not set(late) & set(model.begun)
    assert max(model.begun[text] - model.came[text] for text in model.begun) <= limits.max_wait
    assert model.batcher.n_waiting == model.batcher.n_characters == 0


def test_items_computed_alone_wait_for_no_full_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight lines of .12 s take more than the part of a second that is sure; one does not."""
    model = Simulation(monkeypatch, Limits(max_wait=1.0), [(0.0, "x" * 1200)])
    model.run()
    model.batcher._n_free, model.batcher._n_waiting = 0, 16
    assert model.batcher._is_late(1200, False) and not model.batcher._is_late(1200, True)


def test_batches_that_fail_say_nothing_of_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They fail at once; if they counted, requests would be taken for which there is no time."""
    model = Simulation(monkeypatch, Limits(max_wait=1.0), [(0.0, "x" * 1000)])
    model.run()
    speed = model.batcher._pace.of(1000)
    failing = Simulation(monkeypatch, Limits(max_wait=1.0), [(0.0, "x" * 1000), (1.0, "y" * 2000)])
    compute = failing.compute

    def fail(items: list[str], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone) -> Sequence[str]:
        if items[0][0] == "y":
            raise DataError("not this one")
        return compute(items, options, worker, stops, on_done)

    failing.batcher.compute = fail
    with pytest.raises(DataError):
        failing.run()
    assert failing.batcher._pace.of(1000) == speed > 0
    failing.batcher.close()


def test_a_batch_is_bounded_in_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["first", *(f"{n:03d}" + "x" * 37 for n in range(9)), "y" * 300]
    limits = Limits(batch_characters=100, max_wait=1e6)
    model = Simulation(monkeypatch, limits, [(0.0, text) for text in texts])
    model.run()
    assert model.sizes == [1, 2, 2, 2, 2, 1, 1] and len(model.done) == 11


def test_a_request_that_would_not_end_in_time_is_refused_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an idle model it is tried."""
    limits = Limits(max_wait=1e6, seconds=5.0)
    arrivals = [(0.0, "a" * 100), (0.001, "x" * 60_000), (1.0, "y" * 60_000), (2.0, "z" * 100)]
    model = Simulation(monkeypatch, limits, arrivals)
    model.run()
    assert model.refused == {"y" * 60_000: 1.0}
    assert model.done["x" * 60_000] > 5, "nothing was known of the speed before the first batch"
