"""``fill-mask``, ``generate`` and ``compare-lm`` as a user calls them."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnkit.cli import compare_lm, fill_mask, generate
from attnkit.text.tokenizer import IncrementalDecoder

Call = Callable[..., tuple[int, str, str]]
LINES = "the cat\n\n  \nüñí 4\r\nto see it \nlast"


@pytest.fixture(scope="module")
def runs(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("language")
    for name, task in {"bert": "masked tokens", "back": "next words", "gpt": "next words"}.items():
        config = workshop.configure_task(task, limits__max_steps=4)
        workshop.train(
            config.model_copy(update={"direction": "left-to-right"}) if name == "gpt" else config, folder / name
        )
    return {name: folder / name for name in ("bert", "gpt", "back")}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(text: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text), isatty=lambda: False))

    return give


def documents(text: str | None) -> list[list[str]]:
    """Return the commands among the examples of a docstring, without what a shell does for them."""
    return [shlex.split(line.split("<")[0])[1:] for line in re.findall(r"^ +(attnkit .+)$", text or "", re.MULTILINE)]


@pytest.mark.parametrize("module", [fill_mask, generate, compare_lm], ids=lambda module: module.__name__.split(".")[-1])
def test_the_examples_of_the_help_work(
    call: Call, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, given: Callable[[bytes], None], module: Any
) -> None:
    monkeypatch.chdir(runs["bert"].parent)
    examples = documents(module.command.__doc__)
    assert len(examples) >= 2
    for words in examples:
        given(b"the [MASK] film\nit was a [MASK]\n")
        name = "gpt" if words[0] == "generate" else "bert"
        code, out, err = call(*(name if word == "run" else word for word in words))
        assert (code, err) == (0, "") and out.strip(), err
        assert all(len(line) <= 80 for line in out.splitlines()) or "--json" in words or words[0] == "generate"


def test_guesses_for_lines_of_standard_input(call: Call, runs: dict[str, Path], given: Callable[[bytes], None]) -> None:
    text = "the [MASK] film\r\n[MASK]\nü [MASK] and [MASK].".encode()
    given(text)
    code, out, err = call("fill-mask", runs["bert"], "--json", "--top", 3)
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and "carriage return" in err
    assert [one["text"] for one in found] == ["the [MASK] film", "[MASK]", "ü [MASK] and [MASK]."]
    assert [[len(guesses) for guesses in one["masks"]] for one in found] == [[3], [3], [3, 3]]
    for one in found:
        for guesses in one["masks"]:
            values = [guess["probability"] for guess in guesses]
            assert values == sorted(values, reverse=True) and 0 < sum(values) < 1
    given(text)
    code, out, _ = call("fill-mask", runs["bert"], "--fill")
    assert code == 0 and out.split("\n") == [*(one["filled"] for one in found), ""]
    given(text)
    code, out, _ = call("fill-mask", runs["bert"], "--top", 2)
    assert code == 0 and out.splitlines()[0] == "the [MASK] film" and out.count("%") == 8 and "[MASK] 2" in out


def test_lines_without_a_mask_stay_and_those_before_a_fault_are_filled(
    call: Call, runs: dict[str, Path], given: Callable[[bytes], None]
) -> None:
    text = b"the [MASK] film\n\nno mask\n[MASK]\n"
    for options in ["--fill"], ["--json"], []:
        given(text)
        code, out, err = call("fill-mask", runs["bert"], *options)
        assert code == 0 and "2 of 4 lines have no [MASK]" in err
        lines = out.split("\n")[:-1]
        if options == ["--json"]:
            found = [json.loads(line) for line in lines]
            assert [len(one["masks"]) for one in found] == [1, 0, 0, 1] and found[2]["filled"] == "no mask"
            assert all(round(guess["probability"], 6) == guess["probability"] for guess in found[0]["masks"][0])
        elif options:
            assert len(lines) == 4 and lines[1:3] == ["", "no mask"] and "[MASK]" not in out
        else:
            assert [line for line in lines if "%" not in line] == ["the [MASK] film", "", "no mask", "[MASK]"]
            assert out.count("%") == 10
    given(text + b"the " * 600 + b"[MASK]\nlast\n")
    code, out, err = call("fill-mask", runs["bert"], "--fill")
    assert code == 3 and len(out.split("\n")) == 5 and "standard input, line 5" in err and "maximum of 512" in err


def test_streamed_texts_of_several_stay_on_their_lines(
    call: Call, runs: dict[str, Path], given: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: IncrementalDecoder, ids: list[int]) -> str:
        return "a\nb "

    monkeypatch.setattr(IncrementalDecoder, "add", broken)
    given(b"one\ntwo\n")
    ask = ["generate", runs["gpt"], "--max-new-tokens", "2", "--stream"]
    code, out, _ = call(*ask)
    assert code == 0 and len(out.split("\n")) == 3 and out.startswith("a b ")
    code, out, _ = call(*ask[:2], "one", *ask[2:])
    assert code == 0 and out.startswith("a\nb "), "one text alone has its own lines"


@pytest.mark.parametrize("options", [[], ["--n", "2"], ["--json"], ["--stream"]])
def test_every_prompt_gets_its_lines(
    call: Call, runs: dict[str, Path], given: Callable[[bytes], None], options: list[str]
) -> None:
    given(LINES.encode())
    code, out, err = call("generate", runs["gpt"], "--max-new-tokens", "6", *options)
    prompts, lines = ["the cat", "", "  ", "üñí 4", "to see it ", "last"], out.split("\n")[:-1]
    assert code == 0 and "1 lines of standard input ended in a carriage return" in err
    if "--json" in options:
        found = [json.loads(line) for line in lines]
        assert [one["prompt"] for one in found] == prompts
        assert all(
            len(text["pieces"]) <= 6 and text["end"] in ("end", "length") for one in found for text in one["texts"]
        )
        assert all(text["text"].startswith(one["prompt"].rstrip()) for one in found for text in one["texts"])
    else:
        n = 2 if options[:1] == ["--n"] else 1
        begins = [prompt.rstrip(" ") for prompt in prompts for _ in range(n)]
        assert len(lines) == 6 * n
        assert [line.startswith(begin) for line, begin in zip(lines, begins, strict=True)] == [True] * 6 * n


def test_what_is_streamed_is_what_is_printed(call: Call, runs: dict[str, Path]) -> None:
    ask = ["generate", runs["gpt"], "the film", "--temperature", "1.4", "--n", "3"]
    (code, whole, _), (again, streamed, _) = call(*ask), call(*ask, "--stream")
    assert code == again == 0
    assert whole.splitlines() == streamed.replace("\n", " ").replace(" the film", "\nthe film").rstrip().splitlines()


def test_the_end_of_a_text_that_is_written_from_right_to_left(call: Call, runs: dict[str, Path]) -> None:
    code, out, _ = call("generate", runs["back"], "came home.", "--json", "--seed", "2")
    text = json.loads(out)["texts"][0]
    assert code == 0 and text["text"].endswith("came home.") and text["text"].startswith(text["made"])
    code, _, err = call("generate", runs["back"], "came home.", "--stream")
    assert code == 2 and "right-to-left model cannot stream" in err


def test_both_models_side_by_side(call: Call, runs: dict[str, Path]) -> None:
    code, out, err = call("compare-lm", runs["gpt"], runs["bert"], "the film was about people", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and list(found) == ["text", "bert", "gpt"]
    assert found["bert"]["run"] == str(runs["bert"]) and found["gpt"]["sees"] == "those before it"
    code, out, _ = call("compare-lm", runs["bert"], runs["gpt"], "the film was about some people who went home.")
    lines = [line for line in out.splitlines() if not line.startswith(("BERT", "GPT"))]  # which name folders
    assert code == 0 and max(map(len, lines)) <= 80
    assert out.count("BERT (") == out.count("GPT (") == 1 and "pseudo-perplexity" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fill-mask", "none", "[MASK]"], 4, "none"),
        (["fill-mask", "gpt", "[MASK]"], 4, "use attnkit generate"),
        (["fill-mask", "bert", "nothing"], 3, "no [MASK] in this line"),
        (["fill-mask", "bert", "the " * 600 + "[MASK]"], 3, "maximum of 512"),
        (["fill-mask", "bert", "[MASK]", "--json", "--fill"], 2, "--fill"),
        (["fill-mask", "bert", "[MASK]", "--top", "0"], 2, "--top"),
        (["generate", "bert", "x"], 4, "use attnkit fill-mask"),
        (["generate", "gpt", "x", "--temperature", "0", "--n", "2"], 2, "are identical"),
        (["generate", "gpt", "x", "--top-p", "2"], 2, "--top-p"),
        (["generate", "gpt", "x", "--temperature", "-1"], 2, "--temperature"),
        (["generate", "gpt", "x", "--window", "25"], 2, "exceeds the model's 24 positions"),
        (["generate", "gpt", "x", "--json", "--stream"], 2, "--stream"),
        (["compare-lm", "bert", "bert", "x"], 4, "'mlm', not a language model"),
        (["compare-lm", "bert", "gpt", " "], 3, "no text"),
        (["compare-lm", "bert", "gpt"], 2, "TEXT"),
    ],
)
def test_errors_are_short_and_say_what_to_do(
    call: Call, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(runs["bert"].parent)
    found, out, err = call(*words)
    assert (found, out) == (code, "") and said in err, err
    assert len(err.strip().splitlines()) <= 3 and "Traceback" not in err
