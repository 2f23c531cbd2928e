"""Clients of several libraries call a running server as their documents say, its refusals and shutdown included."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import requests

sys.path.append(str(Path(__file__).parents[1] / "serving"))

from server_process import serving

import attnkit

IMPATIENT = """
import sys
from attnkit.cli.main import main
from attnkit.serving import server

server.GRACE = 0.5
main()
"""


@pytest.fixture(scope="module")
def server(trained: Path) -> Iterator[str]:
    with serving(f"en:de={trained}", "--request-seconds", "4") as (address, _):
        yield address


@pytest.fixture(scope="module")
def expected(trained: Path) -> str:
    return attnkit.Translator.load(trained, device="cpu", threads=1).translate(["1 2 3"])[0].text


def load(name: str) -> Any:
    """Return a library; httpx2 alone may be missing."""
    return pytest.importorskip(name) if name == "httpx2" else import_module(name)


def client(name: str) -> Any:
    """Return a session that keeps its connection."""
    library = load(name)
    return library.Session() if name == "requests" else library.Client()


@pytest.mark.parametrize("name", ["requests", "httpx", "httpx2"])
def test_a_session_translates_by_json_and_by_form(name: str, server: str, expected: str) -> None:
    with client(name) as session:
        for _ in range(3):  # on one connection
            fields = {"q": "1 2 3", "source": "en", "target": "de"}
            assert session.post(f"{server}/translate", json=fields).json() == {"translatedText": expected}
            assert session.post(f"{server}/translate", data=fields).json() == {"translatedText": expected}
            form = {"text": ["1 2 3", "1 2 3"], "target_lang": "DE"}
            found = session.post(f"{server}/v2/translate", data=form).json()["translations"]
            assert [one["text"] for one in found] == [expected] * 2
        refused = session.post(f"{server}/translate", json={"q": "1"})
        assert refused.status_code == 400 and refused.json()["error"] == "target: Field required"
        plain = {"data" if name == "requests" else "content": b'{"q": "1", "target": "de"}'}
        for kind in ("text/plain", ""):
            headers = {"Content-Type": kind}
            assert session.post(f"{server}/translate", headers=headers, **plain).status_code == 415
        assert session.get(f"{server}/health", headers={"Host": "evil.example"}).status_code == 421
        assert session.get(f"{server}/openapi.json").json()["openapi"].startswith("3.1")


@pytest.mark.parametrize("name", ["requests", "httpx", "httpx2"])
def test_a_client_that_loses_patience_and_the_end_of_the_time(name: str, server: str, expected: str) -> None:
    """Both leave the model to others at once; without an end to the search it would take minutes."""
    library = load(name)
    long = {"text": [f"{n} 5" for n in range(500)], "min_length": 1000, "max_length": 1001, "beam_size": 16}
    with client(name) as session:
        with pytest.raises((library.Timeout if name == "requests" else library.ReadTimeout,)):
            session.post(f"{server}/v1/translate", json=long, timeout=0.5)
        assert session.post(f"{server}/translate", json={"q": "1 2 3", "target": "de"}).json() == {
            "translatedText": expected
        }
        late = session.post(f"{server}/v1/translate", json=long, timeout=60)
        assert late.status_code == 504 and "not done after 4 s" in late.json()["error"]
        assert session.post(f"{server}/translate", json={"q": "1 2 3", "target": "de"}).status_code == 200


def test_a_server_that_ends_answers_what_runs(trained: Path, expected: str) -> None:
    with serving(f"en:de={trained}") as (address, process):
        found: list[Any] = []
        body = {"text": ["1 2 3"] * 100, "beam_size": 16}
        thread = threading.Thread(target=lambda: found.append(requests.post(f"{address}/v1/translate", json=body)))
        thread.start()
        time.sleep(0.05)
        process.terminate()
        thread.join(60)
        assert process.wait(60) == 0
    assert found[0].status_code in (200, 503) and json.loads(found[0].text)


def test_a_server_stops_what_still_runs_at_the_end(trained: Path, tmp_path: Path) -> None:
    """After SIGTERM running requests have 30 seconds, here half a second, and are then answered all the same."""
    program, log = tmp_path / "impatient.py", tmp_path / "log"
    program.write_text(IMPATIENT)
    argv = [sys.executable, program, "serve", f"en:de={trained}", "--port", "0", "--threads", "1", "--device", "cpu"]
    with log.open("w") as file:
        process = subprocess.Popen(argv, stderr=file)
    try:
        end = time.monotonic() + 60
        while not (address := re.search(r"http://\S+", log.read_text())):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        found: list[Any] = []
        long = {"text": [f"{n} 5" for n in range(500)], "min_length": 1000, "max_length": 1001, "beam_size": 16}
        asked = [long, {**long, "repetition_penalty": 1.3}]  # the second waits

        def ask(body: dict[str, Any]) -> None:
            found.append(requests.post(f"{address[0]}/v1/translate", json=body, timeout=100))

        threads = [threading.Thread(target=ask, args=(body,)) for body in asked]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        process.terminate()
        for thread in threads:
            thread.join(60)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert [one.status_code for one in found] == [503, 503]
    assert {one.json()["error"] for one in found} == {"the service is shutting down"}
    assert len(log.read_text().splitlines()) == 1, "nothing but the address"
