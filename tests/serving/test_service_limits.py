"""Limits over all requests, and names of models and languages in what the service writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from attnkit.serving import calls, schemas
from attnkit.serving.app import Service
from attnkit.serving.models import Models


def call(service: Service) -> TestClient:
    return TestClient(service.app(), base_url="http://localhost:8000")


@pytest.fixture
def client(models: Models) -> Iterator[TestClient]:
    yield call(Service(models))


def test_an_answer_that_repeats_its_text_too_often_is_refused(client: TestClient) -> None:
    """Each of 100 predictions for each of 200 masks would have the text."""
    refused = client.post("/v1/fill-mask", json={"text": "[MASK] " * 142, "top": 100})
    assert refused.status_code == 413 and "would have 14,114,800 characters" in refused.json()["error"]


def test_the_bodies_of_all_requests_are_bounded_together(models: Models) -> None:
    service = Service(models)
    client = call(service)
    asked = {"q": "1", "target": "de"}
    service.n_bytes = models.limits.max_bodies - 10
    refused = client.post("/translate", json=asked)
    assert refused.status_code == 503 and "retry-after" in refused.headers
    assert service.n_bytes == models.limits.max_bodies - 10
    service.n_bytes = 0
    assert [client.post("/translate", json=body).status_code for body in (asked, {"q": "1"}, [])] == [200, 400, 400]
    assert service.n_bytes == 0, "what is answered is held no longer"


def test_a_beam_that_a_run_has_itself_is_allowed(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    served = models.by_name["en-de"]
    monkeypatch.setattr(served, "limits", replace(served.limits, max_beam_size=2))
    assert served.beam_size == 3
    client = call(Service(models))
    assert client.post("/v1/translate", json={"text": "1", "num_hypotheses": 2}).status_code == 200
    refused = client.post("/v1/translate", json={"text": "1", "num_hypotheses": 3})
    assert (refused.status_code, refused.json()["error"]) == (400, "num_hypotheses is 3; this service allows 2")


def test_a_page_names_the_language_of_its_translation(client: TestClient) -> None:
    page = '<html lang="en"><p lang="en-GB">1 <i lang="fr">2</i></p></html>'
    found = client.post("/translate", json={"q": page, "target": "de", "format": "html"}).json()["translatedText"]
    assert found.startswith('<html lang="de"><p lang="de">') and found.count("en") == 0 and 'lang="fr"' in found


def test_names_of_models_are_escaped_in_counters(models: Models, runs: dict[str, Path], tmp_path: Path) -> None:
    name = 'a"b\\c\nd'
    (tmp_path / name).symlink_to(runs["digits"])
    found = Models([str(tmp_path / name)], models.limits, device="cpu", precision="float32", threads=1)
    (up,) = [
        line for line in call(Service(found)).get("/metrics").text.splitlines() if line.startswith("attnkit_model_up{")
    ]
    value = up.removeprefix('attnkit_model_up{model="').removesuffix('"} 1')
    unescaped = value.replace("\\\\", "\0").replace('\\"', '"').replace("\\n", "\n").replace("\0", "\\")
    assert unescaped == next(iter(found.by_name)) and "\n" not in value


def test_streams_do_not_wait_for_the_threads_of_others(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are allowed have begun before any ends."""
    together, body = threading.Barrier(models.limits.max_streams), schemas.GenerateBody(prompt="the", stream=True)

    def stream(*arguments: object, **options: object) -> Iterator[str]:
        together.wait(20)
        yield "a"

    monkeypatch.setattr(type(models.by_name["gpt"].model), "stream", stream)

    async def read() -> list[dict[str, str]]:
        return [piece async for piece in await calls.generate_stream(models, body)]

    async def read_all() -> list[list[dict[str, str]]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))  # as on a small machine
        return await asyncio.gather(*(read() for _ in range(models.limits.max_streams)))

    assert asyncio.run(read_all()) == [[{"text": "a"}]] * models.limits.max_streams


def test_streams_that_begin_at_the_same_time_are_counted(models: Models) -> None:
    """All are asked for before one has sent anything."""
    service, body = Service(models), schemas.GenerateBody(prompt="the", max_new_tokens=4, stream=True)

    async def ask() -> list[Any]:
        return await asyncio.gather(
            *(service._stream(lambda: calls.generate_stream(models, body)) for _ in range(12)), return_exceptions=True
        )

    found = asyncio.run(ask())
    refused = [one for one in found if isinstance(one, Exception)]
    assert len(found) - len(refused) == models.limits.max_streams == service.n_streams
