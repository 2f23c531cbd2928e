"""What pages of other sites may not do through a browser on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from attnkit.serving.app import Service
from attnkit.serving.limits import Limits
from attnkit.serving.models import Models


@pytest.fixture(scope="module")
def models(trained: Path) -> Models:
    return Models([f"en:de={trained}"], Limits(), device="cpu", precision="float32", threads=1)


def call(service: Service) -> TestClient:
    return TestClient(service.app(), base_url="http://localhost:8000")


def test_names_that_a_page_may_have_pointed_here_are_refused(models: Models) -> None:
    """DNS rebinding: the browser sends the name of the page, whatever address it has now."""
    service = Service(models, hosts=("My.Server",))

    def status(host: str, service: Service = service) -> int:
        return call(service).get("/v1/models", headers={"Host": host}).status_code

    for host in (
        "localhost",
        "LOCALHOST:8000",
        "127.0.0.1:8000",
        "[::1]:80",
        "192.168.1.7",
        "my.server:1",
        "my.server.",
    ):
        assert status(host) == 200, host
    for host in (
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "my.server.x",
    ):
        assert status(host) == 421, host
    refused = call(service).post("/translate", json={"q": "1", "target": "de"}, headers={"Host": "evil.example:80"})
    assert refused.status_code == 421 and "--allowed-host evil.example" in refused.json()["error"]
    closed = Service(models, api_key="k")
    assert call(closed).get("/health", headers={"Host": "any.name"}).status_code == 200, "such a page has no key"


def test_forms_of_other_origins_do_no_work(models: Models) -> None:
    """Browsers send forms and plain text anywhere without asking first."""
    client = call(Service(models))
    form, before = {"q": "1", "target": "de"}, models.by_name["en-de"].batcher.counts.n_lines
    for origin in ("https://example.org", "null", "http://localhost:9999", "http://localhost"):
        refused = client.post("/translate", data=form, headers={"Origin": origin})
        assert (refused.status_code, "other origins" in refused.json()["error"]) == (403, True), origin
    assert models.by_name["en-de"].batcher.counts.n_lines == before
    assert client.post("/translate", data=form, headers={"Origin": "http://localhost:8000"}).status_code == 200
    named = call(Service(models, origins=("https://example.org",)))
    assert named.post("/translate", data=form, headers={"Origin": "https://example.org"}).status_code == 200
    key = {"Authorization": "Bearer k"}
    assert call(Service(models, api_key="k")).post("/admin/reload", headers=key).status_code == 200, "no body, no type"
