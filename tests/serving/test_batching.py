"""The queue of a model: what waits goes together, in turn, within bounds, and nobody gets another's answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from attnkit.decoding.stopping import StopFlags
from attnkit.errors import DataError
from attnkit.serving.batching import Batcher, OnDone, Worker
from attnkit.serving.limits import Limits, RefusedError


class Recorder:
    """Computes ``item * 10`` and records the batches; holds them while ``gate`` is closed."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[int], Any]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    def __call__(
        self, items: list[int], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone
    ) -> Sequence[int]:
        self.batches.append((list(items), options))
        self.begun.set()
        self.gate.wait(20)
        if any(item < 0 for item in items):
            raise DataError("a negative item")
        if any(item == 99 for item in items):
            raise ZeroDivisionError
        return [item * 10 for item in items]


async def behind_a_closed_gate(recorder: Recorder, batcher: Batcher) -> asyncio.Task[Any]:
    """Keep the model busy with item 0, so that what comes next waits."""
    recorder.gate.clear()
    recorder.begun.clear()
    first = asyncio.create_task(batcher.submit([0]))
    await asyncio.get_running_loop().run_in_executor(None, recorder.begun.wait)
    return first


def test_what_waits_goes_together_and_answers_find_their_way() -> None:
    recorder = Recorder()
    batcher = Batcher(recorder, Limits(batch_lines=100))

    async def run() -> None:
        first = await behind_a_closed_gate(recorder, batcher)
        tasks = [asyncio.create_task(batcher.submit([n, n + 100])) for n in range(1, 20)]
        await asyncio.sleep(0)
        assert batcher.n_waiting == 38
        recorder.gate.set()
        assert await asyncio.gather(first, *tasks) == [[0], *([10 * n, 10 * n + 1000] for n in range(1, 20))]

    asyncio.run(run())
    batcher.close()
    batcher.join(20)
    assert len(recorder.batches) == 2 and batcher.n_waiting == 0
    assert (batcher.counts.n_lines, batcher.counts.n_batches) == (39, 2)


def test_items_that_are_alone_are_answered_one_by_one() -> None:
    """Each is the whole of a request: the first does not wait for the others."""
    recorder = Recorder()
    batcher = Batcher(recorder, Limits(batch_lines=8), is_alone=lambda options: options == "whole")

    async def run() -> None:
        first = await behind_a_closed_gate(recorder, batcher)
        tasks = [asyncio.create_task(batcher.submit([n], "whole")) for n in (1, 2, 3)]
        together = [asyncio.create_task(batcher.submit([n])) for n in (4, 5)]
        await asyncio.sleep(0)
        recorder.gate.set()
        assert await asyncio.gather(first, *tasks, *together) == [[0], [10], [20], [30], [40], [50]]

    asyncio.run(run())
    batcher.close()
    batcher.join(20)
    batches = [items for items, _ in recorder.batches]
    assert batches.count([4, 5]) == 1 and [items for items in batches if items[0] in (1, 2, 3)] == [[1], [2], [3]]


def test_a_long_request_does_not_keep_a_short_one_waiting() -> None:
    recorder = Recorder()
    batcher = Batcher(recorder, Limits(batch_lines=8))

    async def run() -> None:
        first = await behind_a_closed_gate(recorder, batcher)
        long = asyncio.create_task(batcher.submit(list(range(100, 140))))
        await asyncio.sleep(0)
        short = asyncio.create_task(batcher.submit([1, 2]))
        await asyncio.sleep(0)
        recorder.gate.set()
        await asyncio.gather(first, long, short)

    asyncio.run(run())
    assert recorder.batches[1][0] == [100, 1, 101, 2, 102, 103, 104, 105]


def test_a_batch_has_one_set_of_options_and_others_are_next() -> None:
    recorder = Recorder()
    batcher = Batcher(recorder, Limits(batch_lines=2))

    async def run() -> None:
        first = await behind_a_closed_gate(recorder, batcher)
        tasks = []
        for items, options in (([1, 2, 3, 4], "a"), ([5], "b"), ([6], "a")):
            tasks.append(asyncio.create_task(batcher.submit(items, options)))
            await asyncio.sleep(0)
        recorder.gate.set()
        await asyncio.gather(first, *tasks)

    asyncio.run(run())
    assert recorder.batches[1:] == [([1, 6], "a"), ([5], "b"), ([2, 3], "a"), ([4], "a")]


def test_one_bad_request_does_not_fail_the_others() -> None:
    recorder = Recorder()
    batcher = Batcher(recorder, Limits())

    async def run() -> list[Any]:
        first = await behind_a_closed_gate(recorder, batcher)
        tasks = [asyncio.create_task(batcher.submit([n])) for n in (1, -1, 2, 99)]
        await asyncio.sleep(0)
        recorder.gate.set()
        return await asyncio.gather(first, *tasks, return_exceptions=True)

    found = asyncio.run(run())
    assert found[:2] == [[0], [10]] and found[3] == [20]
    assert isinstance(found[2], DataError)
    assert isinstance(found[4], RefusedError) and found[4].status == 500 and "ZeroDivisionError" in found[4].message


def test_a_full_queue_refuses_at_once_and_says_for_how_long() -> None:
    recorder = Recorder()
    batcher = Batcher(recorder, Limits(max_waiting=3))

    async def run() -> None:
        first = await behind_a_closed_gate(recorder, batcher)
        waiting = asyncio.create_task(batcher.submit([1, 2]))
        await asyncio.sleep(0)
        with pytest.raises(RefusedError) as refused:
            await batcher.submit([3, 4])
        assert refused.value.status == 503 and int(refused.value.headers["Retry-After"]) >= 1
        with pytest.raises(RefusedError, match="4 lines are more than the 3 that may wait") as refused:
            await batcher.submit([3, 4, 5, 6])
        assert refused.value.status == 413 and not refused.value.headers
        last = asyncio.create_task(batcher.submit([5]))
        await asyncio.sleep(0)
        recorder.gate.set()
        assert await asyncio.gather(first, waiting, last) == [[0], [10, 20], [50]]

    asyncio.run(run())


def test_a_queue_is_full_of_few_long_texts_as_well() -> None:
    begun, gate = threading.Event(), threading.Event()

    def compute(items: list[Any], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone) -> Sequence[Any]:
        begun.set()
        gate.wait(20)
        return items

    batcher = Batcher(compute, Limits(max_waiting_characters=10))

    async def run() -> None:
        first = asyncio.create_task(batcher.submit(["x" * 10]))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        assert batcher.n_characters == 0, "what runs no longer waits"
        items = ["abc", ("de", "f"), ["g", "h"]]
        waiting = asyncio.create_task(batcher.submit(items))
        await asyncio.sleep(0)
        assert batcher.n_characters == 8
        with pytest.raises(RefusedError, match="too much text is waiting"):
            await batcher.submit(["xyz"])
        gone = asyncio.create_task(batcher.submit(["xy"]))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0.02)
        assert batcher.n_characters == 8, "the room of who has left is free"
        gate.set()
        assert await asyncio.gather(first, waiting) == [["x" * 10], items]

    asyncio.run(run())
    assert batcher.n_characters == 0


def test_who_goes_away_or_waits_too_long_costs_nothing() -> None:
    recorder = Recorder()
    batcher = Batcher(recorder, Limits(seconds=0.3, max_waiting=4))

    async def run() -> None:
        first = asyncio.ensure_future(behind_a_closed_gate(recorder, batcher))
        task = await first
        gone = asyncio.create_task(batcher.submit([1, 2]))
        slow = asyncio.create_task(batcher.submit([3, 4]))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0.02)
        assert batcher.n_waiting == 2, "the room of the one is free for others"
        with pytest.raises(RefusedError) as refused:
            await slow
        assert refused.value.status == 504 and batcher.n_waiting == 0
        with pytest.raises(RefusedError):
            await task
        recorder.gate.set()
        assert await batcher.submit([5]) == [50]

    asyncio.run(run())
    assert [batch for batch, _ in recorder.batches] == [[0], [5]]


def test_a_closed_queue_finishes_and_takes_no_more() -> None:
    recorder = Recorder()
    batcher = Batcher(recorder, Limits())

    async def run() -> None:
        first = await behind_a_closed_gate(recorder, batcher)
        waiting = asyncio.create_task(batcher.submit([1]))
        await asyncio.sleep(0)
        batcher.close()
        with pytest.raises(RefusedError) as refused:
            await batcher.submit([2])
        assert refused.value.status == 503
        recorder.gate.set()
        assert await asyncio.gather(first, waiting) == [[0], [10]]

    asyncio.run(run())
    batcher.join(20)
    assert not any(thread.is_alive() for thread in batcher._threads)
    assert asyncio.run(batcher.submit([])) == []


def test_free_threads_share_what_waits() -> None:
    """Two batches at a time; a request with items in both waits for both."""
    together = threading.Barrier(2)
    taken: list[tuple[list[int], Worker]] = []

    def compute(items: list[int], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone) -> Sequence[int]:
        taken.append((items, worker))
        together.wait(20)  # breaks if the other thread has nothing to do
        return [item * 10 for item in items]

    batcher = Batcher(compute, Limits(batch_lines=100), n_threads=2)
    assert asyncio.run(batcher.submit(list(range(41)))) == [10 * n for n in range(41)]
    assert sorted(len(items) for items, _ in taken) == [20, 21]
    assert sorted(worker for _, worker in taken) == [(0, 1), (1, 1)]
    batcher.close()
    batcher.join(20)
    assert not any(thread.is_alive() for thread in batcher._threads)
    assert (batcher.counts.n_lines, batcher.counts.n_batches) == (41, 2)


def test_of_few_lines_a_busy_thread_gets_its_part() -> None:
    """Four lines wait and one of two threads is free: two are enough for it, as it would be done last with all."""
    taken: list[list[int]] = []
    gate, busy = threading.Event(), threading.Event()

    def compute(items: list[int], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone) -> Sequence[int]:
        taken.append(items)
        if items == [0]:
            busy.set()
            gate.wait(20)
        elif len(taken) == 3:
            gate.set()
        return items

    batcher = Batcher(compute, Limits(), n_threads=2)

    async def run() -> None:
        first = asyncio.create_task(batcher.submit([0]))
        await asyncio.get_running_loop().run_in_executor(None, busy.wait)
        await asyncio.gather(first, batcher.submit([1, 2, 3, 4]))

    asyncio.run(run())
    batcher.close()
    batcher.join(20)
    assert taken[:2] == [[0], [1, 2]] and sorted(n for items in taken for n in items) == [0, 1, 2, 3, 4]


def test_a_batch_may_use_threads_that_would_be_free() -> None:
    seen: list[Worker] = []

    def compute(items: list[int], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone) -> Sequence[int]:
        seen.append(worker)
        return items

    batcher = Batcher(compute, Limits(), n_threads=4)
    while batcher._n_free < 4:
        threading.Event().wait(0.01)
    assert asyncio.run(batcher.submit([7])) == [7]
    assert [worker.n_threads for worker in seen] == [4]


class Endless:
    """Computes ``item * 10``; items from 100 on take until their flag is set."""

    def __init__(self) -> None:
        self.begun = threading.Event()

    def __call__(
        self, items: list[int], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone
    ) -> Sequence[int]:
        flags = stops.check(range(len(items)))
        self.begun.set()
        end = time.monotonic() + 20
        while any(item >= 100 and not flag for item, flag in zip(items, flags(), strict=True)):
            assert time.monotonic() < end, "nobody stops it"
            time.sleep(0.01)
        return [item * 10 for item in items]


@pytest.mark.parametrize("why", ["gone", "late"])
def test_items_that_run_are_stopped_when_nobody_waits_for_them(why: str) -> None:
    endless = Endless()
    batcher = Batcher(endless, Limits(seconds=0.5 if why == "late" else 30))

    async def run() -> None:
        slow = asyncio.create_task(batcher.submit([1, 100, 2]))
        await asyncio.get_running_loop().run_in_executor(None, endless.begun.wait)
        if why == "gone":
            slow.cancel()
        (found,) = await asyncio.gather(slow, return_exceptions=True)
        assert isinstance(found, asyncio.CancelledError if why == "gone" else RefusedError)
        assert await batcher.submit([5]) == [50]

    asyncio.run(run())
    assert batcher._running == []


def test_the_others_of_a_batch_get_their_results() -> None:
    """A request of one batch is stopped; the batch ends, and with it the requests beside."""
    recorder, endless = Recorder(), Endless()
    compute = [recorder, endless]
    batcher = Batcher(lambda *given: compute[0](*given), Limits())

    async def run() -> list[Any]:
        first = await behind_a_closed_gate(recorder, batcher)
        compute[0] = endless
        tasks = [asyncio.create_task(batcher.submit(items)) for items in ([1, 2], [100, 3], [4])]
        await asyncio.sleep(0)
        recorder.gate.set()
        await asyncio.get_running_loop().run_in_executor(None, endless.begun.wait)
        tasks[1].cancel()
        return await asyncio.gather(first, *tasks, return_exceptions=True)

    found = asyncio.run(run())
    assert [found[0], found[1], found[3]] == [[0], [10, 20], [40]]
    assert isinstance(found[2], asyncio.CancelledError)


def test_a_queue_that_is_stopped_answers_all_and_ends() -> None:
    endless = Endless()
    batcher = Batcher(endless, Limits())

    async def run() -> None:
        slow = asyncio.create_task(batcher.submit([100]))
        await asyncio.get_running_loop().run_in_executor(None, endless.begun.wait)
        waiting = asyncio.create_task(batcher.submit([1]))
        await asyncio.sleep(0)
        batcher.close()
        batcher.stop()
        for found in await asyncio.gather(slow, waiting, return_exceptions=True):
            assert isinstance(found, RefusedError) and found.status == 503

    asyncio.run(run())
    batcher.join(20)
    assert not any(thread.is_alive() for thread in batcher._threads)


@pytest.mark.parametrize("fails", [False, True])
def test_a_result_is_handed_on_before_its_batch_ends(fails: bool) -> None:
    """And once: neither again at the end, nor computed again with the rest of a batch that fails."""
    recorder, ended, batches = Recorder(), threading.Event(), list[list[int]]()

    def compute(items: list[int], options: Any, worker: Worker, stops: StopFlags, on_done: OnDone) -> Sequence[int]:
        if items == [0]:
            return recorder(items, options, worker, stops, on_done)
        batches.append(items)
        for number, result in ((0, 20), (0, 21), (1, 31)) if len(items) == 4 else ():
            on_done(number, result)
        assert ended.wait(20)
        if fails:
            raise ZeroDivisionError
        return [item * 10 for item in items]

    batcher = Batcher(compute, Limits())

    async def run() -> Any:
        first = await behind_a_closed_gate(recorder, batcher)
        early, late = (asyncio.create_task(batcher.submit(items)) for items in ([2], [3, 4, 5]))
        await asyncio.sleep(0)
        recorder.gate.set()
        assert await first == [0] and await early == [20]
        assert not late.done() and not ended.is_set()
        ended.set()
        return (await asyncio.gather(late, return_exceptions=True))[0]

    found = asyncio.run(run())
    assert batches == [[2, 3, 4, 5], *([[4, 5]] if fails else [])]
    assert isinstance(found, RefusedError) and found.status == 500 if fails else found == [31, 40, 50]
