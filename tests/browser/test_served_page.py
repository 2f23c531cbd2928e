"""The page of ``attnkit serve``: typing, words, attention, alternatives, all by keyboard, and what went wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from chromium import Browser
from served_runs import N_WORDS, STATE, WORDS, choose_model, train_words, translated, until, write
from server_process import serving

import attnkit

LONG = ("barking", "meowing", "talking", "walking", "singing", "one", "two")
FOCUS = "(document.activeElement.id || document.activeElement.className)"
TITLE = "document.getElementById('more-title').textContent"
WORD = "document.activeElement.dataset.line + '.' + document.activeElement.dataset.place"
CHOSEN = (
    "[...document.querySelectorAll('[aria-pressed=true]')]"
    ".map(({ dataset }) => dataset.line + '.' + dataset.place).join()"
)


@pytest.fixture(scope="module")
def run(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that says words, whatever they are worth."""
    folder: Path = tmp_path_factory.mktemp("served") / "run"
    config = workshop.configure("transformer", vocabulary__kind="word", decoding__min_length=3)
    workshop.train(config, folder)
    return folder


@pytest.fixture(scope="module")
def address(run: Path, workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of a run whose tokens are words, and of one whose words have several."""
    parts = tmp_path_factory.mktemp("served") / "parts"
    small = {"vocabulary__size": 40, "vocabulary__byte_fallback": False, "decoding__min_length": 8}
    train_words(workshop, parts, {word: word[::-1] for word in LONG}, vocabulary__kind="bpe", **small)
    with serving(f"en:he={run}", f"en:de={parts}", f"unnamed={run}") as (found, _):
        yield found


def ask(address: str, body: dict[str, Any]) -> Any:
    """Return what the service answers to a program."""
    given = Request(f"{address}/v1/translate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(given, timeout=60) as response:
        return json.load(response)["translations"]


def test_what_is_typed_is_translated(browser: Browser, address: str, run: Path) -> None:
    browser.visit(address)
    write(browser, "1 2 3\n4 5")
    translator = attnkit.Translator.load(run, device="cpu", threads=1)
    texts = [one.text for one in translator.translate(["1 2 3", "4 5"], beam_size=4, num_hypotheses=4)]
    until(browser, "document.querySelectorAll('#target p').length === 2")
    assert browser.ask(WORDS).split("|") == [" ".join(text.split()) for text in texts]
    assert browser.complaints() == []


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


def word_weights(line: dict[str, Any], place: int) -> list[float]:
    """Return the attention of a target word to source words: a mean over its tokens of sums over those of the source.

    A word is counted by the marks in the tokens up to it, that is, otherwise than the page counts.
    """

    def numbers(tokens: list[str]) -> list[int]:
        starts = [token.startswith("▁") or token == "<unk>" or i == 0 for i, token in enumerate(tokens)]
        return [sum(starts[: i + 1]) - 1 for i in range(len(tokens))]

    (weights,), columns = line["attention"], numbers(line["source_tokens"])
    rows = [row for row, word in zip(weights, numbers(line["tokens"]), strict=True) if word == place]
    found = [0.0] * (max(columns) + 1)
    for row in rows:
        for weight, word in zip(row, columns, strict=False):  # the last column is the end of the sentence
            found[word] += weight / len(rows)
    return found


@pytest.mark.parametrize(("model", "text"), [("en-he", "1 22 3 4"), ("en-de", "barking two walking")])
def test_the_attention_of_a_chosen_word_is_that_of_the_service(
    browser: Browser, address: str, model: str, text: str
) -> None:
    browser.visit(address)
    choose_model(browser, model)
    translated(browser, text)
    line = ask(address, {"model": model, "text": text, "num_hypotheses": 4, "attention": True})[0]["lines"][0]
    n_words, source = len(line["text"].split()), text.split()
    assert n_words == browser.ask(N_WORDS) and (len(line["tokens"]) > n_words) == (model == "en-de")
    for place in range(n_words):
        expected = word_weights(line, place)
        browser.ask(f"document.querySelectorAll('.word')[{place}].click()")
        until(browser, f"{CHOSEN} === '0.{place}' && {STATE}.includes('attends to')")
        marks = "[...document.querySelectorAll('#source-words span')]"
        found = browser.ask(f"{marks}.map((span) => [span.textContent, span.title, span.style.background])")
        assert [(word, share) for word, share, _ in found] == [
            (word, f"{round(100 * weight)} %") for word, weight in zip(source, expected, strict=True)
        ]
        first = max(range(len(source)), key=expected.__getitem__)
        assert "50%" in found[first][2], "the word that it attends to most has the deepest colour"
        assert f"attends to {source[first]} {round(100 * max(expected))} %" in browser.ask(STATE)
    assert browser.complaints() == []


def test_a_chosen_word_offers_other_ways_on(browser: Browser, address: str) -> None:
    browser.visit(address)
    translated(browser, "1 2 3 4")
    browser.ask("document.querySelectorAll('.word')[0].click()")
    until(browser, f"{TITLE} === 'Other beginnings'")
    assert browser.ask(CHOSEN) == "0.0"
    begun = until(browser, "document.querySelector('#choices button')?.textContent").removesuffix(" …")
    browser.ask("document.querySelector('#choices button').click()")
    until(browser, f"{WORDS}.startsWith({begun!r}) && {TITLE} === 'Alternatives'")
    browser.ask("[...document.querySelectorAll('#choices button')].at(-1).click()")
    until(browser, "!document.querySelector('.old')")
    free = ask(address, {"model": "en-he", "text": "1 2 3 4", "num_hypotheses": 4})[0]["text"]
    until(browser, f"{WORDS} === {free!r}")
    last = browser.ask("[...document.querySelectorAll('#choices button')].at(-1).textContent")
    assert last != "Without the chosen beginning"


def test_everything_can_be_done_by_keyboard(browser: Browser, address: str) -> None:
    """Tab, arrows, Enter and Escape; the focus is never lost."""
    browser.visit(address)
    browser.key("Tab")
    browser.key("Tab")
    assert browser.ask(FOCUS) == "pair"
    browser.key("ArrowDown")
    assert browser.ask("document.getElementById('pair').value") == "en-de"
    browser.key("ArrowUp")
    browser.key("Tab")
    browser.key("Tab")
    assert browser.ask(FOCUS) == "source"
    browser.write("1 2 3 4\n5 6")
    until(browser, "document.querySelectorAll('#target p').length === 2")
    browser.key("Tab")
    seen = [browser.ask(WORD)]
    for key in ("ArrowRight", "ArrowDown", "ArrowUp", "End", "Home", "ArrowLeft", "ArrowRight"):
        browser.key(key)
        seen.append(browser.ask(WORD))
    last = f"1.{browser.ask(WORDS).split('|')[1].count(' ')}"
    assert seen == ["0.0", "0.1", "1.0", f"0.{browser.ask(WORDS).split('|')[0].count(' ')}", last, "0.0", "0.0", "0.1"]
    assert browser.ask("document.querySelectorAll('.word[tabindex=\"0\"]').length") == 1, "one stop for Tab"

    browser.key("Enter")
    until(browser, f"{TITLE}.startsWith('After')")
    assert (browser.ask(CHOSEN), browser.ask(WORD)) == ("0.1", "0.1"), "the focus stays"
    browser.key("Escape")
    assert (browser.ask(CHOSEN), browser.ask(WORD)) == ("", "0.1")
    assert browser.ask(TITLE) == "Alternatives to line 1"
    browser.key(" ")
    until(browser, f"{TITLE}.startsWith('After')")
    browser.key("Tab")
    begun = browser.ask("document.activeElement.textContent")
    assert begun.endswith(" …")
    browser.key("Enter")
    until(browser, f"{WORDS}.startsWith({begun.removesuffix(' …')!r}) && document.activeElement.matches('.word')")
    assert browser.ask(WORD) == "0.1", "where it was chosen from"
    browser.key("Tab")
    assert browser.ask("document.activeElement.parentNode.parentNode.id") == "choices"
    browser.key("Enter")
    until(browser, "document.activeElement.matches('.word')")
    assert browser.ask(WORD) == "0.0"
    assert browser.complaints() == []


def test_alternatives_are_those_of_the_line(browser: Browser, address: str) -> None:
    browser.visit(address)
    translated(browser, "1 2 3 4\n5 6 7")
    texts = "[...document.querySelectorAll('#choices li')].map((li) => li.textContent)"
    for number, line in enumerate(("1 2 3 4", "5 6 7")):
        browser.ask(f"document.querySelector('[data-line=\"{number}\"]').focus()")
        assert browser.ask(TITLE) == f"Alternatives to line {number + 1}"
        (found,) = ask(address, {"model": "en-he", "text": line, "num_hypotheses": 4})
        assert browser.ask(texts) == [one["text"] for one in found["lines"][0]["alternatives"]]


def test_languages_that_are_not_known_are_not_named(browser: Browser, address: str) -> None:
    languages = (
        "['source', 'source-words', 'target', 'choices'].map((name) => document.getElementById(name).lang).join()"
    )
    titles = "[...document.querySelectorAll('#pair option')].map((option) => option.textContent).join('|')"
    browser.visit(address)
    assert browser.ask(titles) == "English – Hebrew|English – German|unnamed"
    assert browser.ask(languages) == "en,en,he,he"
    choose_model(browser, "unnamed")
    assert browser.ask(languages) == ",,,"
    choose_model(browser, "en-de")
    assert browser.ask(languages) == "en,en,de,de"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_a_phone(browser: Browser, address: str, dark: bool) -> None:
    browser.visit(address, 390, dark=dark)
    translated(browser, "1 2 3 " * 40 + "1" * 300)
    browser.ask("document.querySelector('.word').click()")
    until(browser, "document.querySelector('#choices button')?.textContent.endsWith('…')")
    assert browser.ask("document.documentElement.scrollWidth") <= 390
    colours = browser.ask(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color].join()"
    )
    assert (colours.startswith("rgb(15, 18, 22)")) == dark
