"""Scores, predictions, masks and vectors end between batches when nobody waits for them; those of others stay."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import attnkit
from attnkit.decoding.stopping import StopFlags
from attnkit.serving import calls
from attnkit.serving import models as served
from attnkit.serving.limits import RefusedError
from attnkit.serving.models import Models, compute_in_slices
from attnkit.serving.schemas import EmbedBody, FillMaskBody, PredictBody

TEXTS = [f"the lazy dog number {n} sleeps" + " the fox" * (n % 3) for n in range(12)]
Ask = Callable[[Models, list[str]], Awaitable[dict[str, Any]]]
ASKED: dict[str, tuple[str, str, Ask]] = {
    "classes": ("mood", "predict", lambda models, texts: calls.predict(models, PredictBody(model="mood", text=texts))),
    "tags": ("names", "predict", lambda models, texts: calls.predict(models, PredictBody(model="names", text=texts))),
    "vectors": ("bert", "embed", lambda models, texts: calls.embed(models, EmbedBody(model="bert", text=texts))),
    "masks": (
        *("bert", "fill"),
        lambda models, texts: calls.fill_mask(models, FillMaskBody(text=[f"{text} [MASK]" for text in texts])),
    ),
}


def parts(tree: Any) -> tuple[str, list[float]]:
    """Return plain data without its numbers, and these."""
    numbers: list[float] = []
    found = json.loads(json.dumps(tree), parse_float=lambda text: numbers.append(float(text)))
    return json.dumps(found), numbers


@pytest.mark.parametrize("way", ASKED)
def test_slices_that_nobody_waits_for_are_not_computed(
    models: Models, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests share a batch; one leaves during the first slice, and the other has all its results."""
    name, method, ask = ASKED[way]
    model, begun, gone = models.by_name[name], threading.Event(), threading.Event()
    expected = asyncio.run(ask(models, TEXTS[6:]))
    compute, computed = getattr(type(model.model), method), list[str]()

    def slow(self: Any, texts: Sequence[str], **options: Any) -> Any:
        computed.extend(texts)
        begun.set()
        assert gone.wait(20)
        return compute(self, texts, **options)

    monkeypatch.setattr(type(model.model), method, slow)
    monkeypatch.setattr(served, "SLICE", 60)

    async def run() -> dict[str, Any]:
        left, stays = (asyncio.create_task(ask(models, part)) for part in (TEXTS[:6], TEXTS[6:]))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        left.cancel()
        await asyncio.sleep(0.05)
        gone.set()
        return await stays

    (text, numbers), (expected_text, expected_numbers) = parts(asyncio.run(run())), parts(expected)
    assert text == expected_text and numbers == pytest.approx(expected_numbers, abs=1e-5)  # padding changes rounding
    of_the_other = [text for text in computed if text.startswith(tuple(TEXTS[:6]))]
    assert len(of_the_other) < 6, "no more than those of the first slice"


@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_a_score_ends_between_batches(runs: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines whose flags are set cost no further batch; the others have the scores that they have alone."""
    model = attnkit.load(runs[name], device="cpu")
    assert isinstance(model, attnkit.MaskedLM | attnkit.CausalLM)
    expected, flags = model.score(TEXTS), StopFlags(len(TEXTS))
    network, n_rows = model._opened.model, list[int]()
    hidden = type(network).hidden

    def count(self: Any, ids: Any, *arguments: Any, **options: Any) -> Any:
        n_rows.append(len(ids))
        for number in range(0, len(TEXTS), 2):
            flags.set(number)
        return hidden(self, ids, *arguments, **options)

    monkeypatch.setattr(type(network), "hidden", count)
    model.score(TEXTS)
    whole, n_batches = sum(n_rows), len(n_rows)
    assert n_batches > 2
    n_rows.clear()
    flags = StopFlags(len(TEXTS))
    model.set_stops(flags)
    found = model.score(TEXTS)
    assert found[1::2] == expected[1::2] and found != expected
    assert sum(n_rows) < whole
    n_rows.clear()
    flags.set_all()
    assert [one.log_prob for one in model.score(TEXTS)] == [0.0] * len(TEXTS) and n_rows == []


def test_scores_of_pairs_end_between_batches(trained: Path) -> None:
    translator, flags = attnkit.Translator.load(trained, device="cpu", threads=1), StopFlags(40)
    src, tgt = [f"{n} 2" for n in range(40)], [f"2 {n}" for n in range(40)]
    expected = translator.score(src, tgt)
    for number in range(0, 40, 2):
        flags.set(number)
    translator.set_stops(flags)
    found = translator.score(src, tgt)
    assert [one.log_prob for one in found[1::2]] == pytest.approx([one.log_prob for one in expected[1::2]], abs=1e-5)
    assert [(one.log_prob, one.n_tokens) for one in found[::2]] == [(0.0, 0)] * 20


def test_slices_have_similar_lengths_and_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "SLICE", 10)
    items, slices = ["x" * n for n in (3, 30, 1, 4, 2, 9, 3)], list[list[int]]()

    def compute(own: Sequence[str]) -> list[int]:
        slices.append([len(item) for item in own])
        return slices[-1]

    told = list[tuple[int, int]]()
    assert compute_in_slices(compute, items, StopFlags(7), lambda *one: told.append(one)) == list(map(len, items))
    assert slices == [[1, 2, 3, 3], [4], [9], [30]]
    assert told == [(2, 1), (4, 2), (0, 3), (6, 3), (3, 4), (5, 9), (1, 30)], "slice by slice"
    flags = StopFlags(7)
    flags.set(1)
    assert compute_in_slices(compute, items, flags, lambda *one: None)[1] is None and [30] not in slices[4:]


def test_the_end_of_the_time_of_a_prediction_is_told(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    batcher = models.by_name["mood"].batcher
    monkeypatch.setattr(batcher, "_limits", served.replace(batcher._limits, seconds=0.2))
    monkeypatch.setattr(served, "SLICE", 60)
    compute, computed = type(models.by_name["mood"].model).predict, list[str]()

    def slow(self: Any, texts: Sequence[str], **options: Any) -> Any:
        computed.extend(texts)
        threading.Event().wait(0.3)
        return compute(self, texts, **options)

    monkeypatch.setattr(type(models.by_name["mood"].model), "predict", slow)

    async def run() -> None:
        with pytest.raises(RefusedError) as refused:
            await calls.predict(models, PredictBody(model="mood", text=TEXTS))
        assert refused.value.status == 504

    asyncio.run(run())
    while batcher._running:
        threading.Event().wait(0.01)
    assert len(computed) < len(TEXTS)
