"""Clients that stop answering, close one half of a connection, or meet a model that fails; others are served."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import attnkit

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package
sys.path.append(str(Path(__file__).parents[1] / "serving"))

from server_process import serving
from test_serve_faults import LINES, ask, connect

IMPATIENT = """
from attnkit.cli.main import main
from attnkit.serving.server import ImpatientProtocol

ImpatientProtocol.SECONDS = ImpatientProtocol.STALLED = 1.0
main()
"""
FAILING = """
from attnkit.cli.main import main
from attnkit.library.translation import Translator

translate = Translator.translate

def fail(self, lines, **options):
    if any("1 3" in line for line in lines):
        raise RuntimeError("deep inside")
    return translate(self, lines, **options)

Translator.translate = fail
main()
"""
ONE = b'{"q": "1 2 3", "target": "de"}'
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def ends(connection: socket.socket) -> bytes:
    """Return what is received until the server closes the connection, or resets it."""
    received = b""
    try:
        while more := connection.recv(1 << 20):
            received += more
    except ConnectionResetError:
        pass
    return received


def test_clients_that_do_not_answer_any_more_are_left(trained: Path) -> None:
    """Half-open connections: of one no more of the request comes, the other takes nothing of its answers."""
    with serving(f"en:de={trained}", program=IMPATIENT) as (address, process):
        with connect(address) as sending, socket.socket() as taking:
            sending.sendall(b"POST /translate HTTP/1.1\r\nHost: local")
            taking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            taking.settimeout(30)
            host, port = address.removeprefix("http://").split(":")
            taking.connect((host, int(port)))
            n = 500
            asked = threading.Thread(target=lambda: send(taking, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * n))
            asked.start()
            assert ask(address, "1 2 3") == ask(address, "1 2 3")
            assert ends(sending) == b""
            time.sleep(2.5)  # more than it has for taking what was written
            received = ends(taking)
            asked.join(30)
            assert 0 < received.count(b"HTTP/1.1 200 OK") < n
        assert ask(address, "1 2 3") and process.poll() is None


def send(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):  # closed by the server
        connection.sendall(data)


def test_a_connection_that_is_half_closed_does_not_hang(trained: Path) -> None:
    """A client that is killed looks the same: it is taken for one that has left."""
    with serving(f"en:de={trained}") as (address, _):
        for data in (b"", b"GET / HTTP", HEAD % 100 + ONE, HEAD % len(ONE) + ONE):
            with connect(address) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                began = time.monotonic()
                received = ends(connection)
                assert time.monotonic() - began < 8, "before an idle connection would be closed"
                assert b"Traceback" not in received
        assert ask(address, "1 2 3")


def test_a_model_that_fails_for_some_lines_answers_the_others(trained: Path) -> None:
    """Each client gets the answer of its own line, or is told that the model has failed, without more."""
    found = attnkit.Translator.load(trained, device="cpu", threads=1).translate(LINES)
    expected = {line: (one.text, one.score) for line, one in zip(LINES, found, strict=True)}
    with serving(f"en:de={trained}", program=FAILING) as (address, process), ThreadPoolExecutor(16) as pool:
        answers = dict(zip(LINES, pool.map(lambda line: ask(address, line), LINES), strict=True))
        failed = {line for line in LINES if "1 3" in line}
        assert {line for line in LINES if answers[line] == 500} == failed and len(failed) > 5
        assert all(answers[line] == expected[line] for line in LINES if line not in failed)
        body = json.dumps({"text": next(iter(failed))}).encode()
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{address}/v1/translate", body, {"Content-Type": "application/json"}), timeout=60)
        said = refused.value.read().decode()
        assert json.loads(said)["error"] == "the model failed: RuntimeError" and not re.search("deep|File|line", said)
        assert process.poll() is None
