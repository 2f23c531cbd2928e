"""Wait for other ranks: deferred signals, and a thread that answers while work continues."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class DeferredSignals:
    """SIGTERM and SIGINT with their previous handlers, delivered only while open; one signal is kept until then."""

    def __init__(self) -> None:
        self.pending: int | None = None
        """Signal that arrived while closed."""
        self.may_interrupt = True
        """Whether ``interrupt_main_thread`` may send its one signal."""
        self._open = True
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Install the handlers, closed. Does nothing outside the main thread, which alone may set handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._open = False
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:  # as in a job that a shell has put in the background
                self._previous[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        """Restore the previous handlers."""
        self._open = True
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Deliver signals in a block, a pending one at once."""
        self._open = True
        try:
            self.deliver()
            yield
        finally:
            self._open = not self._previous

    def deliver(self) -> None:
        """Raise the pending signal, if any."""
        if self.pending is not None:
            number, self.pending = self.pending, None
            signal.raise_signal(number)

    def exit_code(self) -> int:
        """Return the exit code for the pending signal, 0 for none."""
        return 0 if self.pending is None else 128 + self.pending

    def interrupt_main_thread(self) -> None:
        """Send the main thread one signal of a kind that raises there."""
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
        else:  # the default action: the process ends
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


class Heartbeat:
    """Thread that takes part in collectives while its rank works, so that waiting ranks know slow from dead.

    Every rank joins every collective once, by its main thread or by this one. Waiting ranks are always inside a
    collective, so the last rank's reply releases all of them.
    """

    def __init__(self, answer: Callable[[], object], period: float) -> None:
        self._beat = answer
        self._period = period
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="attnkit pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop between two answers; raise the error of ``answer``, if any."""
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
