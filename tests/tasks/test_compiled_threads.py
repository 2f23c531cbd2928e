"""Searches beside the main thread: in the thread that asks, where one thread of the process looks after their stops."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import attnkit
from attnkit.compiled import search as compiled_search
from attnkit.compiled.workers import WATCH, Watch
from attnkit.decoding.stopping import StopFlags


def test_functions_are_called_while_their_block_runs_and_not_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watch, "SECONDS", 0.005)
    n_before = sum(thread.name == "attnkit-watch" for thread in threading.enumerate())
    watch, calls = Watch(), {"a": 0, "b": 0}

    def look(name: str) -> None:
        calls[name] += 1

    def until(name: str, n: int) -> None:
        end = time.monotonic() + 20
        while calls[name] < n:
            assert time.monotonic() < end
            time.sleep(0.002)

    for _ in range(3):  # it sleeps between the blocks, and is one thread for all
        with watch.calling(lambda: look("a")):
            until("a", calls["a"] + 3)
            with watch.calling(None), watch.calling(lambda: look("b")):
                until("b", calls["b"] + 3)
            ended = calls["b"]
            until("a", calls["a"] + 3)
            assert calls["b"] == ended
        ended = calls["a"]
        time.sleep(0.03)
        assert calls["a"] == ended
    assert sum(thread.name == "attnkit-watch" for thread in threading.enumerate()) == n_before + 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_fork_has_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a thread had the lock when it was made."""
    monkeypatch.setattr(Watch, "SECONDS", 0.005)
    called, held, ended = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        ended.wait(20)

    with WATCH.calling(called.set):
        assert called.wait(20)

    def search() -> None:
        with WATCH.calling(hold):
            ended.wait(20)

    thread = threading.Thread(target=search)
    thread.start()
    assert held.wait(20)
    if (child := os.fork()) == 0:
        signal.alarm(30)  # ends a child that waits for the lock
        again = threading.Event()
        with WATCH.calling(again.set):
            os._exit(0 if again.wait(20) else 1)
    code = os.waitpid(child, 0)[1]
    ended.set()
    thread.join(20)
    assert code == 0


def test_a_search_of_another_thread_is_the_same_and_stops(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In no thread of a pool; whatever is stopped has no words."""
    translator = attnkit.Translator.load(trained, device="cpu", threads=1)
    lines = [f"{n} {n + 1} 3" for n in range(20)]
    expected = [one.text for one in translator.translate(lines)]
    handed_over: list[str] = []
    pool = compiled_search.Threads.run

    def run(self: compiled_search.Threads, *arguments: object) -> None:
        handed_over.append(threading.current_thread().name)
        pool(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compiled_search.Threads, "run", run)
    found: list[str] = []
    stops = StopFlags(len(lines))

    def ask() -> None:
        found.extend(one.text for one in translator.translate(lines))
        translator.set_stops(stops)
        long = translator.translate(lines, min_length=1000, max_length=1001, beam_size=16)
        found.append("stopped" if max(len(one.tokens) for one in long) < 1000 else "to the end")

    thread = threading.Thread(target=ask)
    thread.start()
    end = time.monotonic() + 60
    while len(found) < len(lines) or not WATCH._looks:
        assert time.monotonic() < end and thread.is_alive()
        time.sleep(0.001)
    stops.set_all()
    thread.join(60)
    translator.set_stops(None)
    assert found == [*expected, "stopped"] and handed_over == []
    assert [one.text for one in translator.translate(lines)] == expected and len(handed_over) > 0


@pytest.mark.filterwarnings("ignore:this run was not trained to read terms:UserWarning")
def test_lines_of_a_translator_are_handed_on_when_all_of_their_sentences_are_done(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the texts, scores and signs of the result. Which sentences are done early is drawn here."""
    search = compiled_search.CompiledSearch.search

    def reporting(self: Any, *given: Any) -> Any:
        *given, report = given
        found = search(self, *given)
        for number in random.Random(1).sample(range(len(found)), len(found) * 3 // 4) if report is not None else ():
            report(number, found[number])
        return found

    monkeypatch.setattr(compiled_search.CompiledSearch, "search", reporting)
    translator = attnkit.Translator.load(trained, device="cpu", threads=1, split="sentences")
    lines = [" ".join(str((7 * i * k) % 60) for k in range(1, 9)) + "." + f" A {i} 2 3." * (i % 3) for i in range(60)]
    lines[7] = ""
    told, texts = dict[int, Any](), dict[int, list[str]]()
    expected = translator.translate(lines, beam_size=4, num_hypotheses=2, quiet=True)
    found = translator.translate(lines, on_done=told.__setitem__, beam_size=4, num_hypotheses=2, quiet=True)
    assert found == expected and 20 < len(told) < 59 and all(expected[i] == told[i] for i in told)
    assert {1, 2, 3} <= {len(expected[i].source.split(" A ")) for i in told}, "of several sentences, too"
    assert len({one.text for one in expected}) > 20
    found_texts = translator.translate_texts(lines, on_done=texts.__setitem__, beam_size=3)
    assert texts.keys() == told.keys() and all(found_texts[i] == texts[i] for i in texts) and 7 not in told
    told.clear()
    translator.translate(lines[:9], quiet=True)
    translator.translate(lines[:9], glossary={"2": "zwei"}, on_done=told.__setitem__, quiet=True)
    assert told == {}, "lines with terms may be searched again"
