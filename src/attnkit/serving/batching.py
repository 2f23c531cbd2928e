"""Dynamic batching: the lines of all waiting requests go to the model together.

A model has one thread or several. Each takes what waits whenever it is free, so that an idle model never waits for
more; free threads share what waits. A batch has lines of equal options, in turn from each request: a long request does
not keep a short one waiting. Each line's result is independent of its batch, as compiled loops promise.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from attnkit.decoding.stopping import StopFlags
from attnkit.errors import AttnkitError
from attnkit.serving.limits import Limits, RefusedError, busy


class Worker(NamedTuple):
    """The thread that computes a batch."""

    number: int  #: from 0
    n_threads: int  #: how many of the model's threads this batch may keep busy, so that none is without work


NICER = 5  #: by how much threads of a model give way to that of requests (Linux)
Compute = Callable[[list[Any], Any, Worker, StopFlags], Sequence[Any]]
"""Function from items and options to results, one each. A flag that is set ends the search of its item."""


@dataclass(eq=False)
class _Waiting:
    """The items of one request that no batch has taken."""

    items: deque[tuple[int, Any]]
    options: Hashable
    results: list[Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[list[Any]]
    n_left: int = 0  #: items without a result
    deadline: float = 0.0
    is_dropped: bool = False


@dataclass
class BatchCounts:
    """What a batcher has done so far."""

    n_lines: int = 0
    n_batches: int = 0
    seconds: float = 0.0  #: in the model, of all threads
    sizes: dict[int, int] = field(default_factory=dict)  #: number of lines -> batches


class Batcher:
    """Queue of one model, served by one thread or several."""

    def __init__(self, compute: Compute, limits: Limits, name: str = "model", n_threads: int = 1) -> None:
        self.compute = compute
        self.counts = BatchCounts()
        self._limits = limits
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._n_waiting = 0
        self._n_characters = 0  #: of the items that wait
        self._n_free = 0  #: threads without a batch
        self._running: list[tuple[list[_Waiting], StopFlags]] = []  #: requests of the items of each running batch
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"attnkit-{name}-{number}", daemon=True)
            for number in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def n_characters(self) -> int:
        """Number of characters of the items that no batch has taken."""
        return self._n_characters

    @property
    def n_waiting(self) -> int:
        """Number of items that no batch has taken."""
        return self._n_waiting

    async def submit(self, items: Sequence[Any], options: Hashable = None) -> list[Any]:
        """Return the result of each item; a caller that is cancelled takes its items back.

        Raises:
            RefusedError: the queue is full (503), or the time is over (504).
            AttnkitError: the model refuses an item.
        """
        if not items:
            return []
        loop = asyncio.get_running_loop()
        request = _Waiting(deque(enumerate(items)), options, [None] * len(items), loop, loop.create_future())
        request.n_left, request.deadline = len(items), time.monotonic() + self._limits.seconds
        with self._changed:
            if self._is_closed:
                raise RefusedError(503, "the service is shutting down", {"Retry-After": "5"})
            n_lines, n_characters = self._n_waiting + len(items), self._n_characters + count_characters(items)
            if n_lines > self._limits.max_waiting or n_characters > self._limits.max_waiting_characters:
                raise busy(self._seconds_of_queue())
            self._n_waiting, self._n_characters = n_lines, n_characters
            self._waiting.append(request)
            self._changed.notify(len(items))
        timer = loop.call_later(self._limits.seconds, self._give_up, request)
        try:
            return await request.done
        finally:
            timer.cancel()
            if request.n_left:
                self._drop(request)

    def _seconds_of_queue(self) -> float:
        """Estimate how long the queue takes at the speed so far."""
        return self._n_waiting * self.counts.seconds / max(1, self.counts.n_lines) / len(self._threads)

    def _give_up(self, request: _Waiting) -> None:
        if not request.done.done():
            request.done.set_exception(RefusedError(504, f"not done after {self._limits.seconds:g} s"))

    def _drop(self, request: _Waiting) -> None:
        """Forget what is left of a request, and stop what runs: nobody waits for it."""
        with self._changed:
            request.is_dropped = True
            self._n_waiting -= len(request.items)
            self._n_characters -= count_characters([item for _, item in request.items])
            request.items.clear()
            for requests, stops in self._running:
                for number, other in enumerate(requests):
                    if other is request:
                        stops.set(number)

    def close(self) -> None:
        """Take no more requests; end the threads when the queue is empty."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop what runs and forget what waits, after ``close``."""
        with self._changed:
            left = list(self._waiting)
            for requests, stops in self._running:
                left += requests
                stops.set_all()
            for request in dict.fromkeys(left):
                request.is_dropped = True
                _settle(request, RefusedError(503, "the service is shutting down", {"Retry-After": "5"}))

    def join(self, timeout: float | None = None) -> None:
        """Wait for the threads to end, after ``close``."""
        end = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def _take(self, number: int) -> tuple[list[tuple[_Waiting, int, Any]], Worker]:
        """Wait for items; return a batch with equal options, empty when closed."""
        with self._changed:
            self._n_free += 1
            while True:
                while self._waiting and not self._waiting[0].items:
                    self._waiting.popleft()
                if self._waiting:
                    break
                if self._is_closed:
                    return [], Worker(number, 1)
                self._changed.wait()
            options = self._waiting[0].options
            chosen = [request for request in self._waiting if request.options == options and request.items]
            n_items = sum(len(request.items) for request in chosen)
            worker = Worker(number, max(1, self._n_free // n_items))
            n_most = min(self._limits.batch_lines, -(-n_items // self._n_free))
            batch: list[tuple[_Waiting, int, Any]] = []
            while chosen and len(batch) < n_most:
                for request in chosen:  # in turn
                    batch.append((request, *request.items.popleft()))
                    if len(batch) == n_most:
                        break
                chosen = [request for request in chosen if request.items]
            self._n_free -= 1
            self._n_waiting -= len(batch)
            self._n_characters -= count_characters([item for _, _, item in batch])
            # Other options are served next, however much is left of these.
            served = {id(request) for request, _, _ in batch}
            rest = [request for request in self._waiting if request.items]
            self._waiting = deque(sorted(rest, key=lambda request: id(request) in served))
            return batch, worker

    def _serve(self, number: int) -> None:
        # Requests are read and refused at once, however busy the model is; threads that it starts inherit this.
        with suppress(OSError, AttributeError):  # not on every system
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + NICER)
        while True:
            batch, worker = self._take(number)
            if not batch:
                return
            began = time.monotonic()
            self._compute(batch, worker)
            with self._changed:
                self.counts.seconds += time.monotonic() - began
                self.counts.n_lines += len(batch)
                self.counts.n_batches += 1
                self.counts.sizes[len(batch)] = self.counts.sizes.get(len(batch), 0) + 1

    def _compute(self, batch: list[tuple[_Waiting, int, Any]], worker: Worker) -> None:
        """Compute a batch; if an item is refused, compute request by request."""
        with self._changed:
            batch = [entry for entry in batch if not entry[0].is_dropped]
            if not batch:
                return
            running = [request for request, _, _ in batch], StopFlags(len(batch))
            self._running.append(running)
        try:
            found = self.compute([item for _, _, item in batch], batch[0][0].options, worker, running[1])
        except BaseException as error:  # whatever it is, it must not end the thread
            self._end(running)
            requests = list(dict.fromkeys(running[0]))
            if len(requests) == 1:
                _settle(requests[0], error=error)
                return
            for request in requests:
                self._compute([entry for entry in batch if entry[0] is request], worker)
            return
        self._end(running)
        with self._changed:  # a request may have items in several threads
            for (request, place, _), result in zip(batch, found, strict=True):
                request.results[place] = result
                request.n_left -= 1
            # Of a dropped one, parts of texts are left.
            complete = [one for one in dict.fromkeys(running[0]) if not one.n_left and not one.is_dropped]
        for request in complete:
            _settle(request)

    def _end(self, running: tuple[list[_Waiting], StopFlags]) -> None:
        with self._changed:
            self._running = [other for other in self._running if other is not running]


def count_characters(item: object) -> int:
    """Return the number of characters of a text, or of the texts in a sequence."""
    if isinstance(item, str):
        return len(item)
    return sum(map(count_characters, item)) if isinstance(item, list | tuple) else 0


def _settle(request: _Waiting, error: BaseException | None = None) -> None:
    """Hand results or an error to the caller, in its own thread."""

    def deliver() -> None:
        if request.done.done():
            return
        if error is None:
            request.done.set_result(request.results)
        elif isinstance(error, AttnkitError | RefusedError):
            request.done.set_exception(error)
        else:  # not of the client's making; StopIteration could not be set
            request.done.set_exception(RefusedError(500, f"the model failed: {type(error).__name__}"))

    with suppress(RuntimeError):  # the loop has ended, and with it the client
        request.loop.call_soon_threadsafe(deliver)
