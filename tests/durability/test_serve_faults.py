"""Faults around a server: clients that die, drip, idle or shout, logs that cannot be written, SIGTERM under load.

Every request carries its number; its answer must be its own. No traceback may leave the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

import attnkit
from attnkit.serving.server import ImpatientProtocol, _bound

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


class Server:
    """A server as a process, with its errors in a file."""

    def __init__(self, run: Path, folder: Path, *options: str, prepare: Callable[[], None] | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.log = folder / "log"
        argv = [sys.executable, "-m", "attnkit", "serve", f"en:de={run}", "--port", str(self.port), "--threads", "1"]
        to_full_disk = "--to-full-disk" in options
        errors = (Path("/dev/full") if to_full_disk else self.log).open("w")
        with errors:
            self.process = subprocess.Popen(
                [*argv, *(option for option in options if option != "--to-full-disk"), "--device", "cpu"],
                stderr=errors,
                preexec_fn=prepare,
            )
        end = time.monotonic() + 120
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            assert self.process.poll() is None and time.monotonic() < end, self.errors()
            time.sleep(0.1)

    def errors(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def ask(self, number: int) -> tuple[int, str]:
        """Translate the digits of a number; return status and text."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            body = json.dumps({"q": digits(number), "target": "de"})
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read()).get("translatedText", "")
        finally:
            connection.close()

    def waiting(self) -> int:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(r"^attnkit_waiting_lines\{.*\} (\d+)", text, re.MULTILINE)
        assert found is not None, text
        return int(found[1])


@contextmanager
def serving(run: Path, folder: Path, *options: str, **more: Any) -> Iterator[Server]:
    server = Server(run, folder, *options, **more)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def digits(number: int) -> str:
    return " ".join(str(number))


@pytest.fixture(scope="module")
def answers(trained: Path) -> dict[int, str]:
    """The right translation of each number."""
    numbers = range(1000, 1200)
    found = attnkit.Translator.load(trained, device="cpu", threads=1).translate([digits(n) for n in numbers])
    return dict(zip(numbers, (one.text for one in found), strict=True))


def request_bytes(number: int) -> bytes:
    body = json.dumps({"q": digits(number), "target": "de"}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def misbehave(server: Server, rng: random.Random) -> None:
    """Open a connection and do something that a client should not."""
    whole = request_bytes(rng.randrange(1000, 1200))
    with suppress(OSError), server.connect() as connection:
        kind = rng.randrange(6)
        if kind == 0:  # killed while it waits: the connection is reset
            connection.sendall(whole)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif kind == 1:  # gone in the middle of its body
            connection.sendall(whole[: -rng.randrange(1, 20)])
        elif kind == 2:  # half-open: it says that it sends no more, and reads nothing
            connection.sendall(whole)
            connection.shutdown(socket.SHUT_WR)
        elif kind == 3:
            connection.sendall(rng.randbytes(rng.randrange(1, 3000)) + b"\r\n\r\n")
            connection.recv(100)
        elif kind == 4:
            body = rng.choice([b"{", b"\xff\xfe", b"[" * 500, b'{"q": "1"}', b'{"q": 1, "target": []}', b"null"])
            head = f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(head + body)
            assert b"HTTP/1.1 400" in connection.recv(100)
        else:
            connection.sendall(b"POST /translate HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 9999\r\n\r\n")
            connection.recv(100)


def test_no_answer_is_lost_or_crossed_among_clients_that_misbehave(
    trained: Path, answers: dict[int, str], tmp_path: Path
) -> None:
    with serving(trained, tmp_path) as server:
        wrong: list[str] = []
        done: list[int] = []

        def behave(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(20):
                number = rng.choice(list(answers))
                status, text = server.ask(number)
                done.append(number)
                if (status, text) != (200, answers[number]):
                    wrong.append(f"{number}: {status} {text}")

        def disturb(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(25):
                misbehave(server, rng)

        threads = [threading.Thread(target=behave, args=(k,)) for k in range(8)]
        threads += [threading.Thread(target=disturb, args=(100 + k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == [] and len(done) == 160
        end = time.monotonic() + 30
        while server.waiting() and time.monotonic() < end:  # lines of clients that have gone
            time.sleep(0.1)
        assert server.waiting() == 0
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert "Traceback" not in server.errors()


def test_long_headers_are_refused_and_pipelined_requests_answered_in_order(
    trained: Path, answers: dict[int, str], tmp_path: Path
) -> None:
    with serving(trained, tmp_path) as server:
        begin = b"POST /translate HTTP/1.1\r\nHost: x\r\n"
        long = b"X-Filler: " + b"a" * (1 << 20)
        for sent in (begin + long, begin + long + b"\r\nContent-Length: 0\r\n\r\n", b"GET /" + b"a" * (1 << 20)):
            with server.connect() as connection:
                with suppress(OSError):  # refused before all of it was read
                    connection.sendall(sent)
                found = b""
                with suppress(ConnectionError):
                    while part := connection.recv(4096):
                        found += part
                assert not found or found.startswith(b"HTTP/1.1 400"), "else it was reset"
        one = begin + b"".join(b"X-%d: %s\r\n" % (k, b"b" * 1000) for k in range(40))
        with server.connect() as connection:
            connection.sendall(one + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400"), "many short headers are long as well"
        numbers = [1000, 1001, 1002]
        with server.connect() as connection:
            connection.sendall(b"".join(map(request_bytes, numbers)))
            found = b""
            while found.count(b"translatedText") < len(numbers):
                part = connection.recv(4096)
                assert part, found
                found += part
        texts = [json.loads(body)["translatedText"] for body in re.findall(rb"\{.*?\}\}", found)]
        assert texts == [answers[number] for number in numbers]
        assert server.ask(1003) == (200, answers[1003])


def test_bodies_that_drip_are_refused_while_others_are_served(
    trained: Path, answers: dict[int, str], tmp_path: Path
) -> None:
    with serving(trained, tmp_path) as server, ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(20)]
        for connection in slow:
            connection.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
        began, refused = time.monotonic(), 0
        while time.monotonic() - began < 12:
            for connection in slow:
                with suppress(OSError):
                    connection.sendall(b" ")
            assert server.ask(1003) == (200, answers[1003])
            time.sleep(0.5)
        for connection in slow:
            connection.settimeout(10)
            with suppress(OSError):
                refused += connection.recv(100).startswith(b"HTTP/1.1 408")
        assert refused == len(slow)


def test_idle_connections_do_not_keep_others_out(trained: Path, answers: dict[int, str], tmp_path: Path) -> None:
    """Neither the limit of connections nor that of open files is reached by those that say nothing."""

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

    with serving(trained, tmp_path, prepare=few_files) as server, ExitStack() as stack:
        began = time.monotonic()
        for k in range(400):
            stack.enter_context(server.connect())
            if k % 50 == 49:
                end = time.monotonic() + 3
                while True:  # a connection gives way when it has been idle for half a second
                    with suppress(OSError, HTTPException, ValueError):
                        if server.ask(1007) == (200, answers[1007]):
                            break
                    assert time.monotonic() < end
                    time.sleep(0.1)
        assert time.monotonic() - began < 9  # none had to wait until the idle ones were given up
        assert "Traceback" not in server.errors()


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: an answer of 32 MB, more than the system takes, to clients that read none or all of it."""
    monkeypatch.setattr(ImpatientProtocol, "STALLED", 0.5)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % (1 << 25))]})
        for _ in range(32):
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
        await send({"type": "http.response.body"})

    async def serve() -> tuple[int, int, int]:
        config, state = uvicorn.Config(app, lifespan="off", ws="none"), ServerState()
        config.load()
        server = await asyncio.get_running_loop().create_server(
            lambda: ImpatientProtocol(config, state, {}), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        lazy = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 10) for _ in range(3)]
        for _, writer in lazy:
            writer.write(request)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        n_read = len(await reader.readexactly(1 << 25))
        most = len(state.connections)
        end = time.monotonic() + 20
        while len(state.connections) > 1 and time.monotonic() < end:
            await asyncio.sleep(0.05)
        left = len(state.connections)
        server.close()
        writer.close()
        return n_read, most, left

    assert asyncio.run(serve()) == (1 << 25, 4, 1), "the one that reads stays"


def test_answers_wait_for_no_acknowledgement() -> None:
    """Without TCP_NODELAY, which asyncio sets where a socket names its protocol, a body waits for 40 ms."""
    with _bound(uvicorn.Config("none:app", host="127.0.0.1", port=0)) as (bound,):
        assert bound.proto == socket.IPPROTO_TCP


def test_logs_on_a_full_disk_lose_no_answer(trained: Path, answers: dict[int, str], tmp_path: Path) -> None:
    with serving(trained, tmp_path, "--access-log", "--to-full-disk") as server:
        for number in range(1000, 1020):
            assert server.ask(number) == (200, answers[number])
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_a_full_queue_refuses_at_once(trained: Path, answers: dict[int, str], tmp_path: Path) -> None:
    with serving(trained, tmp_path, "--max-waiting", "20") as server:
        found: list[tuple[int, int, str, float]] = []

        def insist(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(15):
                number, began = rng.choice(list(answers)), time.monotonic()
                found.append((number, *server.ask(number), time.monotonic() - began))

        hold = {"q": "\n".join(digits(n) for n in answers), "target": "de"}
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/translate", json.dumps(hold), {"Content-Type": "application/json"})
        too_many = connection.getresponse()
        assert too_many.status == 503 and int(too_many.headers["Retry-After"]) >= 1
        threads = [threading.Thread(target=insist, args=(k,)) for k in range(48)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        assert {status for _, status, _, _ in found} <= {200, 503} and len(found) == 48 * 15
        assert all(text == answers[number] for number, status, text, _ in found if status == 200)
        assert sum(status == 200 for _, status, _, _ in found) > 100


def test_sigterm_under_load_answers_what_it_took(trained: Path, answers: dict[int, str], tmp_path: Path) -> None:
    with serving(trained, tmp_path) as server:
        stopped_at: list[float] = []
        found: list[tuple[int, int, str]] = []
        cut: list[str] = []

        def insist(seed: int) -> None:
            rng = random.Random(seed)
            while True:
                number, began = rng.choice(list(answers)), time.monotonic()
                try:
                    found.append((number, *server.ask(number)))
                except ConnectionRefusedError:
                    return
                except (OSError, HTTPException) as error:
                    # A connection that the server had not taken yet may be cut; half a second before it had.
                    if not stopped_at or began < stopped_at[0] - 0.5:
                        cut.append(repr(error))
                    return

        threads = [threading.Thread(target=insist, args=(k,)) for k in range(16)]
        for thread in threads:
            thread.start()
        while len(found) < 100:
            time.sleep(0.05)
        stopped_at.append(time.monotonic())
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(120)
        assert server.process.wait(60) == 0
        assert cut == [] and {status for _, status, _ in found} <= {200, 503}
        assert all(text == answers[number] for number, status, text in found if status == 200)
        assert "Traceback" not in server.errors()


def test_no_process_of_a_server_is_left(tmp_path: Path, trained: Path) -> None:
    with serving(trained, tmp_path) as server:
        os.kill(server.process.pid, signal.SIGINT)
        assert server.process.wait(60) == 0
