"""What the served page shows when the service refuses, fails or is gone; then it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser
from served_runs import N_WORDS, STATE, choose_model, translated, until, write
from server_process import serving

PROBLEM = "document.querySelector('#state.problem')?.textContent"
AGAIN = "document.getElementById('again')"


@pytest.fixture(scope="module")
def runs(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with attention weights, and one without."""
    folder = tmp_path_factory.mktemp("served")
    given = {"vocabulary__kind": "word", "decoding__min_length": 3}
    workshop.train(workshop.configure("transformer", **given), folder / "run")
    workshop.train(workshop.configure("rnn", **given, model__alignment="none"), folder / "plain")
    return {name: folder / name for name in ("run", "plain")}


@pytest.fixture(scope="module")
def address(runs: dict[str, Path]) -> Iterator[str]:
    with serving(f"en:de={runs['run']}", f"plain={runs['plain']}", "--max-waiting", "2") as (found, _):
        yield found


def test_too_much_text_is_shown_and_passes(browser: Browser, address: str) -> None:
    browser.visit(address)
    for text, message in (
        ("1\n2\n3", "3 lines are more than the 2 that may wait"),
        ("1\n" * 600, "601 lines are more than the 512 of a request"),
        ("1" * 10_001, "a line of 10,001 characters is longer than 10,000"),
        (("2" * 9_000 + "\n") * 12, "108,000 characters are more than the 100,000 of a request"),
    ):
        translated(browser, "1 2")
        assert not browser.ask(PROBLEM) and browser.ask(f"{AGAIN}.hidden")
        write(browser, text)
        assert message in until(browser, PROBLEM)
        assert browser.ask("document.getElementById('target').matches('.old')"), "no translation of this text"
        assert not browser.ask(f"{AGAIN}.hidden")
    assert [event for event in browser.complaints() if "the server responded with a status" not in str(event)] == []


def test_a_problem_may_be_tried_again(browser: Browser, address: str) -> None:
    browser.visit(address)
    write(browser, "1\n2\n3")
    until(browser, PROBLEM)
    browser.ask(f"document.getElementById('source').value = '1'; {AGAIN}.focus()")
    browser.key("Enter")
    until(browser, f"{N_WORDS} && !({PROBLEM})")
    assert browser.ask("document.activeElement.id") == "source"


def test_a_model_that_is_not_served_any_more_is_named(browser: Browser, address: str) -> None:
    browser.visit(address)
    translated(browser, "1 2")
    browser.ask("document.querySelector('#pair option').value = 'old'")
    write(browser, "1")
    assert until(browser, PROBLEM) == "no model 'old'; there are en-de, plain"


def test_a_model_without_attention_shows_no_weights(browser: Browser, address: str) -> None:
    browser.visit(address)
    choose_model(browser, "plain")
    translated(browser, "1 2 3")
    browser.ask("document.querySelector('.word').click()")
    until(browser, "document.getElementById('more-title').textContent === 'Other beginnings'")
    assert browser.ask("document.getElementById('source-words').hidden") and not browser.ask(PROBLEM)
    assert "attends" not in browser.ask(STATE)


def test_a_key_is_asked_for(browser: Browser, runs: dict[str, Path]) -> None:
    with serving(f"en:de={runs['run']}", ATTNKIT_API_KEY="sécret €") as (address, _):
        browser.visit(address)
        assert not browser.ask("document.getElementById('key-card').hidden")
        write(browser, "1 2")
        assert until(browser, PROBLEM) == "an API key is needed"
        for key, expected in (("wrong", f"{PROBLEM} === 'this API key is not valid'"), ("sécret €", N_WORDS)):
            browser.ask("document.getElementById('key').value = ''; document.getElementById('key').focus()")
            browser.write(key)
            browser.key("Enter")
            until(browser, expected)
        assert not browser.ask(PROBLEM)
        assert "sécret" not in browser.ask("document.documentElement.outerHTML")


def test_a_service_that_is_gone_is_missed(browser: Browser, runs: dict[str, Path]) -> None:
    with serving(f"en:de={runs['run']}", f"plain={runs['plain']}") as (address, process):
        browser.visit(address)
        translated(browser, "1 2 3")
        process.kill()
        process.wait()
        browser.ask("document.querySelector('.word').click()")
        assert until(browser, PROBLEM) == "The service does not answer."
        write(browser, "1")
        until(browser, f"document.querySelector('.old') && {PROBLEM} === 'The service does not answer.'")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_problems_can_be_read(browser: Browser, address: str, dark: bool) -> None:
    """The contrast of the text of a problem with its ground is that of WCAG 2.1, level AA."""
    browser.visit(address, 390, dark=dark)
    write(browser, "1\n" * 600)
    until(browser, PROBLEM)
    colour, ground = browser.ask(
        "[getComputedStyle(document.getElementById('state')).color,"
        " getComputedStyle(document.querySelector('.card:not([hidden])')).backgroundColor]"
    )
    lights = sorted(luminance(one) for one in (colour, ground))
    assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5
    assert browser.ask("document.documentElement.scrollWidth") <= 390


def luminance(colour: str) -> float:
    """Return the relative luminance of ``rgb(r, g, b)``, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
