"""Texts that continue: against a loop that runs the whole model anew for each word, and against naive distributions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_runs import configure, save_run, shaken, vocabulary

from attnkit.engine.loading import load_model
from attnkit.errors import RunError, UsageError
from attnkit.kernels.jit import is_available
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout
from attnkit.tasks.language_modeling.generate import Generator
from attnkit.tasks.language_modeling.generate import search_config as settings

PROMPTS = ["the quick brown fox", "", "the", "größer als der", "the lazy dog sleeps, the fox doesn't l'homme voit le"]


def save(path: Path, kind: str = "bpe", ends: float = 0.0, **model: Any) -> Path:
    """Save a run of random weights whose texts end now and then."""
    torch.manual_seed(5)
    words = vocabulary(kind)
    config = configure("clm", words, tie_embeddings=False, **model)
    made: Any = shaken(Gpt(config.model, words.vocab_size))
    with torch.no_grad():
        made.output.weight *= 3
        made.output.weight[2] = ends * made.norm.bias / made.norm.bias.square().sum()  # so the end's logit is near it
    return save_run(path, config, made, words)


def generator(run: Path, n_tokens: int, window: int | None = None, **options: Any) -> Generator:
    """Open a run in float64, so that no two ways of computing disagree."""
    opened = load_model(run, "clm", device="cpu")
    config = settings({"max_length": n_tokens, **options})
    return Generator(replace(opened, model=opened.model.double()), config, window)


def allowed(made: Generator) -> torch.Tensor:
    """Return (V,) False at padding, begin and unused entries."""
    ids = torch.arange(made.tokenizer.vocab_size)
    return (ids >= 2) & (ids < made.tokenizer.vocab_size - made.tokenizer.n_unused)


def naive(made: Generator, row: list[int], n_tokens: int, penalty: float = 1.0) -> list[int]:
    """Run the whole model anew for each word, over what a forgetful reader has before him."""
    model: Any = made.model.model
    window, words, begin = made.window, list(row), max(0, len(row) - made.window)
    while len(words) < len(row) + n_tokens and words[-1] != 2:
        if len(words) - begin > window:
            begin = len(words) - window // 2
        with torch.no_grad():
            logits = model.head(model.hidden(torch.tensor([words[begin:]]), PackedLayout.unpacked(1))[0, -1])
        if penalty != 1:
            used = list(set(words))
            logits[used] = torch.where(logits[used] > 0, logits[used] / penalty, logits[used] * penalty)
        words.append(int(logits.masked_fill(~allowed(made), -torch.inf).argmax()))
    return words[len(row) :]


@pytest.mark.parametrize(
    ("model", "window", "penalty"),
    [
        ({}, None, 1.0),
        ({"direction": "right-to-left"}, None, 1.3),
        ({"positions": "rotary"}, 11, 1.0),
        ({"positions": "alibi", "alignment": "additive"}, None, 1.2),
    ],
    ids=str,
)
def test_greedy_texts_are_those_of_a_naive_loop(
    tmp_path: Path, model: dict[str, Any], window: int | None, penalty: float
) -> None:
    """Of 50 tokens where the model sees 40, 16 or 11 of them."""
    prompts = [PROMPTS[0], PROMPTS[1], PROMPTS[4]]
    made = generator(save(tmp_path / "run", **model), 50, window, repetition_penalty=penalty)
    assert made.window == window or made.window == (40 if "positions" not in model else 16)
    for prompt, answer in zip(prompts, made.generate(prompts), strict=True):
        row = made.encode(prompt)
        expected = naive(made, row, 50, penalty)
        text = answer[0]
        ended = expected[-1] == 2
        ids = expected[:-1] if ended else expected
        backwards = made.backwards
        assert text.pieces == made.tokenizer.tokens(reversed(ids) if backwards else ids)
        assert text.end == ("end" if ended else "length")
        whole = [*row[1:], *ids]
        assert text.text == made.tokenizer.decode([whole[::-1] if backwards else whole])[0]
        assert text.text.endswith(prompt) if backwards else text.text == prompt + text.made
        if backwards and not text.made.startswith("\ufffd"):
            assert text.text.startswith(text.made)


def test_some_texts_end_by_themselves(tmp_path: Path) -> None:
    made = generator(save(tmp_path / "run", ends=4.0), 30, temperature=2.0)
    texts = [text for answer in made.generate(PROMPTS, 6) for text in answer]
    assert {text.end for text in texts} == {"end", "length"}
    assert all((text.end == "length") == (len(text.pieces) == 30) for text in texts)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.9, "top_p": 0.95, "repetition_penalty": 1.2}])
def test_prompts_come_out_alike_alone_and_together(tmp_path: Path, options: dict[str, Any]) -> None:
    made = generator(save(tmp_path / "run"), 45, **options)
    together = made.generate(PROMPTS, 3 if options else 1)
    for line, (prompt, answer) in enumerate(zip(PROMPTS, together, strict=True)):
        alone = made.generate([prompt], len(answer), line)[0]
        assert [replace(text, log_prob=0) for text in alone] == [replace(t, log_prob=0) for t in answer]
        assert [t.log_prob for t in alone] == pytest.approx([t.log_prob for t in answer], rel=1e-5)
    if options:
        assert len({text.text for answer in together for text in answer}) == 15
        assert made.generate(PROMPTS[:1], 3, 99)[0] != together[0]


@pytest.mark.skipif(not is_available(), reason="numba is not installed")
@pytest.mark.parametrize("direction", ["left-to-right", "right-to-left"])
def test_compiled_loops_generate_what_torch_does(tmp_path: Path, direction: str) -> None:
    """Texts that never leave the loops beside others that exceed the window."""
    opened, config = load_model(save(tmp_path / "run", direction=direction), "clm", device="cpu"), {"max_length": 37}
    by_torch, made = (Generator(opened, settings(config), engine=engine) for engine in ("torch", "compiled"))
    assert made.compiled is not None
    prompts = [PROMPTS[i % 5] + " fox" * (i % 3) for i in range(20)]
    whole = [made.compiled.can_search_whole(len(made.encode(text)), 37, made.config) for text in prompts]
    assert 5 < sum(whole) < 15
    found, expected = made.generate(prompts), by_torch.generate(prompts)
    assert [text.text for (text,) in found] == [text.text for (text,) in expected]
    assert [text.log_prob for (text,) in found] == pytest.approx([text.log_prob for (text,) in expected], abs=1e-3)
    assert len({text.text for (text,) in found}) == 15
    assert [made.generate([prompt])[0] for prompt in prompts] == found


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_what_is_streamed_is_what_is_generated(tmp_path: Path, kind: str) -> None:
    made = generator(save(tmp_path / "run", kind, ends=4.0), 45, temperature=1.5)
    for line, prompt in enumerate(PROMPTS[1:4]):
        answer = made.generate([prompt], 2, line)[0]
        for number, expected in enumerate(answer):
            told: list[str] = []
            text = made.stream(prompt, told.append, line, number)
            assert replace(text, log_prob=0) == replace(expected, log_prob=0)
            assert "".join(told) == text.text and (len(told) > 4 or len(text.pieces) < 9)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 4},
        {"temperature": 1.8, "top_p": 0.8},
        {"temperature": 1.8, "top_k": 9, "top_p": 0.8},
        {"temperature": 1.0, "repetition_penalty": 1.8},
    ],
    ids=str,
)
def test_samples_follow_the_distribution(tmp_path: Path, options: dict[str, Any]) -> None:
    """The next word of 4,096 texts, against what the definitions make of the model's logits."""
    made = generator(save(tmp_path / "run", "word"), 1, **options)
    prompt = "the fox the dog over"
    model: Any = made.model.model
    row = made.encode(prompt)
    with torch.no_grad():
        logits = model.head(model.hidden(torch.tensor([row]), PackedLayout.unpacked(1))[0, -1]) * 1.0
    penalty = options.get("repetition_penalty", 1.0)
    for id in set(row):
        logits[id] = logits[id] / penalty if logits[id] > 0 else logits[id] * penalty
    logits = (logits / options.get("temperature", 1.0)).masked_fill(~allowed(made), -torch.inf)
    order = logits.argsort(descending=True).tolist()
    kept = order[: options.get("top_k") or len(order)]
    probs = dict(zip(kept, logits[kept].softmax(-1).tolist(), strict=True))
    if "top_p" in options:
        nucleus, held = [], 0.0
        for id in kept:
            if held >= options["top_p"]:
                break
            nucleus.append(id)
            held += probs[id]
        probs = {id: probs[id] / held for id in nucleus}
    n, counts = 4096, Counter[str]()
    for answer in made.generate([prompt] * 4, n // 4):
        counts.update(text.pieces[0] if text.pieces else "</s>" for text in answer)
    names = {id: made.tokenizer.tokens([id])[0] for id in probs}
    assert set(counts) <= set(names.values())
    for id, probability in probs.items():
        sigma = (n * probability * (1 - probability)) ** 0.5
        assert abs(counts[names[id]] - n * probability) <= 4.5 * sigma + 1, (names[id], probability)
    assert len([p for p in probs.values() if p > 0.01]) > 2, "the test needs a choice"


def test_what_asks_for_chance() -> None:
    assert not settings({}).sampling
    for name, value in {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "seed": 2}.items():
        assert settings({name: value}).sampling
    assert settings({}, n=2).sampling
    cold = settings({"temperature": 0.0, "top_k": 3})
    assert (cold.sampling, cold.beam_size) == (False, 1)
    with pytest.raises(UsageError, match="all 2 texts are identical"):
        settings({"temperature": 0}, n=2)
    with pytest.raises(UsageError, match="top_p") as error:
        settings({"top_p": 3.0})
    assert "--top-p" in str(error.value.where)


def test_long_prompts_are_told_and_wide_windows_refused(tmp_path: Path) -> None:
    run = save(tmp_path / "run")
    made = generator(run, 5)
    long = " ".join(["the"] * 60)
    answer = made.generate([long, "the"])[0]
    assert answer[0].text.startswith(long) and len(answer[0].pieces) == 5
    assert made.warnings() == ["a prompt has more tokens than the model's window of 40: the beginning was truncated"]
    assert naive(made, made.encode(long), 5) == made._search([made.encode(long)], [0])[0].ids
    with pytest.raises(UsageError, match="exceeds the model's 40 positions"):
        generator(run, 5, 41)
    with pytest.raises(UsageError, match="at least 2"):
        generator(run, 5, 1)
    with pytest.raises(RunError, match="no such run folder"):
        load_model(tmp_path / "none", "clm")


def test_the_space_that_a_token_brings_is_not_asked_for_twice(tmp_path: Path) -> None:
    made = generator(save(tmp_path / "run"), 5)
    assert made.encode("the fox ") == made.encode("the fox")
    back = generator(save(tmp_path / "back", direction="right-to-left"), 5)
    assert back.encode(" the fox") == back.encode("the fox") == [1, *made.encode("the fox")[:0:-1]]
    letters = generator(save(tmp_path / "letters", "char"), 5)
    assert len(letters.encode("the fox ")) == len(letters.encode("the fox")) + 1
