"""Load on `attnkit serve`: throughput, latency, overload and memory, beside a server of CTranslate2 as usually written.

    PYTHONPATH=src python benchmarks/serve_load.py --run RUN --data FILE [--lines 2500] [--rounds 5]
        [--memory-requests 100000] [--memory-minutes 20] [--peer PYTHON]

RUN is a translation run; FILE is text of its source language. A request has one sentence, which is searched with the
run's own beam size, in int8. Clients are on the same machine in a process of their own, with one connection each.

A machine drifts by more than what is to be decided, so everything takes turns. One round is:

1. `attnkit translate` of the lines: lines/s, as it says itself.
2. Closed loop of the same lines, directly after: 64 clients, each sends its next sentence when it has its answer.
3. The same on the other server: starlette with CTranslate2 (int8, a worker per thread), one batch a request.
4. One client alone, then at once open loops: requests arrive at random moments, at half of the rate of 2, then at
   twice that rate, where what cannot be served within a second is to be refused. The other server: the same at its own
   rates.

Each round has ratios of its own; the result has all rounds, their medians, and ratios of the medians. The servers wait
idle for their turns. At the end --memory-requests requests of 64 clients go to attnkit's, for at most --memory-minutes:
growth of its memory after the first tenth.

The other server is run by --peer, a Python with ctranslate2, tokenizers, starlette and uvicorn[standard]. Figures go to
--result (benchmarks/results/serve_load.json) at the end; nothing is resumed. Five rounds of 2,500 lines take ten
minutes on two cores, 100,000 requests some more. --rounds 0 sends these alone and keeps the rounds of --result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import machine

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_run_config

RESULT = Path(__file__).parent / "results" / "serve_load.json"
CLIENTS = 64
N_ALONE = 500  # lines of one client
OPEN_SECONDS = 12.0
MAX_WAIT = 1.0  # seconds that a line may take while others wait: the bound of the queue
MIN_ROUNDS = 5  # a median of fewer decides nothing
PARTS = 10  # of the requests of the memory part
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
        self.head = f"POST {given['path']} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
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
    """Run clients of which each sends its next line when it has its answer, until there are no more or time is up."""
    lines = iter(given["lines"])
    end = time.perf_counter() + given.get("seconds", math.inf)
    found: list[tuple[int, float]] = []

    async def client() -> None:
        connection = await connect(given)
        for line in lines:
            if (began := time.perf_counter()) >= end:
                return
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
    began, used = time.perf_counter(), cpu_of_children()
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
        "clients_cpu_seconds": round(cpu_of_children() - used, 2),  # of the same CPUs
    }  # fmt: skip
    print(f"  {kind:<12} {figures}  ({time.perf_counter() - began:.0f} s)", flush=True)
    return figures


def cpu_of_children() -> float:
    """Return the processor time of all clients so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def at(seconds: Sequence[float], share: float) -> float | None:
    """Return a quantile of sorted seconds, in milliseconds."""
    return round(1000 * seconds[min(len(seconds) - 1, int(share * len(seconds)))], 1) if seconds else None


# --- servers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(command: list[str], port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; fails if it does not start, or ends otherwise than with code 0."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        for _ in range(3000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        else:
            sys.exit("the server does not listen after 300 s")
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


def translate_speed(run: Path, lines: list[str]) -> float:
    """Return lines/s of the command line."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.write_text("".join(f"{line}\n" for line in lines))
        command = [sys.executable, "-m", "attnkit", "translate", str(run), "-i", str(source), "-o", f"{folder}/out"]
        done = subprocess.run([*command, "--precision", "int8"], capture_output=True, text=True, check=True)
    found = re.findall(r"([\d,]+) lines/s", done.stderr)  # the last one is that of all lines
    if not found:
        sys.exit("translate says no rate of so few --lines")
    return float(found[-1].replace(",", ""))


@dataclass(frozen=True)
class Server:
    """A running server: where and how it is asked."""

    name: str
    asked: dict[str, Any]
    pid: int

    def closed(self, lines: list[str], n_clients: int = CLIENTS, **given: Any) -> dict[str, Any]:
        return clients("closed", lines=lines, clients=n_clients, **self.asked, **given) | self._memory()

    def open(self, lines: list[str], rate: float) -> dict[str, Any]:
        return clients("open", lines=lines, rate=rate, seconds=OPEN_SECONDS, **self.asked) | self._memory()

    def _memory(self) -> dict[str, float]:
        return {"mb": round(memory_of(self.pid), 1)}


# --- rounds


def measure(run: Path, lines: list[str], servers: list[Server]) -> dict[str, Any]:
    """Measure one round: neighbours in time are what is compared."""
    figures: dict[str, Any] = {"translate_lines_per_second": translate_speed(run, lines)}
    print(f"  attnkit translate: {figures['translate_lines_per_second']:,.0f} lines/s", flush=True)
    for server in servers:
        print(f"  {server.name}: 64 clients", flush=True)
        figures[server.name] = {"closed_64": server.closed(lines)}
    for server in servers:
        print(f"  {server.name}: one client; half of the rate; twice the rate", flush=True)
        rate = figures[server.name]["closed_64"]["per_second"]
        figures[server.name] |= {
            "closed_1": server.closed(lines[:N_ALONE], 1),
            "open_half": server.open(lines, rate / 2),
            "open_twice": server.open(lines, 2 * rate),
        }
    return figures | {"ratios": ratios(figures)}


def ratios(figures: dict[str, Any]) -> dict[str, float]:
    """Return what is asked for, of the figures of a round or of medians."""
    own = figures["attnkit"]
    alone, full = own["closed_1"]["p50_ms"], own["closed_64"]["per_second"]
    found = {
        "closed_64 / translate": full / figures["translate_lines_per_second"],
        "open_half p50 / closed_1 p50": own["open_half"]["p50_ms"] / alone,
        "open_half p99 / closed_1 p50": own["open_half"]["p99_ms"] / alone,
        "open_twice / closed_64": own["open_twice"]["per_second"] / full,
        "open_twice p99 / bound": own["open_twice"]["p99_ms"] / (1000 * MAX_WAIT),
        "open_twice mb / closed_64": own["open_twice"]["mb"] / own["closed_64"]["mb"],
    }
    if "other" in figures:
        other = figures["other"]
        found["closed_64 / other"] = full / other["closed_64"]["per_second"]
        found["closed_64 p99 / other"] = own["closed_64"]["p99_ms"] / other["closed_64"]["p99_ms"]
        found["open_half p99 / other"] = own["open_half"]["p99_ms"] / other["open_half"]["p99_ms"]
    return {name: round(value, 3) for name, value in found.items()}


def medians(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of each figure over rounds; None where no round has one."""
    found: dict[str, Any] = {}
    for name in rounds[0]:
        values = [figures[name] for figures in rounds if figures[name] is not None]
        if values and isinstance(values[0], dict):
            found[name] = medians(values)
        else:
            found[name] = round(statistics.median(values), 3) if values else None
    return found


def endure(server: Server, text: list[str], n_requests: int, minutes: float) -> dict[str, Any]:
    """Send requests in parts for so many minutes at most; return the memory in MB after each and its growth."""
    server.closed(sorted(text, key=len)[-CLIENTS:])  # working memory is made for the longest line so far
    end, memory, n_sent = time.perf_counter() + 60 * minutes, list[float](), 0
    for part in range(PARTS):
        seconds = end - time.perf_counter()
        if seconds <= 0:
            break
        lines = [text[i % len(text)] for i in range(n_requests * part // PARTS, n_requests * (part + 1) // PARTS)]
        n_sent += server.closed(lines, seconds=seconds)["answers"]
        memory.append(round(memory_of(server.pid), 1))
        print(f"  {n_sent:,} of {n_requests:,} requests: {memory[-1]} MB", flush=True)
    growth = max(memory) / memory[0] - 1
    return {"asked": n_requests, "requests": n_sent, "mb_after_each_part": memory, "growth": round(growth, 4)}


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
    parser.add_argument("--lines", type=int, default=2500, help="lines of a round")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help=f"0 or at least {MIN_ROUNDS}")
    parser.add_argument("--memory-requests", type=int, default=100_000, help="0 for none")
    parser.add_argument("--memory-minutes", type=float, default=20.0, help="end of the memory part, whatever was sent")
    parser.add_argument("--peer", type=Path, help="Python with ctranslate2, tokenizers, starlette, uvicorn[standard]")
    parser.add_argument("--result", type=Path, default=RESULT)
    arguments = parser.parse_args()
    if 0 != arguments.rounds < MIN_ROUNDS:
        parser.error(f"--rounds: 0, or at least {MIN_ROUNDS}")
    if not arguments.rounds and not arguments.memory_requests:
        parser.error("--rounds 0 needs --memory-requests")
    if 0 < arguments.memory_requests < PARTS * CLIENTS or arguments.memory_minutes <= 0:
        parser.error(f"--memory-requests: 0, or at least {PARTS * CLIENTS}, within a positive --memory-minutes")
    figures = run_all(arguments)
    if not arguments.rounds and arguments.result.exists():
        figures = json.loads(arguments.result.read_text()) | {"memory": figures["memory"]}
    arguments.result.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"wrote {arguments.result}")


def run_all(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start the servers and measure all rounds, then the memory."""
    text = [line for line in arguments.data.read_text().splitlines() if line.strip()]
    lines = [text[i % len(text)] for i in range(arguments.lines)]
    threads = len(os.sched_getaffinity(0))
    beam: int = read_run_config(RunFolder(arguments.run).checkpoint()[0]).decoding.beam_size
    figures: dict[str, Any] = {"machine": machine(), "beam_size": beam, "lines": len(lines), "threads": threads}
    with ExitStack() as stack:
        port = free_port()
        serve = [sys.executable, "-m", "attnkit", "serve", f"en:de={arguments.run}", "--port", str(port)]
        serve += ["--precision", "int8", "--max-wait", str(MAX_WAIT)]
        asked: dict[str, Any] = {"port": port, "path": "/translate", "body": {"target": "de"}, "field": "q"}
        servers = [Server("attnkit", asked, stack.enter_context(started(serve, port)).pid)]
        if arguments.peer is not None:
            model = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ct2"
            command = [sys.executable, "-m", "attnkit", "export", str(arguments.run), str(model), "--to", "ctranslate2"]
            subprocess.run([*command, "--quantization", "int8"], check=True, stdout=subprocess.DEVNULL)
            port = free_port()
            other = [str(arguments.peer), "-c", OTHER, str(model), str(port), str(threads), str(beam)]
            process = stack.enter_context(started(other, port, PYTHONPATH=""))
            servers.append(Server("other", asked | {"port": port, "body": {}}, process.pid))
        print("warming up", flush=True)
        translate_speed(arguments.run, lines)
        for server in servers:
            server.closed(lines[:2000])
        figures["rounds"] = []
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", flush=True)
            figures["rounds"].append(measure(arguments.run, lines, servers))
            print(f"  {figures['rounds'][-1]['ratios']}", flush=True)
        if figures["rounds"]:
            figures["medians"] = medians(figures["rounds"])  # under "ratios" the medians of the rounds' ratios
            figures["ratios_of_medians"] = ratios(figures["medians"])
            print(f"ratios of medians: {figures['ratios_of_medians']}", flush=True)
        if arguments.memory_requests:
            figures["memory"] = endure(servers[0], text, arguments.memory_requests, arguments.memory_minutes)
    return figures


if __name__ == "__main__":
    main()
