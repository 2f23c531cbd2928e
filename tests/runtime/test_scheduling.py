"""Scheduling of threads: those that answer run at once, those that compute give way."""

from __future__ import annotations

import os
import platform
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from attnkit.runtime.scheduling import LONG, NICER, SHORT, schedule_answering, schedule_computing, schedule_usually
from attnkit.serving.batching import Batcher
from attnkit.serving.limits import Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="slices of a thread are Linux's")


def of_thread() -> tuple[int, int | None]:
    """Return niceness and slice, in nanoseconds, of the calling thread; None: the kernel says none."""
    thread = threading.get_native_id()
    stated = Path(f"/proc/self/task/{thread}/sched")
    found = re.search(r"se\.slice\s*:\s*(\d+)", stated.read_text()) if stated.exists() else None
    return os.getpriority(os.PRIO_PROCESS, thread), int(found[1]) if found else None


def after(schedule: Callable[[], None]) -> tuple[int, int | None]:
    """Schedule a new thread; return its niceness and slice."""
    found: list[tuple[int, int | None]] = []

    def run() -> None:
        schedule()
        found.append(of_thread())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def knows_slices() -> bool:
    release = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    return release >= (6, 12) and platform.machine() in ("x86_64", "aarch64") and of_thread()[1] is not None


def test_threads_that_compute_are_nicer_and_have_long_slices() -> None:
    niceness, time_slice = of_thread()
    computing, answering = after(schedule_computing), after(schedule_answering)
    assert (computing[0], answering[0]) == (min(19, niceness + NICER), niceness)
    if knows_slices():
        assert (computing[1], answering[1]) == (LONG, SHORT)
    assert of_thread() == (niceness, time_slice), "other threads stay as they are"


def test_a_thread_of_a_thread_that_computes_is_no_nicer() -> None:
    def both() -> None:
        schedule_computing()
        schedule_computing()

    assert after(both)[0] == min(19, of_thread()[0] + NICER)
    assert after(lambda: (schedule_answering(), schedule_usually())) == of_thread()  # type: ignore[arg-type,return-value]


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no such policies")
def test_the_policy_of_a_user_stays() -> None:
    """As of ``chrt --batch``."""
    found = list[int]()

    def run() -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        schedule_computing()
        found.append(os.sched_getscheduler(0))

    after(run)
    assert found == [os.SCHED_BATCH]


def test_an_unknown_machine_changes_the_niceness_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = after(lambda: None)
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    assert after(schedule_computing) == (min(19, usual[0] + NICER), usual[1])


def test_the_threads_of_a_queue_compute_so() -> None:
    batcher = Batcher(lambda items, options, worker, stops, on_done: items, Limits())
    (thread,) = batcher._threads
    assert thread.native_id is not None
    expected = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICER)
    for _ in range(1000):  # it schedules itself when it begins
        if os.getpriority(os.PRIO_PROCESS, thread.native_id) == expected:
            break
        threading.Event().wait(0.01)
    else:
        pytest.fail("the thread has the niceness of others")
    batcher.close()
    batcher.join()
