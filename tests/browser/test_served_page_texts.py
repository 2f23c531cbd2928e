"""Texts on the served page: two directions, sentences of a line, markup that stays text, and forms of other tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from chromium import Browser
from served_runs import HEBREW, HOSTILE, N_WORDS, STATE, WORDS, choose_model, train_words, translated, until
from server_process import serving
from task_runs import task_runs

import attnkit

HOOKED = "[...document.querySelectorAll('*')].some((e) => e.getAttributeNames().some((name) => /^on/.test(name)))"
STRANGE = "main :is(img, svg, script, iframe, object, embed, form, base, link, style, b, i)"
MARKUP = [*HOSTILE, "<b>&lt;i&gt;</b>", '"><script>pwned()</script>', "<!--", "]]>", "\\u003cscript\\u003e", "{{7*7}}"]


@pytest.fixture(scope="module")
def runs(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by name: a name may be markup as well, as it is that of a folder."""
    folder = tmp_path_factory.mktemp("served")
    train_words(workshop, folder / "hebrew", HEBREW)
    train_words(workshop, folder / "hostile", dict(zip(HOSTILE, HOSTILE[1:] + HOSTILE[:1], strict=True)))
    named = folder / "<img src=x onerror=pwned()>"
    (folder / "hostile").rename(named)
    lines = folder / "lines"
    workshop.train(workshop.configure_task("lines"), lines)
    workshop.train(workshop.configure_task("vectors"), folder / "rows")
    return {
        "hebrew": folder / "hebrew",
        "hostile": named,
        "lines": lines,
        "rows": folder / "rows",
        **task_runs(folder, (HOSTILE[1], "good"), (f"B-{HOSTILE[0]}", "O")),
    }


@pytest.fixture(scope="module")
def address(runs: dict[str, Path]) -> Iterator[str]:
    named = [f"{name}={path}" for name, path in runs.items() if name not in ("hebrew", "hostile")]
    with serving(f"en:he={runs['hebrew']}", runs["hostile"], *named) as (found, _):
        yield found


def ask(address: str, path: str, body: dict[str, Any]) -> Any:
    """Return what the service answers to a program."""
    given = Request(f"{address}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(given, timeout=60) as response:
        return json.load(response)


def harmless(browser: Browser) -> None:
    assert browser.ask("typeof pwned") == "undefined"
    assert browser.ask("document.title") == "attnkit"
    assert browser.ask(f"document.querySelectorAll({STRANGE!r}).length") == 0
    assert browser.ask(HOOKED) is False
    assert [url for url in browser.requests() if "/v1/" not in url] == []
    assert browser.complaints() == []


def test_hebrew_runs_from_right_to_left(browser: Browser, address: str) -> None:
    """Words follow one another leftwards; English ones beside one another within them rightwards."""
    browser.visit(address)
    translated(browser, "the dog sees the cat\njazz radio")
    browser.ask(  # whatever the model says
        "document.querySelectorAll('#target p')[0].querySelectorAll('.word').forEach((word, i) => {"
        " word.textContent = ['כלב', 'jazz', 'radio'][i] ?? 'חתול'; })"
    )
    words = "[...document.querySelector('#target p').querySelectorAll('.word')]"
    found = browser.ask(f"{words}.map((word) => word.getBoundingClientRect().x)")
    assert found[0] > found[2] > found[1], "כלב jazz radio: the English words in their own order"
    directions = "[...document.querySelectorAll('#target p')].map((line) => getComputedStyle(line).direction)"
    assert browser.ask(directions)[0] == "rtl"
    browser.ask("document.querySelector('.word').focus()")
    for key, place in (("ArrowLeft", "1"), ("ArrowLeft", "2"), ("ArrowRight", "1")):
        browser.key(key)
        assert browser.ask("document.activeElement.dataset.place") == place, key
    browser.ask("document.getElementById('source').value = 'כלב jazz'; document.getElementById('source').dir")
    assert browser.ask("getComputedStyle(document.getElementById('source')).direction") == "rtl"
    assert browser.ask("getComputedStyle(document.getElementById('heading')).direction") == "ltr"


def test_a_line_of_several_sentences_has_the_attention_of_each(browser: Browser, address: str) -> None:
    text = "The dog runs. The cat runs. The dog sees the house runs."
    browser.visit(address)
    translated(browser, text)
    line = ask(address, "v1/translate", {"model": "en-he", "text": text, "num_hypotheses": 4, "attention": True})
    line = line["translations"][0]["lines"][0]
    assert len(line["attention"]) == 3 and len(line["tokens"]) == browser.ask(N_WORDS), "a word is a token here"
    place = 0
    for number, rows in enumerate(line["attention"]):
        before = sum(len(others[0]) - 1 for others in line["attention"][:number])
        for row in rows:
            expected = [0.0] * len(text.split())
            expected[before : before + len(row) - 1] = row[:-1]
            browser.ask(f"document.querySelectorAll('.word')[{place}].click()")
            pressed = f"document.querySelectorAll('.word')[{place}].getAttribute('aria-pressed') === 'true'"
            until(browser, f"{pressed} && {STATE}.includes('attends')")
            titles = "[...document.querySelectorAll('#source-words span')].map((span) => span.title)"
            assert browser.ask(titles) == [f"{round(100 * weight)} %" for weight in expected]
            place += 1
    assert place == len(line["tokens"])


def test_markup_is_text_wherever_it_is_shown(browser: Browser, address: str, runs: dict[str, Path]) -> None:
    """In the text, its translation, alternatives, attention, names of models, labels of classes, and errors."""
    name = runs["hostile"].name
    browser.visit(address)
    titles = browser.ask("[...document.querySelectorAll('#pair option')].map((option) => option.textContent)")
    assert titles == ["English – Hebrew", name]
    choose_model(browser, name)
    translated(browser, "\n".join(MARKUP))
    words = browser.ask(WORDS).replace("|", " ").split()
    assert set(words) <= set(HOSTILE) and len(set(words)) > 1, "words that a markup parser would not leave alone"
    browser.ask("document.querySelector('.word').click()")
    until(browser, "document.querySelector('#choices button')?.textContent.endsWith('…')")
    assert browser.ask("document.getElementById('source-words').textContent") == MARKUP[0]
    assert browser.ask(f"{STATE}.includes({MARKUP[0]!r})")
    harmless(browser)
    browser.ask("document.querySelector('#choices button').click()")
    until(browser, "!document.querySelector('.old')")
    harmless(browser)
    browser.ask(f"document.querySelector('#pair').selectedOptions[0].value = {MARKUP[11]!r}")
    browser.ask("document.getElementById('source').dispatchEvent(new Event('input'))")
    said = until(browser, "document.querySelector('#state.problem')?.textContent")
    assert said.startswith(f"no model '{MARKUP[11]}'")
    browser.events[:] = [event for event in browser.events if "status of 404" not in str(event)]
    harmless(browser)


def fill(browser: Browser, number: int, *texts: str) -> str:
    """Write texts into a form, send it by keyboard, and return what it shows."""
    section = f"document.querySelectorAll('#forms section')[{number}]"
    for place, text in enumerate(texts):
        browser.ask(f"{section}.querySelectorAll('textarea')[{place}].select()")
        browser.ask(f"{section}.querySelectorAll('textarea')[{place}].focus()")
        browser.write(text)
    browser.key("Tab")
    assert browser.ask(f"document.activeElement === {section}.querySelector('button')")
    browser.key("Enter")
    shown = f"{section}.querySelector('pre').textContent"
    until(browser, f"{shown} && {shown} !== 'Working'")
    return str(browser.ask(shown))


def number_of(browser: Browser, name: str) -> int:
    heads = browser.ask("[...document.querySelectorAll('#forms h2')].map((head) => head.textContent)")
    (found,) = [number for number, head in enumerate(heads) if head.endswith(f": {name}")]
    return int(found)


def test_each_task_has_a_form(browser: Browser, address: str, runs: dict[str, Path]) -> None:
    """What forms show are the numbers of the service; labels of markup are text."""
    browser.visit(address, 390)
    names = ("lines", "rows", "bert", "gpt", "mood", "names", "answers", "words")
    forms = {name: number_of(browser, name) for name in names}
    assert sorted(forms.values()) == list(range(8))

    masks = ask(address, "v1/fill-mask", {"text": ["the [MASK] dog"], "top": 5})["results"][0]["masks"][0]
    expected = "\n".join(f"{100 * one['probability']:.1f} %  {one['text']}" for one in masks)
    assert fill(browser, forms["bert"], "the [MASK] dog") == expected
    assert "no [MASK]" in fill(browser, forms["bert"], "<b>none</b>")

    found = ask(address, "v1/predict", {"model": "mood", "text": [MARKUP[0]]})["predictions"][0]["probabilities"]
    assert set(found) == {HOSTILE[1], "good"}
    expected = "\n".join(f"{100 * share:.1f} %  {label}" for label, share in found.items())
    assert fill(browser, forms["mood"], MARKUP[0]) == expected

    tags = ask(address, "v1/predict", {"model": "names", "text": [" ".join(HOSTILE)]})["predictions"][0]
    expected = "\n".join(f"{word}  {tag}" for word, tag in zip(tags["words"], tags["tags"], strict=True))
    assert fill(browser, forms["names"], " ".join(HOSTILE)) == expected

    asked = {"question": ["who sleeps?"], "context": ["ada lives in london, paris sleeps"]}
    answer = ask(address, "v1/predict", asked)["predictions"][0]
    expected = f"{answer['text'] or 'no answer'}  {100 * answer['probability']:.1f} %"
    assert fill(browser, forms["answers"], *asked["question"], *asked["context"]) == expected

    (vector,) = ask(address, "v1/embed", {"model": "lines", "text": ["1 2 3"]})["embeddings"]
    assert fill(browser, forms["lines"], "1 2 3") == " ".join(f"{value:.4f}" for value in vector)

    width = attnkit.load(runs["rows"], device="cpu")._opened.model.mean.numel()
    numbers = ([0.5, -1.0, 2.0] * width)[:width]
    (vector,) = ask(address, "v1/embed", {"model": "rows", "vector": [numbers]})["embeddings"]
    assert fill(browser, forms["rows"], ", ".join(map(str, numbers))) == " ".join(f"{value:.4f}" for value in vector)
    assert "valid number" in fill(browser, forms["rows"], "one two")

    (near,) = ask(address, "v1/similar", {"word": ["dog"], "top": 10})["results"]
    assert fill(browser, forms["words"], " dog") == "\n".join(f"{one['similarity']:.4f}  {one['word']}" for one in near)
    assert "no vector for '<b>cat</b>'" in fill(browser, forms["words"], "<b>cat</b>")

    whole = ask(address, "v1/generate", {"prompt": "the lazy", "max_new_tokens": 60})["texts"][0]["text"]
    fill(browser, forms["gpt"], "the lazy")
    until(browser, f"document.querySelectorAll('#forms pre')[{forms['gpt']}].textContent === {json.dumps(whole)}")
    assert browser.ask("document.documentElement.scrollWidth") <= 390
    browser.events[:] = [event for event in browser.events if "status of 400" not in str(event)]
    harmless(browser)


def test_a_stream_that_breaks_off_or_fails_is_told(browser: Browser, address: str) -> None:
    """The answer has begun when a generation fails: the error comes as the last of its events."""
    browser.visit(address)
    number = number_of(browser, "gpt")
    for end, message in (('data: {"error": "<b>of the model</b>"}\\n\\n', "<b>of the model</b>"), ("", "not complete")):
        body = f'data: {{"text": "a"}}\\n\\n{end}'
        browser.ask(f"(() => {{ window.fetch = async () => new Response('{body}'); }})()")
        section = f"document.querySelectorAll('#forms section')[{number}]"
        browser.ask(f"{section}.querySelector('button').click()")
        said = until(browser, f"{section}.querySelector('pre.problem')?.textContent")
        assert said.startswith("a\n") and message in said
    harmless(browser)


def test_a_form_that_is_sent_again_shows_the_last_answer(browser: Browser, address: str) -> None:
    browser.visit(address)
    number = number_of(browser, "gpt")
    section = f"document.querySelectorAll('#forms section')[{number}]"
    for text in ("the lazy", "the fox"):
        browser.ask(f"{section}.querySelector('textarea').value = {text!r}; {section}.querySelector('button').click()")
    whole = ask(address, "v1/generate", {"prompt": "the fox", "max_new_tokens": 60})["texts"][0]["text"]
    until(browser, f"{section}.querySelector('pre').textContent === {json.dumps(whole)}")
    time.sleep(0.3)
    assert browser.ask(f"{section}.querySelector('pre').textContent") == whole
