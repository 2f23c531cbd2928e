"""Load on `attnkit serve`: throughput, latency, overload and memory, beside a server of CTranslate2 as usually written.

    PYTHONPATH=src python benchmarks/serve_load.py --run RUN --data FILE [--lines 20000] [--requests 100000]

RUN is a translation run; FILE is text of its source language. A request has one sentence, which is searched with the
run's own beam size, in int8. Clients are on the same machine in a process of their own, with one connection each.
Measured in this order:

1. `attnkit translate` of the same lines: lines/s, as it says itself.
2. Closed loop: 64 clients, each sends its next sentence when it has its answer; then one client alone.
3. Open loop: requests arrive at random moments, at half of the rate of 64 clients, and at twice that rate.
4. --requests requests of 64 clients in a row: growth of the server's memory after the first tenth.
5. The other server: starlette with CTranslate2 (int8, all threads), one batch a request: 2 and 3 again.

The other server is run by --peer, a Python with ctranslate2, tokenizers, starlette and uvicorn[standard]. Figures go to
benchmarks/results/serve_load.json. It takes about half an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers import machine

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_run_config

RESULT = Path(__file__).parent / "results" / "serve_load.json"
CLIENTS = 64
OPEN_SECONDS = 12.0
WAITING = 512  # lines that may wait
OTHER = """
import json, sys, ctranslate2, uvicorn
from pathlib import Path
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tokenizers import Tokenizer

folder, port, threads, beam = Path(sys.argv[1]), *map(int, sys.argv[2:])
translator = ctranslate2.Translator(str(folder), "cpu", compute_type="int8", inter_threads=threads, intra_threads=1)
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
names = json.loads((folder / "shared_vocabulary.json").read_text())
ids = {name: id for id, name in enumerate(names)}

def work(text):
    tokens = [names[id] for id in tokenizer.encode(text).ids]
    found = translator.translate_batch([tokens], beam_size=beam, max_decoding_length=128)[0].hypotheses[0]
    return tokenizer.decode([ids[token] for token in found])

async def translate(request: Request) -> JSONResponse:
    body = await request.json()
    return JSONResponse({"translatedText": await run_in_threadpool(work, body["q"])})

app = Starlette(routes=[Route("/translate", translate, methods=["POST"]), Route("/ready", lambda r: JSONResponse({}))])
uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")
"""


# --- clients, in a process of their own


class Connection(asyncio.Protocol):
    """A connection that is kept; as little work as a client can do, since it shares the processors."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.head = f"POST {given['path']} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
        self.answer: asyncio.Future[int] | None = None
        self.data = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def ask(self, text: str) -> asyncio.Future[int]:
        """Send one sentence; return its status, when the answer is there."""
        body = json.dumps({**self.given["body"], self.given["field"]: text}).encode()
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(b"%sContent-Length: %d\r\n\r\n%s" % (self.head, len(body), body))
        return self.answer

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, ends, body = self.data.partition(b"\r\n\r\n")
        at = head.lower().find(b"content-length: ")
        if not ends or len(body) < int(head[at + 16 :].split(b"\r", 1)[0]):
            return
        self.data, status = b"", int(head[9:12])
        if status == 200:
            json.loads(body)
        assert self.answer is not None
        self.answer.set_result(status)

    def connection_lost(self, error: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error or ConnectionError("the server has closed the connection"))


async def connect(given: dict[str, Any]) -> Connection:
    """Return a new connection."""
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(lambda: Connection(given), "127.0.0.1", given["port"]))[1]


async def closed_loop(given: dict[str, Any]) -> list[tuple[int, float]]:
    """Run clients of which each sends its next line when it has its answer."""
    lines = iter(given["lines"])
    found: list[tuple[int, float]] = []

    async def client() -> None:
        connection = await connect(given)
        for line in lines:
            began = time.perf_counter()
            status = await connection.ask(line)
            found.append((status, time.perf_counter() - began))

    await asyncio.gather(*(client() for _ in range(given["clients"])))
    return found


async def open_loop(given: dict[str, Any]) -> list[tuple[int, float]]:
    """Send lines at random moments at a rate, whether there are answers or not."""
    rng, idle = random.Random(1), list[Connection]()
    found: list[tuple[int, float]] = []

    async def send(line: str, at: float) -> None:
        while idle and idle[-1].transport.is_closing():  # closed by the server after idle seconds
            idle.pop()
        connection = idle.pop() if idle else await connect(given)
        status = await connection.ask(line)
        found.append((status, time.perf_counter() - at))  # from the moment it was due
        idle.append(connection)

    tasks, due, number = [], time.perf_counter(), 0
    end = due + given["seconds"]
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(send(given["lines"][number % len(given["lines"])], due)))
        number, due = number + 1, due + rng.expovariate(given["rate"])
    await asyncio.gather(*tasks)
    return found


def clients(kind: str, **given: Any) -> dict[str, Any]:
    """Run clients in a process of their own and sum up what they saw."""
    began = time.perf_counter()
    command = [sys.executable, __file__, "--as-clients", kind]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    answers, seconds = json.loads(done.stdout)
    served = sorted(took for status, took in answers if status == 200)
    refused = sorted(took for status, took in answers if status == 503)
    if len(served) + len(refused) != len(answers):
        sys.exit(f"other answers: {sorted({status for status, _ in answers})}")
    figures = {
        "answers": len(answers), "served": len(served), "refused": len(refused), "seconds": round(seconds, 2),
        "per_second": round(len(served) / seconds, 1), "p50_ms": at(served, 0.5), "p99_ms": at(served, 0.99),
        "longest_ms": at(served, 1.0), "refused_p99_ms": at(refused, 0.99),
    }  # fmt: skip
    print(f"  {kind:<12} {figures}  ({time.perf_counter() - began:.0f} s)", flush=True)
    return figures


def at(seconds: Sequence[float], share: float) -> float | None:
    """Return a quantile of sorted seconds, in milliseconds."""
    return round(1000 * seconds[min(len(seconds) - 1, int(share * len(seconds)))], 1) if seconds else None


# --- servers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(command: list[str], port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; fails if it does not start, or ends otherwise than with code 0."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        else:
            sys.exit("the server does not listen after 60 s")
        yield process
        process.send_signal(signal.SIGTERM)
        if (code := process.wait(60)) not in (0, -signal.SIGTERM):  # uvicorn.run passes the signal on
            sys.exit(f"the server has ended with code {code}")
    finally:
        process.kill()
        process.wait()


def memory_of(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def loads(lines: list[str], **given: Any) -> dict[str, Any]:
    """Measure a server: closed loops, then open ones at half and twice its rate."""
    clients("closed", lines=lines[:2000], clients=CLIENTS, **given)  # to warm up
    full = clients("closed", lines=lines, clients=CLIENTS, **given)
    alone = clients("closed", lines=lines[:500], clients=1, **given)
    half = clients("open", lines=lines, rate=full["per_second"] / 2, seconds=OPEN_SECONDS, **given)
    twice = clients("open", lines=lines, rate=2 * full["per_second"], seconds=OPEN_SECONDS, **given)
    return {"closed_64": full, "closed_1": alone, "open_half": half, "open_twice": twice}


def translate_speed(run: Path, lines: list[str]) -> float:
    """Return lines/s of the command line."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.write_text("".join(f"{line}\n" for line in lines))
        command = [sys.executable, "-m", "attnkit", "translate", str(run), "-i", str(source), "-o", f"{folder}/out"]
        rates = []
        for _ in range(3):
            done = subprocess.run([*command, "--precision", "int8"], capture_output=True, text=True, check=True)
            match = re.search(r"([\d,]+) lines/s", done.stderr.splitlines()[-1] + done.stderr)
            assert match is not None, done.stderr
            rates.append(float(match[1].replace(",", "")))
        return statistics.median(rates)


def main() -> None:
    """Measure both servers and write the figures."""
    if sys.argv[1:2] == ["--as-clients"]:
        import uvloop  # of attnkit[serve]

        given = json.load(sys.stdin)
        began = time.perf_counter()
        found = uvloop.run(closed_loop(given) if sys.argv[2] == "closed" else open_loop(given))
        json.dump((found, time.perf_counter() - began), sys.stdout)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument(
        "--peer", type=Path, help="Python with ctranslate2, tokenizers, starlette and uvicorn[standard]"
    )
    arguments = parser.parse_args()
    text = [line for line in arguments.data.read_text().splitlines() if line.strip()]
    lines = [text[i % len(text)] for i in range(arguments.lines)]
    threads = len(os.sched_getaffinity(0))
    beam: int = read_run_config(RunFolder(arguments.run).checkpoint()[0]).decoding.beam_size
    figures: dict[str, Any] = {"machine": machine(), "beam_size": beam, "lines": len(lines), "threads": threads}
    figures["translate_lines_per_second"] = translate_speed(arguments.run, lines)
    print(f"attnkit translate: {figures['translate_lines_per_second']:,.0f} lines/s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        serve = [sys.executable, "-m", "attnkit", "serve", f"en:de={arguments.run}", "--port", str(port)]
        with server([*serve, "--precision", "int8", "--max-waiting", str(WAITING)], port) as process:
            print("attnkit serve", flush=True)
            given = {"port": port, "path": "/translate", "body": {"target": "de"}, "field": "q"}
            figures["attnkit"] = loads(lines, **given)
            figures["memory_mb"] = endure(process.pid, text, arguments.requests, **given)
        if arguments.peer is not None:
            model = Path(folder) / "ct2"
            command = [sys.executable, "-m", "attnkit", "export", str(arguments.run), str(model), "--to", "ctranslate2"]
            subprocess.run([*command, "--quantization", "int8"], check=True, stdout=subprocess.DEVNULL)
            port = free_port()
            with server(
                [str(arguments.peer), "-c", OTHER, str(model), str(port), str(threads), str(beam)], port, PYTHONPATH=""
            ):
                print("starlette with CTranslate2", flush=True)
                figures["other"] = loads(lines, port=port, path="/translate", body={}, field="q")
    RESULT.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"wrote {RESULT}")


def endure(pid: int, text: list[str], n_requests: int, **given: Any) -> list[float]:
    """Send requests in ten rounds; return the server's memory in MB after each."""
    memory = []
    for _ in range(10):
        lines = [text[i % len(text)] for i in range(n_requests // 10)]
        clients("closed", lines=lines, clients=CLIENTS, **given)
        memory.append(round(memory_of(pid), 1))
    print(f"  memory after each tenth: {memory} MB", flush=True)
    return memory


if __name__ == "__main__":
    main()
