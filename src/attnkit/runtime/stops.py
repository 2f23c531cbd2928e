"""Signals as wishes that a loop asks for. Knows no torch."""

from __future__ import annotations

import os
import signal
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
