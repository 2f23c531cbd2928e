"""A request whose client leaves, or whose time is over, leaves the model to others, whatever its search."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_runs import configure, save_run, shaken, vocabulary
from starlette.testclient import TestClient

import attnkit
from attnkit.decoding.stopping import StopFlags
from attnkit.models.gpt import Gpt
from attnkit.serving import calls, schemas
from attnkit.serving.app import Service
from attnkit.serving.limits import Limits, RefusedError
from attnkit.serving.models import Models, ServedModel

LONG = 8000  #: tokens of each translation: minutes of work
LIMITS = Limits(max_texts=512, max_new_tokens=LONG)
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "num_hypotheses": 2},
    "rules": {"beam_size": 4, "repetition_penalty": 1.2},
    "samples": {"sampling": True, "seed": 3},
    "weights": {"beam_size": 3, "attention": True},
    "glossary": {"beam_size": 2, "glossary": {"5": "8"}},
}
pytestmark = pytest.mark.filterwarnings("ignore:this run was not trained to read terms")


@pytest.fixture(scope="module")
def models(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Models:
    torch.manual_seed(6)
    words, folder = vocabulary("bpe"), tmp_path_factory.mktemp("served")
    config = configure("clm", words)
    gpt = save_run(folder / "gpt", config, shaken(Gpt(config.model, words.vocab_size)), words)
    return Models([f"en:de={trained}", f"gpt={gpt}"], LIMITS, device="cpu", precision="float32", threads=2)


async def until(is_so: Any) -> None:
    """Wait, generously: machines differ."""
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end, "still at work on what nobody waits for"
        await asyncio.sleep(0.02)


def is_running(model: ServedModel) -> bool:
    return bool(model.batcher._running)


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", SEARCHES)
def test_a_search_ends_when_its_client_leaves(models: Models, trained: Path, way: str) -> None:
    model = models.by_name["en-de"]
    fields = {"text": [f"{n} 5 {n % 7}" for n in range(300)], "min_length": LONG - 1, "max_length": LONG}
    slow = schemas.TranslateBody.model_validate(fields | SEARCHES[way])
    short = schemas.TranslateBody.model_validate({"text": "1 2 3", **SEARCHES[way]})

    async def run() -> Any:
        expected = await calls.translate(models, short)
        left = asyncio.create_task(calls.translate(models, slow))
        await until(lambda: is_running(model))
        await asyncio.sleep(0.5)  # beyond the start of the search
        assert is_running(model) and not left.done()
        left.cancel()
        await until(lambda: not is_running(model))
        return expected, await calls.translate(models, short)

    expected, found = asyncio.run(run())
    assert found == expected


def test_a_generation_ends_when_its_client_leaves(models: Models) -> None:
    model = models.by_name["gpt"]
    fields = {"prompt": ["a b"] * 60, "max_new_tokens": LONG, "temperature": 1.0, "n": 16}

    async def run() -> None:
        left = asyncio.create_task(calls.generate(models, schemas.GenerateBody.model_validate(fields)))
        await until(lambda: is_running(model))
        await asyncio.sleep(0.3)
        left.cancel()
        await until(lambda: not is_running(model))

    asyncio.run(run())


def test_the_end_of_its_time_ends_a_search_as_well(trained: Path) -> None:
    limits = Limits(max_new_tokens=LONG, seconds=0.7)
    models = Models([f"en:de={trained}"], limits, device="cpu", precision="float32", threads=1)
    body = schemas.TranslateBody.model_validate({"text": ["1 2"] * 300, "min_length": LONG - 1, "max_length": LONG})

    async def run() -> None:
        with pytest.raises(RefusedError) as refused:
            await calls.translate(models, body)
        assert refused.value.status == 504
        await until(lambda: not is_running(models.by_name["en-de"]))

    asyncio.run(run())
    models.close(5)
    assert not any(thread.is_alive() for thread in models.by_name["en-de"].batcher._threads)


def test_closing_stops_what_runs_when_the_time_is_over(trained: Path) -> None:
    limits = Limits(max_new_tokens=LONG)
    models = Models([f"en:de={trained}"], limits, device="cpu", precision="float32", threads=1)
    body = schemas.TranslateBody.model_validate({"text": ["1 2"] * 300, "min_length": LONG - 1, "max_length": LONG})

    async def run() -> None:
        slow = asyncio.create_task(calls.translate(models, body))
        await until(lambda: is_running(models.by_name["en-de"]))
        await asyncio.get_running_loop().run_in_executor(None, models.close, 0.3)
        with pytest.raises(RefusedError) as refused:
            await slow
        assert refused.value.status == 503

    asyncio.run(run())
    assert not any(thread.is_alive() for thread in models.by_name["en-de"].batcher._threads)


def test_lines_that_go_on_have_the_texts_that_they_have_alone(trained: Path) -> None:
    translator, flags = attnkit.Translator.load(trained, device="cpu", threads=1), StopFlags(40)
    lines = [f"{n} {n % 9} 4 {n % 5}" for n in range(40)]
    for way in ({"beam_size": 3}, {"beam_size": 3, "no_repeat_ngram_size": 3}):
        translator.set_stops(None)
        expected = translator.translate(lines, **way)
        for number in range(0, 40, 2):
            flags.set(number)
        translator.set_stops(flags)
        assert translator.translate(lines, **way)[1::2] == expected[1::2]
    whole = StopFlags()
    whole.set_all()
    translator.set_stops(whole)
    assert str(translator.translate_document("<p>one two</p>", "html")) == "<p></p>"


def test_the_end_of_the_service_ends_streams(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    client = TestClient(Service(models).app(), base_url="http://localhost")
    body = {"prompt": "a b", "max_new_tokens": LONG, "temperature": 1.0, "stream": True}
    monkeypatch.setattr(models, "is_stopped", True)
    lines = [line for line in client.post("/v1/generate", json=body).text.splitlines() if line]
    assert json.loads(lines[-1].removeprefix("data: ")) == {"error": "the service is shutting down"}
    assert len(lines) < 100
