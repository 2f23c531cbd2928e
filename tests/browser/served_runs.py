"""Servers and runs for the tests of the served page, and what a person does with the page.

Runs have words of two scripts, words that are markup, or another task.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

for _folder in ("formats", "tasks"):
    sys.path.append(str(Path(__file__).parents[1] / _folder))

import finetuned  # noqa: E402
import torch  # noqa: E402
from chromium import Browser  # noqa: E402
from hub_runs import configure, save_run, shaken, vocabulary  # noqa: E402

from attnkit.models.bert import Bert  # noqa: E402
from attnkit.models.gpt import Gpt  # noqa: E402

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


def task_runs(folder: Path) -> dict[str, Path]:
    """Write a run of random weights of each task with a form, labels of markup among them."""
    found = {}
    for name, task in (("bert", "mlm"), ("gpt", "clm")):
        torch.manual_seed(6)
        words = vocabulary("bpe")
        config = configure(task, words)
        model = (Bert if task == "mlm" else Gpt)(config.model, words.vocab_size)
        found[name] = save_run(folder / name, config, shaken(model), words)
    found["mood"] = finetuned.random_run(folder / "mood", "text-classification", [HOSTILE[1], "good"])
    found["names"] = finetuned.random_run(folder / "names", "token-classification", [f"B-{HOSTILE[0]}", "O"])
    found["answers"] = finetuned.random_run(folder / "answers", "question-answering")
    return found


@contextmanager
def served(*arguments: str | Path, **variables: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server with variables of the environment; yield its address and process."""
    argv = [sys.executable, "-m", "attnkit", "serve", *map(str, arguments), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(
        [*argv, "--threads", "1"], stderr=subprocess.PIPE, text=True, env={**os.environ, **variables}
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"listening on (http://\S+)", line):
                break
        else:
            raise AssertionError("the server has ended")
        yield found[1], process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


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
