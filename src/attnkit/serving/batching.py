"""Dynamic batching: the lines of all waiting requests go to the model together.

A model has one thread or several. Each takes what waits whenever it is free, so that an idle model never waits for
more; free threads share what waits. A batch has lines of equal options, in turn from each request: a long request does
not keep a short one waiting. A result is handed on when it is there, before those of the others in its batch, which it
does not depend on, as compiled loops promise.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from attnkit.decoding.stopping import StopFlags
from attnkit.errors import AttnkitError
from attnkit.runtime.scheduling import schedule_computing
from attnkit.serving.limits import Limits, RefusedError, busy


class Worker(NamedTuple):
    """The thread that computes a batch."""

    number: int  #: from 0
    n_threads: int  #: how many of the model's threads this batch may keep busy, so that none is without work


SURE = 0.7  #: part of the longest wait up to which requests are taken: the speed is estimated
FEW = 8  #: lines for a thread that may always wait, and that a batch may have: of fewer, each would cost more
PARTS = 4  #: into which a batch divides the longest wait, at least
OnDone = Callable[[int, Any], None]
"""Function that receives the number of an item and its result before those of all others are there."""
Compute = Callable[[list[Any], Any, Worker, StopFlags, OnDone], Sequence[Any]]
"""Function from items and options to results, one each. A flag that is set ends the search of its item."""


@dataclass(eq=False)
class _Waiting:
    """The items of one request that no batch has taken."""

    items: deque[tuple[int, Any]]
    options: Hashable
    results: list[Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[list[Any]]
    n_left: int  #: items without a result
    since: float
    is_dropped: bool = False


@dataclass(eq=False)
class _Running:
    """A batch that a thread computes."""

    requests: list[_Waiting]  #: of each item
    stops: StopFlags
    n_characters: int
    began: float
    told: set[int] = field(default_factory=set)  #: items whose results their requests have


class _Pace:
    """Recent speed of one thread: batches count less with each that follows."""

    KEPT = 0.9  #: of the weight of earlier batches

    def __init__(self) -> None:
        self._seconds = self._n_lines = self._n_characters = 0.0

    def add(self, seconds: float, n_lines: int, n_characters: int) -> None:
        """Count a batch."""
        self._seconds = self.KEPT * self._seconds + seconds
        self._n_lines = self.KEPT * self._n_lines + n_lines
        self._n_characters = self.KEPT * self._n_characters + n_characters

    def of(self, n_characters: float) -> float:
        """Return the seconds that so many characters take; 0 before the first batch."""
        return n_characters * self._seconds / max(1.0, self._n_characters)

    def of_lines(self, n: int) -> float:
        """Return the seconds that so many recent lines take; 0 before the first batch."""
        return n * self._seconds / max(1.0, self._n_lines)

    def lines_in(self, seconds: float) -> float:
        """Return how many lines, of those of late, so many seconds are enough for."""
        return seconds * self._n_lines / self._seconds if self._seconds else math.inf


@dataclass
class BatchCounts:
    """What a batcher has done so far."""

    n_lines: int = 0
    n_batches: int = 0
    seconds: float = 0.0  #: in the model, of all threads
    sizes: dict[int, int] = field(default_factory=dict)  #: number of lines -> batches


class Batcher:
    """Queue of one model, served by one thread or several."""

    def __init__(
        self,
        compute: Compute,
        limits: Limits,
        name: str = "model",
        n_threads: int = 1,
        is_alone: Callable[[Any], bool] = lambda options: False,
    ) -> None:
        """Start the threads.

        Items whose options are ``is_alone`` have batches of their own, and are answered one by one.
        """
        self.compute = compute
        self._is_alone = is_alone
        self.counts = BatchCounts()
        self._limits = limits
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._n_waiting = 0
        self._n_characters = 0  #: of the items that wait
        self._n_free = n_threads  #: without a batch
        self._running: list[_Running] = []
        self._pace = _Pace()
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
            RefusedError: the queue is full (503), the items are more than it holds (413), the time is over (504).
            AttnkitError: the model refuses an item.
        """
        if not items:
            return []
        loop = asyncio.get_running_loop()
        n, now = len(items), time.monotonic()
        request = _Waiting(deque(enumerate(items)), options, [None] * n, loop, loop.create_future(), n, now)
        with self._changed:
            if self._is_closed:
                raise RefusedError(503, "the service is shutting down", {"Retry-After": "5"})
            if n > self._limits.max_waiting:  # never, however empty the queue
                raise RefusedError(413, f"{n:,} lines are more than the {self._limits.max_waiting:,} that may wait")
            n_lines, n_characters = self._n_waiting + n, self._n_characters + count_characters(items)
            is_full = n_lines > self._limits.max_waiting or n_characters > self._limits.max_waiting_characters
            if is_full or self._is_late(n_characters, self._is_alone(options)):
                raise busy(self._seconds_of(self._n_characters))
            self._n_waiting, self._n_characters = n_lines, n_characters
            self._waiting.append(request)
            self._changed.notify(n)
        timer = loop.call_later(self._limits.seconds, self._give_up, request)
        try:
            return await request.done
        finally:
            timer.cancel()
            if request.n_left:
                self._drop(request)

    def _seconds_of(self, n_characters: float) -> float:
        """Estimate in what time so many characters are computed, after what runs."""
        now = time.monotonic()
        left = [max(0.0, self._pace.of(one.n_characters) - (now - one.began)) for one in self._running]
        until_free = min(left) if len(left) == len(self._threads) else 0.0
        return until_free + self._pace.of(n_characters) / len(self._threads)

    def _lines_of_a_batch(self) -> int:
        """Return how many lines a batch may have to take a part of the bound."""
        lines = self._pace.lines_in(self._limits.max_wait / PARTS)
        return int(min(self._limits.batch_lines, max(FEW, lines)))

    def _is_late(self, n_characters: int, is_alone: bool) -> bool:
        """Return whether a request would be late that makes so many characters wait.

        A line of it is taken when each request that waits has had its turn, and is done with its batch, which may be
        full if the line does not have it alone; when all of its lines are done, so is everything that waits.
        """
        if self._n_free > self._n_waiting:
            return False
        a_turn = (len(self._waiting) + 1) * self._n_characters / max(1, self._n_waiting)
        limits = self._limits
        n_lines = 1 if is_alone else self._lines_of_a_batch()
        of_a_batch = min(self._pace.of_lines(n_lines), self._pace.of(limits.batch_characters))
        of_a_line = self._seconds_of(a_turn) + of_a_batch
        is_late = self._n_waiting >= FEW * len(self._threads) and of_a_line > SURE * limits.max_wait
        return is_late or self._seconds_of(n_characters) > limits.seconds

    def _give_up(self, request: _Waiting) -> None:
        if not request.done.done():
            request.done.set_exception(RefusedError(504, f"not done after {self._limits.seconds:g} s"))

    def _drop(self, request: _Waiting) -> None:
        """Forget what is left of a request, and stop what runs: nobody waits for it."""
        with self._changed:
            self._forget(request)
            for running in self._running:
                for number, other in enumerate(running.requests):
                    if other is request:
                        running.stops.set(number)

    def _forget(self, request: _Waiting) -> None:
        """Take the items of a request from the queue."""
        request.is_dropped = True
        self._n_waiting -= len(request.items)
        self._n_characters -= count_characters([item for _, item in request.items])
        request.items.clear()

    def close(self) -> None:
        """Take no more requests; end the threads when the queue is empty."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop what runs and forget what waits, after ``close``."""
        with self._changed:
            left = list(self._waiting)
            for running in self._running:
                left += running.requests
                running.stops.set_all()
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
            while True:
                self._refuse_late()
                if self._waiting:
                    break
                if self._is_closed:
                    return [], Worker(number, 1)
                self._changed.wait()
            options = self._waiting[0].options
            chosen = [request for request in self._waiting if request.options == options and request.items]
            n_items = sum(len(request.items) for request in chosen)
            worker = Worker(number, max(1, self._n_free // n_items))
            # Of few lines the busy threads get their share, too: they are free before these would be done together.
            n_threads = self._n_free if n_items >= FEW * len(self._threads) else len(self._threads)
            n_most = 1 if self._is_alone(options) else min(self._lines_of_a_batch(), -(-n_items // n_threads))
            batch, n_characters = _in_turn(chosen, n_most, self._limits.batch_characters)
            self._n_free -= 1
            self._n_waiting -= len(batch)
            self._n_characters -= n_characters
            # Other options are served next, however much is left of these.
            served = {id(request) for request, _, _ in batch}
            rest = [request for request in self._waiting if request.items]
            self._waiting = deque(sorted(rest, key=lambda request: id(request) in served))
            return batch, worker

    def _refuse_late(self) -> None:
        """Refuse requests that waited too long for a first batch; forget empty ones."""
        oldest = time.monotonic() - self._limits.max_wait
        for request in self._waiting:
            if request.since < oldest and len(request.items) == len(request.results):
                self._forget(request)
                _settle(request, busy(self._seconds_of(self._n_characters)))
        self._waiting = deque(request for request in self._waiting if request.items)

    def _serve(self, number: int) -> None:
        schedule_computing()  # requests are read and refused at once, however busy the model is
        while True:
            batch, worker = self._take(number)
            if not batch:
                return
            self._compute(batch, worker)
            with self._changed:
                self._n_free += 1

    def _compute(self, batch: list[tuple[_Waiting, int, Any]], worker: Worker) -> None:
        """Compute a batch; if an item is refused, compute request by request."""
        with self._changed:
            batch = [entry for entry in batch if not entry[0].is_dropped]
            if not batch:
                return
            items, requests = [item for _, _, item in batch], [request for request, _, _ in batch]
            running = _Running(requests, StopFlags(len(batch)), count_characters(items), time.monotonic())
            self._running.append(running)
        on_done = partial(self._give, running, batch)
        try:
            found = self.compute(items, batch[0][0].options, worker, running.stops, on_done)
        except BaseException as error:  # whatever it is, it must not end the thread
            self._end(running)
            left = [entry for number, entry in enumerate(batch) if number not in running.told]
            is_alone = len(set(requests)) == 1
            for request in dict.fromkeys(request for request, _, _ in left):
                if is_alone:
                    _settle(request, error=error)
                else:
                    self._compute([entry for entry in left if entry[0] is request], worker)
            return
        self._end(running)
        with self._changed:
            if not any(request.is_dropped for request in requests):  # those are ended early
                self._pace.add(time.monotonic() - running.began, len(requests), running.n_characters)
        for number, result in enumerate(found):
            on_done(number, result)

    def _give(self, running: _Running, batch: Sequence[tuple[_Waiting, int, Any]], number: int, result: object) -> None:
        """Give the result of an item to its request, once; answer that when it has all."""
        request, place, _ = batch[number]
        with self._changed:  # a request may have items in several threads
            if number in running.told:
                return
            running.told.add(number)
            request.results[place] = result
            request.n_left -= 1
            is_complete = not request.n_left and not request.is_dropped  # of a dropped one, parts of texts are left
        if is_complete:
            _settle(request)

    def _end(self, running: _Running) -> None:
        """Count a batch that was computed, before the last of it is answered."""
        n = len(running.requests)
        with self._changed:
            self._running.remove(running)
            self.counts.seconds += time.monotonic() - running.began
            self.counts.n_lines += n
            self.counts.n_batches += 1
            self.counts.sizes[n] = self.counts.sizes.get(n, 0) + 1


def _in_turn(requests: list[_Waiting], n_most: int, n_characters: int) -> tuple[list[tuple[_Waiting, int, Any]], int]:
    """Take items of each request in turn; return them and their number of characters.

    Items are ``n_most`` at most. Together they have no more than ``n_characters``, but for the first.
    """
    batch: list[tuple[_Waiting, int, Any]] = []
    n_taken = 0
    while requests:
        for request in requests:
            n_own = count_characters(request.items[0][1])
            if len(batch) == n_most or (batch and n_taken + n_own > n_characters):
                return batch, n_taken
            batch.append((request, *request.items.popleft()))
            n_taken += n_own
        requests = [request for request in requests if request.items]
    return batch, n_taken


def count_characters(item: object) -> int:
    """Return the number of characters of a text, or of the texts in a sequence.

    A number counts as one.
    """
    if isinstance(item, str):
        return len(item)
    if isinstance(item, int | float):
        return 1
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
