"""A lost terminal or connection (SIGHUP) stops a command as SIGTERM does, unless it is ignored, as under nohup."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from attnkit.runtime.signals import TERMINATED, Signals, StopRequests

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no SIGHUP")


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_training_notes_it_and_a_second_one_does_not_end_the_process() -> None:
    """The kernel and the shell both send one."""
    with StopRequests() as stop:
        stop.defer()
        assert not stop()
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        assert stop() and stop.signal == signal.SIGHUP
        stop._restore()


def test_any_other_command_ends_and_clears_up() -> None:
    with Signals() as signals, pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGHUP)
    assert ended.value.code == TERMINATED == signals.code


def test_it_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Signals(), StopRequests() as stop:
        stop.defer()
        signal.raise_signal(signal.SIGHUP)
        assert not stop()
        stop._restore()
