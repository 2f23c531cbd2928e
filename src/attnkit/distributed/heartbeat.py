"""Wait for other ranks: deferred signals, and a thread that answers while work continues."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class DeferredSignals:
    """Lets SIGTERM and SIGINT do what they did before it was taken, but only while it is open; shut, it keeps one."""

    def __init__(self) -> None:
        self.pending: int | None = None
        """The signal that has come while it was shut."""
        self.may_interrupt = True
        """Whether ``interrupt_main_thread`` has still to send its one signal."""
        self._open = True
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Shut it. Outside the main thread, which alone may, nothing is done."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._open = False
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:  # as in a job that a shell has put in the background
                self._previous[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        """Leave it open for good."""
        self._open = True
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Let signals through in a block, one that waits at once."""
        self._open = True
        try:
            self.deliver()
            yield
        finally:
            self._open = not self._previous

    def deliver(self) -> None:
        """Let the signal come that waits, if one does."""
        if self.pending is not None:
            number, self.pending = self.pending, None
            signal.raise_signal(number)

    def exit_code(self) -> int:
        """Return what the process would end with for the signal that waits; 0 for none."""
        return 0 if self.pending is None else 128 + self.pending

    def interrupt_main_thread(self) -> None:
        """Let the main thread get a signal, once, of a kind that raises there."""
        raising = [number for number, handler in self._previous.items() if callable(handler)]
        thread = threading.main_thread().ident
        if self.may_interrupt and raising and thread is not None:
            self.may_interrupt = False
            signal.pthread_kill(thread, raising[0])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous.get(number)
        if not self._open:
            self.pending = number
        elif callable(previous):
            previous(number, frame)
        else:  # the system's own way: the process ends
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


class Heartbeat:
    """Answers for a process at work, time and again, to those that wait for it: so they know a long wait from a death.

    Every rank takes part in every meeting once, its thread or this one. Nobody who waits is ever not in a meeting, so
    the answer of the last to come ends all waits at once.
    """

    def __init__(self, answer: Callable[[], object], period: float) -> None:
        self._beat = answer
        self._period = period
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="attnkit pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, between two answers. Raises what ``answer`` has raised."""
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._period):
                self._beat()
        except BaseException as error:
            self._failure = error
