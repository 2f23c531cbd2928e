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
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from libretranslatepy import LibreTranslateAPI

import attnkit

sys.path.append(str(Path(__file__).parents[1] / "serving"))

from server_process import serving
from task_runs import task_runs

from attnkit.serving.answers import TranslationsAnswer
from attnkit.serving.app import HEADERS, POSTS
from attnkit.serving.limits import Limits

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
def test_the_guide_shows_calls_that_work(trained: Path, tmp_path: Path) -> None:
    """One for each route that reads a body."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")
    commands = re.findall(r"^curl .+$", guide, re.MULTILINE)
    runs = [f"{name}={path}" for name, path in task_runs(tmp_path).items()]
    found: dict[str, list[str]] = {}
    with serving(f"en:de={trained}", *runs) as (address, _):
        for command in commands:
            argv = shlex.split(command.replace("localhost:8000", address))
            answer = subprocess.run(argv, capture_output=True, check=True, timeout=60, text=True).stdout
            found.setdefault(argv[2].removeprefix(address), []).append(answer)
    events = found.pop("/v1/generate")[0].split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""] and len(events) > 3
    first = {path: set(json.loads(answers[0])) for path, answers in found.items()}
    assert first == {
        "/translate": {"translatedText"},
        "/v2/translate": {"translations"},
        "/v1/translations": set(TranslationsAnswer.model_fields),
        "/v1/translate": {"model", "translations"},
        "/v1/score": {"model", "scores"},
        "/v1/fill-mask": {"model", "results"},
        "/v1/embed": {"model", "embeddings"},
        "/v1/predict": {"model", "predictions"},
        "/v1/similar": {"model", "results"},
    }
    assert set(found) | {"/v1/generate"} == {post.path for post in POSTS}
    assert json.loads(found["/v1/predict"][1])["model"] == "answers"


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


def test_what_is_no_request_and_a_connection_too_many_are_answered_as_by_the_service(trained: Path) -> None:
    program = "from attnkit.serving import limits, server\n"
    program += "server._most_connections = lambda: 3\n"
    program += "from attnkit.cli.main import main\nmain()\n"
    with serving(f"en:de={trained}", program=program) as (address, _), ExitStack() as stack:
        host, port = address.removeprefix("http://").split(":")

        def begin(head: bytes) -> socket.socket:
            made = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            made.sendall(head)
            return made

        def read(connection: socket.socket) -> tuple[bytes, dict[str, str], Any]:
            response = HTTPResponse(connection)
            response.begin()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, json.load(response)

        for _ in range(2):  # their bodies do not come
            begin(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Content-Length: 30\r\n\r\n{")  # fmt: skip
        time.sleep(0.2)
        crowded, broken = begin(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"), begin(b"no request\r\n\r\n")
        for connection, status, error in ((crowded, 503, "too many connections"), (broken, 400, "Invalid HTTP")):
            code, headers, body = read(connection)
            assert code == status and body["error"] == body["message"] and error in body["error"]
            assert all(headers[name.decode()] == value.decode() for name, value in HEADERS)
            assert ("retry-after" in headers) == (status == 503) and headers["connection"] == "close"
            assert connection.recv(1) == b"", "its place is free"


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


@pytest.mark.parametrize(
    "arguments", [("--host", "0.0.0.0", "--no-auth"), ("--host", "localhost"), ("--access-log",)], ids=" ".join
)
def test_what_may_be_asked_for(trained: Path, arguments: tuple[str, ...]) -> None:
    """Without a key on request, by a name, and with a log that has no texts."""
    with serving(f"en:de={trained}", *arguments) as (address, process):
        port = address.rsplit(":", 1)[1]
        found = post(f"http://localhost:{port}", "/translate", {"q": "1 2 3", "target": "de"})
        assert set(found) == {"translatedText"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0 and process.stderr is not None
        said = process.stderr.read()
    assert ('POST /translate HTTP/1.1" 200' in said) == (arguments == ("--access-log",))
    assert "1 2 3" not in said and found["translatedText"] not in said


def test_a_client_that_leaves_a_stream_ends_it(tmp_path: Path) -> None:
    """Others can stream at once: a stream that nobody reads would hold the model for a minute."""
    run = task_runs(tmp_path)["gpt"]
    body = {"prompt": "the", "max_new_tokens": 1000, "stream": True, "temperature": 1.0, "seed": 3}
    raw = json.dumps(body).encode()
    head = "POST /v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    with serving(f"gpt={run}") as (address, _):
        host, port = address.removeprefix("http://").split(":")
        for _ in range(3 * Limits().max_streams):
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(head.encode() + f"{len(raw)}\r\n\r\n".encode() + raw)
                received = b""
                while b"data: " not in received:
                    more = connection.recv(4096)
                    assert more, received
                    received += more
            assert received.startswith(b"HTTP/1.1 200"), "no place is taken by those that left"
            time.sleep(0.1)


def test_an_address_in_use_is_named(server: str, trained: Path) -> None:
    port = server.rsplit(":", 1)[1]
    code, text = refused(trained, "--port", port, "--device", "cpu")
    assert code == 5 and "cannot listen" in text and f"127.0.0.1:{port}" in text


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    code, text = refused(tmp_path / "nothing")
    assert code == 4 and "no such run folder" in text
