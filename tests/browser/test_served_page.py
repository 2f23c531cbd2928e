"""The page of ``attnkit serve``: typing, choosing a word, errors; text is text alone."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser

import attnkit

SCRIPT = "<img src=x onerror=alert(1)> <script>document.title = 'hit'</script>"
WORDS = "[...document.querySelectorAll('#target p')].map((line) => line.textContent).join('|')"
N_WORDS = "document.querySelectorAll('.word').length"


@pytest.fixture(scope="module")
def run(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that says words, whatever they are worth."""
    folder: Path = tmp_path_factory.mktemp("served") / "run"
    workshop.train(workshop.configure("transformer", vocabulary__kind="word"), folder)
    return folder


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[str]:
    argv = [sys.executable, "-m", "attnkit", "serve", f"en:he={run}", "--port", "0", "--device", "cpu"]
    process = subprocess.Popen([*argv, "--threads", "1"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = re.search(r"http://\S+", process.stderr.readline())
    assert found is not None
    yield found[0]
    process.kill()
    process.wait()
    process.stderr.close()


def until(browser: Browser, expression: str) -> Any:
    """Return what an expression is in the page, as soon as it is true."""
    for _ in range(200):
        if value := browser.ask(expression):
            return value
        time.sleep(0.05)
    raise AssertionError(f"never true: {expression}")


def write(browser: Browser, text: str) -> None:
    """Put a text into the page as if it had been typed."""
    change = "source.dispatchEvent(new Event('input'))"
    browser.ask(f"(() => {{ const source = document.getElementById('source'); source.value = {text!r}; {change}; }})()")


def test_what_is_typed_is_translated(browser: Browser, address: str, run: Path) -> None:
    browser.visit(address)
    write(browser, "1 2 3\n4 5")
    translator = attnkit.Translator.load(run, device="cpu", threads=1)
    texts = [one.text for one in translator.translate(["1 2 3", "4 5"], beam_size=4, num_hypotheses=4)]
    until(browser, "document.querySelectorAll('#target p').length === 2")
    assert browser.ask(WORDS).split("|") == [" ".join(text.split()) for text in texts]
    assert browser.complaints() == []


def test_a_chosen_word_offers_other_ways_on(browser: Browser, address: str) -> None:
    browser.visit(address)
    write(browser, "1 2 3 4")
    until(browser, N_WORDS)
    browser.ask("document.querySelectorAll('.word')[0].click()")
    until(browser, "document.getElementById('more-title').textContent === 'Other beginnings'")
    assert browser.ask("document.querySelector('.word').getAttribute('aria-pressed')") == "true"
    begun = until(browser, "document.querySelector('#choices button')?.textContent").removesuffix(" …")
    browser.ask("document.querySelector('#choices button').click()")
    until(browser, f"{WORDS}.startsWith({begun!r})")


def test_words_of_low_probability_are_marked(browser: Browser, address: str, run: Path) -> None:
    browser.visit(address)
    write(browser, "1 2 3\n4 5")
    translator = attnkit.Translator.load(run, device="cpu", threads=1)
    found = translator.translate(["1 2 3", "4 5"], beam_size=4, num_hypotheses=4, token_scores=True)
    scores = [score for one in found for _, score in (one.token_scores or [])[: len(one.tokens)]]
    expected = [f"probability {round(100 * math.exp(score))} %" for score in scores]  # a word is a token here
    until(browser, "document.querySelectorAll('#target p').length === 2")
    assert (
        browser.ask("[...document.querySelectorAll('.word')].map((word) => word.title).join('|')").split("|")
        == expected
    )
    marked = browser.ask("[...document.querySelectorAll('.word')].map((word) => word.matches('.unsure')).join('|')")
    assert marked.split("|") == [str(math.exp(score) < 0.5).lower() for score in scores]
    assert len(expected) > 1


def test_text_is_text_alone(browser: Browser, address: str) -> None:
    browser.visit(address)
    write(browser, SCRIPT)
    until(browser, "document.querySelectorAll('#target p').length && !document.getElementById('state').textContent")
    assert browser.ask("document.title") == "attnkit"
    assert browser.ask("document.querySelectorAll('#target img, #target script, #choices img').length") == 0
    assert browser.complaints() == []


def test_a_refusal_is_shown(browser: Browser, address: str) -> None:
    browser.visit(address)
    write(browser, "1\n" * 600)
    said = until(browser, "document.querySelector('#state.problem')?.textContent")
    assert said == "601 lines are more than the 512 of a request"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_a_phone(browser: Browser, address: str, dark: bool) -> None:
    browser.visit(address, 390, dark=dark)
    write(browser, "1 2 3 " * 40)
    until(browser, N_WORDS)
    assert browser.ask("document.documentElement.scrollWidth") <= 390
