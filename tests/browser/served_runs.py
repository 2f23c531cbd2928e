"""Servers and runs for the tests of the served page, and what a person does with the page.

Runs have words of two scripts, words that are markup, or another task.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "serving"))

from chromium import Browser

WORDS = "[...document.querySelectorAll('#target p')].map((line) => line.textContent).join('|')"
N_WORDS = "document.querySelectorAll('.word').length"
STATE = "document.getElementById('state').textContent"
HEBREW = {
    "dog": "כלב",
    "cat": "חתול",
    "house": "בית",
    "sees": "רואה",
    "the": "ה",
    "runs.": "רץ.",
    "The": "ה",
    "radio": "radio",
    "jazz": "jazz",
}
HOSTILE = (
    "<script>pwned()</script>",
    "<img/src=x/onerror=pwned()>",
    "</script><script>pwned()</script>",
    "<svg/onload=pwned()>",
    "&lt;b&gt;",
    "&quot;",
    '"onmouseover="pwned()"',
    "'onfocus='pwned()'",
    "`${pwned()}`",
    "javascript:pwned()",
)


def train_words(workshop: Any, folder: Path, words: dict[str, str], **changes: Any) -> Path:
    """Train a translator of sentences of these words, word by word."""
    rng, corpus = random.Random(4), folder.with_name(f"{folder.name}.corpus")
    corpus.mkdir(parents=True)
    for name, n in (("train", 200), ("valid", 10)):
        lines = [rng.choices(list(words), k=rng.randint(1, 6)) for _ in range(n)]
        for side, texts in (("src", lines), ("tgt", [[words[word] for word in line] for line in lines])):
            (corpus / f"{name}.{side}").write_text("".join(" ".join(line) + "\n" for line in texts), encoding="utf-8")
    given = {"vocabulary__kind": "word", "limits__max_steps": 60, "evaluation__every_steps": 60}
    config = replace(workshop, corpus=corpus).configure(**{**given, "decoding__min_length": 3, **changes})
    workshop.train(config, folder)
    return folder


def until(browser: Browser, expression: str) -> Any:
    """Return what an expression is in the page, as soon as it is true."""
    for _ in range(400):
        if value := browser.ask(expression):
            return value
        time.sleep(0.05)
    raise AssertionError(f"never true: {expression}; {browser.ask(STATE)}")


def write(browser: Browser, text: str) -> None:
    """Put a text into the page as if it had been typed."""
    change = "source.dispatchEvent(new Event('input'))"
    given = json.dumps(text)
    browser.ask(f"(() => {{ const source = document.getElementById('source'); source.value = {given}; {change}; }})()")


def translated(browser: Browser, text: str) -> None:
    """Put a text into the page and wait for its translation."""
    browser.ask("document.getElementById('target').append(document.createElement('hr'))")  # until it is replaced
    write(browser, text)
    until(browser, f"!document.querySelector('#target hr') && {N_WORDS}")


def choose_model(browser: Browser, name: str) -> None:
    change = "pair.dispatchEvent(new Event('change'))"
    browser.ask(f"(() => {{ const pair = document.getElementById('pair'); pair.value = {name!r}; {change}; }})()")
