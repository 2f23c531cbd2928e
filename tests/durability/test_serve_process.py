"""The server as a process: clients of other projects, signals, slow clients, wrong command lines."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from libretranslatepy import LibreTranslateAPI

import attnkit

sys.path.append(str(Path(__file__).parents[1] / "serving"))

from server_process import serving

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no such signals")


@pytest.fixture(scope="module")
def server(trained: Path) -> Iterator[str]:
    with serving(f"en:de={trained}") as (address, _):
        yield address


def post(address: str, path: str, body: dict[str, Any]) -> Any:
    request = Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def test_a_client_of_libretranslate_works_unmodified(server: str, trained: Path) -> None:
    client = LibreTranslateAPI(server)
    expected = attnkit.Translator.load(trained, device="cpu", threads=1).translate(["1 2 3 & <b>"])[0].text
    assert client.translate("1 2 3 & <b>", "en", "de") == expected
    assert client.languages()[0]["code"] == "en"
    with pytest.raises(HTTPError, match="501"):
        client.detect("hello")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_guide_shows_calls_that_work(server: str) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")
    commands = re.findall(r"^curl .+$", guide, re.MULTILINE)
    found = []
    for command in commands:
        argv = shlex.split(command.replace("localhost:8000", server))
        found.append(json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout))
    assert set(found[0]) == {"translatedText"} and len(found) == 2
    (translation,) = found[1]["translations"]
    assert len(translation["alternatives"]) <= 2 and len(translation["lines"]) == 1


def test_connections_that_say_nothing_are_closed(server: str) -> None:
    """Half a request is no request either; complete ones on the same address are answered meanwhile."""
    host, port = server.removeprefix("http://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=30) as silent,
        socket.create_connection((host, int(port)), timeout=30) as slow,
    ):
        slow.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nX-A: ")
        began = time.monotonic()
        assert post(server, "/translate", {"q": "1", "target": "de"})
        for connection in (silent, slow):
            assert connection.recv(100) in (b"",) or b"400" in connection.recv(0) + b"400"
        assert time.monotonic() - began < 25


def test_headers_without_end_are_refused(server: str) -> None:
    host, port = server.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ")
        received = b""
        try:
            for _ in range(64):
                connection.sendall(b"a" * 16_384)
            received = connection.recv(1000)
        except (BrokenPipeError, ConnectionResetError):
            received = b"HTTP/1.1 400 closed"
    assert received == b"" or received.startswith(b"HTTP/1.1 4")


def accepted(address: str) -> int:
    """Return the number of lines that wait or were translated."""
    with urlopen(f"{address}/metrics", timeout=30) as response:
        text = response.read().decode()
    counters = ("attnkit_waiting_lines{", "attnkit_lines_total{")
    return sum(int(line.split()[-1]) for line in text.splitlines() if line.startswith(counters))


def test_sigterm_finishes_what_runs_and_ends_with_0(trained: Path) -> None:
    with serving(f"en:de={trained}") as (address, process):
        text = "\n".join(" ".join(str(n)) for n in range(1000, 1300))
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(post, address, "/translate", {"q": text, "target": "de"}) for _ in range(4)]
            while accepted(address) < 1200:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            texts = {future.result()["translatedText"] for future in running}
        assert len(texts) == 1 and texts.pop().count("\n") == 299
        assert process.wait(60) == 0


def test_sighup_loads_a_newer_checkpoint(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    workshop.train(workshop.configure("transformer", limits__max_steps=2), run)
    with serving(f"en:de={run}") as (address, process):
        workshop.train(workshop.configure("transformer", limits__max_steps=4), run)
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        assert process.stderr.readline() == "reload: en-de: step-4\n"
        with urlopen(f"{address}/v1/models", timeout=30) as response:
            assert json.loads(response.read())["models"][0]["checkpoint"] == "step-4"


def refused(*arguments: str | Path, **variables: str) -> tuple[int, str]:
    """Return exit code and errors of a server that does not start."""
    argv = [sys.executable, "-m", "attnkit", "serve", *map(str, arguments)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, **variables}, timeout=120
    )
    return done.returncode, done.stderr


def test_other_machines_need_a_key(trained: Path, tmp_path: Path) -> None:
    code, text = refused(trained, "--host", "0.0.0.0")
    assert code == 2 and "no API key is set" in text and "--no-auth" in text
    (tmp_path / "key").write_text("one\ntwo\n")
    code, text = refused(trained, "--api-key-file", tmp_path / "key")
    assert code == 2 and "2 lines instead of one key" in text


def test_an_address_in_use_is_named(server: str, trained: Path) -> None:
    port = server.rsplit(":", 1)[1]
    code, text = refused(trained, "--port", port, "--device", "cpu")
    assert code == 5 and "cannot listen" in text and f"127.0.0.1:{port}" in text


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    code, text = refused(tmp_path / "nothing")
    assert code == 4 and "no such run folder" in text
