"""What clients, disks and signals do to a server: answers go to whom they belong, and nothing hangs."""

from __future__ import annotations

import gzip
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

import attnkit
from attnkit.serving.server import LINGER

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package
sys.path.append(str(Path(__file__).parents[1] / "serving"))

from server_process import serving
from test_serve_process import post

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no such signals")
LINES = [" ".join(str(n)) for n in range(100, 400)]
CLIENT = """
import json, sys, urllib.request
body = json.dumps({"q": sys.argv[2], "target": "de"}).encode()
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/translate", body, {"Content-Type": "application/json"}))
"""


@pytest.fixture(scope="module")
def server(trained: Path) -> Iterator[str]:
    with serving(f"en:de={trained}") as (address, _):
        yield address


Answer = tuple[str, float]


@pytest.fixture(scope="module")
def expected(trained: Path) -> dict[str, Answer]:
    """Lines and their translations with scores, which tell one line's answer from another's."""
    found = attnkit.Translator.load(trained, device="cpu", threads=1).translate(LINES)
    answers = {line: (one.text, one.score) for line, one in zip(LINES, found, strict=True)}
    assert len(set(answers.values())) > len(LINES) * 0.9
    return answers


def ask(address: str, line: str) -> Answer | int:
    """Return the translation of a line and its score, or the code of a refusal."""
    try:
        one = post(address, "/v1/translate", {"text": line})["translations"][0]["lines"][0]
    except HTTPError as error:
        return error.code
    return one["text"], one["score"]


def connect(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def waiting(address: str) -> int:
    with urlopen(f"{address}/metrics", timeout=30) as response:
        text = response.read().decode()
    return sum(int(line.split()[-1]) for line in text.splitlines() if line.startswith("attnkit_waiting_lines{"))


def test_every_client_gets_its_own_answer(server: str, expected: dict[str, Answer]) -> None:
    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(lambda line: ask(server, line), LINES[:120]))
    assert found == [expected[line] for line in LINES[:120]]


def test_killed_clients_cost_nothing_and_others_get_their_answers(server: str, expected: dict[str, Answer]) -> None:
    text = "\n".join(LINES)
    clients = [
        subprocess.Popen([sys.executable, "-c", CLIENT, server, text], stderr=subprocess.DEVNULL) for _ in "abcd"
    ]
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(ask, server, line) for line in LINES[:60]]
        time.sleep(0.3)
        for client in clients:
            client.send_signal(signal.SIGKILL)
            client.wait()
        assert [future.result() for future in running] == [expected[line] for line in LINES[:60]]
    end = time.monotonic() + 20
    while waiting(server):
        assert time.monotonic() < end, "lines that nobody waits for stay in the queue"
        time.sleep(0.05)


def test_many_silent_connections_keep_nobody_out(server: str, expected: dict[str, Answer]) -> None:
    """More than the server keeps (2,000): those that have been silent for half a second make room."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(10_000 if hard == resource.RLIM_INFINITY else min(10_000, hard - 200)):
            stack.enter_context(connect(server))
        time.sleep(0.6)
        assert ask(server, LINES[0]) == expected[LINES[0]]


def test_bodies_that_come_by_the_byte_hold_nobody_up(server: str, expected: dict[str, Answer]) -> None:
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(50)]
        for connection in slow:
            connection.sendall(head + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
        assert [ask(server, line) for line in LINES[:20]] == [expected[line] for line in LINES[:20]]
        began = time.monotonic()
        for connection in slow:
            answer = connection.recv(1000)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < 25


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b'{"q": "1 2', {}, 400),
        (b'{"q": "\xff\xfe", "target": "de"}', {}, 400),
        (b"[" * 100_000, {}, 400),
        (gzip.compress(b" " * 10_000_000), {"Content-Encoding": "gzip"}, 415),
        (b'{"q": "1", "target": "de", "x": "' + b"a" * 2_000_000 + b'"}', {}, 413),
        (b'{"q": "\\ud800", "target": "de"}', {}, None),
        (b'{"q": "\\u0000 1", "target": "de"}', {}, None),
    ],
    ids=["half", "no-utf8", "deep", "bomb", "large", "surrogate", "null"],
)
def test_broken_bodies_are_answered(server: str, body: bytes, headers: dict[str, str], code: int | None) -> None:
    request = Request(f"{server}/translate", body, {"Content-Type": "application/json", **headers})
    try:
        with urlopen(request, timeout=60) as response:
            found, text = response.status, response.read().decode()
    except HTTPError as error:
        found, text = error.code, error.read().decode()
    except URLError as error:  # the server has answered, and closed before all was sent
        assert code == 413 and isinstance(error.reason, OSError)
        return
    assert found in ((code,) if code else (200, 400)) and "Traceback" not in text
    assert json.loads(text)


def test_a_full_queue_refuses_and_crosses_no_answers(trained: Path, expected: dict[str, Answer]) -> None:
    with serving(f"en:de={trained}", "--max-waiting", "8") as (address, _), ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda line: (line, ask(address, line)), LINES * 2))
        assert all(text in (503, expected[line]) for line, text in found)
        assert 503 in {text for _, text in found} and any(text != 503 for _, text in found)
        assert ask(address, LINES[0]) == expected[LINES[0]]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_a_full_disk_for_the_log_ends_nothing(trained: Path, expected: dict[str, Answer]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "attnkit", "serve", f"en:de={trained}", "--port", str(port), "--access-log"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen([*argv, "--threads", "1", "--device", "cpu"], stderr=full, stdout=full)
    try:
        address, end = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while True:
            assert process.poll() is None and time.monotonic() < end
            try:
                connect(address).close()
                break
            except OSError:
                time.sleep(0.1)
        assert [ask(address, line) for line in LINES[:10]] == [expected[line] for line in LINES[:10]]
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_sigterm_under_load_loses_no_running_answer(trained: Path, expected: dict[str, Answer]) -> None:
    """Each request before it, and for a moment after it, gets an answer or a refusal; no connection hangs."""
    ended = math.inf
    with serving(f"en:de={trained}") as (address, process):

        def one(line: str) -> Answer | int:
            began = time.monotonic()
            try:
                return ask(address, line)
            except (URLError, OSError):
                assert began > ended + LINGER / 2, "a request is lost"
                return 0  # the server has gone

        with ThreadPoolExecutor(16) as pool:
            running = [(line, pool.submit(one, line)) for line in LINES * 2]
            while sum(future.done() for _, future in running) < 50:
                time.sleep(0.005)
            process.send_signal(signal.SIGTERM)
            ended = time.monotonic()
            found = [(line, future.result(60)) for line, future in running]
        assert process.wait(60) == 0
    assert 503 in {text for _, text in found}, "some were on their way"
    assert all(text in (expected[line], 503, 0) for line, text in found)
    assert sum(text == expected[line] for line, text in found) >= 50


def test_a_reload_under_load_loses_no_request(workshop: Any, tmp_path: Path) -> None:
    """Every answer is that of the old weights or of the new ones, and those asked for later are of the new ones."""
    run = tmp_path / "run"

    def answers() -> dict[str, Answer]:
        found = attnkit.Translator.load(run, device="cpu", threads=1).translate(LINES)
        return {line: (one.text, one.score) for line, one in zip(LINES, found, strict=True)}

    workshop.train(workshop.configure("transformer", limits__max_steps=2), run)
    old = answers()
    with serving(f"en:de={run}") as (address, process), ThreadPoolExecutor(8) as pool:
        workshop.train(workshop.configure("transformer", limits__max_steps=4), run)
        new = answers()
        running = [(line, pool.submit(ask, address, line)) for line in LINES]
        while sum(future.done() for _, future in running) < 50:
            time.sleep(0.005)
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        assert process.stderr.readline() == "reload: en-de: step-4\n"
        after = [(line, pool.submit(ask, address, line)) for line in LINES[:50]]
        found = [(line, future.result(60)) for line, future in running]
        assert all(text in (old[line], new[line]) for line, text in found)
        assert {text == old[line] for line, text in found[:50]} == {True}
        assert all(future.result(60) == new[line] for line, future in after)
