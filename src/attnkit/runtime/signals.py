"""Signals of a command: requests to stop that a loop polls, and an exit code where no loop runs. Torch-free."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from attnkit.runtime.processes import STOP_SIGNALS, launched_rank


class StopRequests:
    """Turns SIGTERM, SIGINT and SIGHUP into a wish that a loop asks for; a second signal ends the process at once.

    Under ``torchrun`` it does not: a signal to the whole job comes to a rank twice, the second time handed on by
    torchrun, which itself ends at once what has not ended in its time.
    Until ``defer`` is called, and again after ``release``, there is nothing to save, and a signal ends the command as
    it ends any other (``signals.Signals``).
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Return whether a stop was asked for."""
        return self.signal is not None

    def __enter__(self) -> StopRequests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.signal is None:  # else the process is about to end, and the next signal is the second
            self._restore()

    def defer(self) -> None:
        """From now on a signal is only noted."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as in a job that a shell has put in the background
                self._previous[number] = signal.signal(number, self._note)

    def release(self) -> None:
        """From now on a signal ends the work again, and so does one that has been noted and not been asked for."""
        self._restore()
        if self.signal is not None:
            signal.raise_signal(self.signal)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and launched_rank() is None:
            if number not in (signal.SIGTERM, signal.SIGINT):
                return  # a lost terminal sends SIGHUP twice: from the kernel and from the shell
            os._exit(128 + number)
        self.signal = number


INTERRUPTED, TERMINATED = 130, 143


class Signals:
    """While entered, SIGTERM, SIGINT and SIGHUP end the command as an error does: what it has begun is cleared away.

    Any further one ends the process at once, but under ``torchrun``, which hands on what the whole job has got anyway.
    """

    def __init__(self) -> None:
        self.armed = True
        """Whether the next signal is the first one."""
        self.code = 0
        """What the command ends with for a signal."""
        self._previous: dict[int, Any] = {}
        self._hook = sys.unraisablehook

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:  # as in a job that a shell has put in the background
                    self._previous[number] = signal.signal(number, self._interrupt)
        sys.unraisablehook = self._raise_again
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    def ignore(self) -> None:
        """Let what has ended keep its exit code, whatever comes while the interpreter clears up: for good."""
        for number in self._previous:
            signal.signal(number, signal.SIG_IGN)
            self._previous[number] = signal.SIG_IGN

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            self.armed, self.code = False, INTERRUPTED if number == signal.SIGINT else TERMINATED
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(TERMINATED)
        if "TORCHELASTIC_RUN_ID" not in os.environ and number in (signal.SIGTERM, signal.SIGINT):
            os._exit(128 + number)  # not for SIGHUP, which a lost terminal sends twice

    def _raise_again(self, lost: Any) -> None:
        """Let a signal come again that came where nothing can be raised, as in ``__del__``, and would be lost."""
        if isinstance(lost.exc_value, KeyboardInterrupt | SystemExit):
            self.armed = True
            number = signal.SIGINT if isinstance(lost.exc_value, KeyboardInterrupt) else signal.SIGTERM
            # Later, for in here it would be lost again.
            threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, number)).start()
        else:
            self._hook(lost)
