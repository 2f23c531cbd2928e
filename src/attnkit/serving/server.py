"""The server process: connections, signals, shutdown."""

from __future__ import annotations

import asyncio
import select
import signal
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from attnkit.errors import SystemFailure
from attnkit.runtime.scheduling import schedule_answering, schedule_computing, schedule_usually
from attnkit.serving.app import Service, refusal
from attnkit.serving.limits import RefusedError

KEEP_ALIVE = 5  #: seconds that an idle connection is kept after an answer
MAX_HEADER_BYTES = 1 << 15
FILES = 64  #: open files that are left for models and libraries
LINGER = 0.5  #: seconds after SIGTERM in which requests are still answered, by a refusal
GRACE = 30.0  #: seconds that running requests get after SIGTERM
ANSWERING = 5  #: further seconds in which those that were stopped are answered


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 connections that are closed if no request arrives, or no answer leaves.

    They are parsed by h11. httptools would take half of the time, but reads requests ahead without bound, and what
    follows an ``Upgrade`` header as a request of its own.

    Beyond the limit of connections, a new one takes the place of those that have waited longest for a request; while
    all have one, it is refused as by the application, which uvicorn's own answers are not.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._most = self.limit_concurrency or 1 << 30
        self.limit_concurrency = None

    _patience: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _idle: ClassVar[dict[ImpatientProtocol, float]] = {}  # connections without a request, and since when, oldest first
    SECONDS = 10.0  #: until the headers of a request have arrived
    STALLED = 30.0  #: until a client must have taken what was written
    MIN_IDLE = 0.5  #: seconds without a request after which a connection gives way: its request may be on its way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        for oldest, since in list(self._idle.items()) if len(self.connections) + 1 >= self._most else ():
            if self.loop.time() - since < self.MIN_IDLE or len(self.connections) + 1 < self._most:
                break
            if not oldest.has_data():
                oldest.drop()
        super().connection_made(transport)
        if len(self.connections) >= self._most:
            self.app = _refuse
        transport.set_write_buffer_limits(high=0)  # whatever stays behind pauses writing
        self._idle[self] = self.loop.time()
        self._wait()

    def has_data(self) -> bool:
        """Return whether data has arrived that was not read, as under load."""
        connection = self.transport.get_extra_info("socket")
        if connection is None or connection.fileno() < 0 or not hasattr(select, "poll"):
            return False
        arrived = select.poll()
        arrived.register(connection.fileno(), select.POLLIN)
        return bool(arrived.poll(0))

    def drop(self) -> None:
        """Close the connection at once, without an answer."""
        self._idle.pop(self, None)
        self.connections.discard(self)  # counted no longer, before the loop has closed it
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take data; wait again if they do not complete a request's headers."""
        super().data_received(data)
        if self._is_waiting():
            self._wait()
        else:
            self._idle.pop(self, None)
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn's own timer ends idle connections."""
        super().on_response_complete()
        if self._is_waiting() and not self.transport.is_closing():
            self._idle[self] = self.loop.time()
        self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid HTTP message in the form of other errors."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer has begun
            self.transport.close()
            return
        answer = refusal(RefusedError(400, msg))
        headers = [*answer.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        """Wait no longer: everything has left."""
        super().resume_writing()
        self._stop_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the waiting."""
        self._idle.pop(self, None)
        self._stop_waiting()
        self._stop_writing()
        super().connection_lost(exc)

    def _is_waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(self.SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _stop_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _give_up(self) -> None:
        self._patience = None
        if self._is_waiting() and not self.transport.is_closing():
            self.transport.close()


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    headers = {"Retry-After": "1", "Connection": "close"}
    await refusal(RefusedError(503, "too many connections; try again in 1 s", headers))(scope, receive, send)


class Server(uvicorn.Server):
    """A server that leaves signals to ``run_server``."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install nothing."""
        yield


def run_server(
    service: Service, host: str, port: int, *, tell: Callable[[str], None], access_log: bool = False
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads the models.

    ``tell`` receives the address and what happens to models. Running requests are finished first.

    Raises:
        SystemFailure: the address is in use or not this machine's.
    """
    config = uvicorn.Config(
        service.app(),
        host=host,
        port=port,
        http=ImpatientProtocol,
        ws="none",
        log_level="info" if access_log else "error",
        access_log=access_log,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=min(service.limits.connections, _most_connections()),
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=round(GRACE) + ANSWERING,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        log_config=_log_config(),
    )
    try:
        with _bound(config) as sockets:
            address = sockets[0].getsockname()
            schedule_answering()
            _run(_serve(config, service, sockets, tell, f"http://{_shown(address[0])}:{address[1]}"))
    except OSError as error:
        where = f"{host}:{port}"
        help = "choose another --port, or end the process that uses it"
        raise SystemFailure(f"cannot listen: {error.strerror or error}", where=where, help=help) from error
    finally:
        schedule_usually()


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run the event loop of uvloop, or Python's own where there is none (Windows)."""
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def _most_connections() -> int:
    """Return how many connections the system allows; its soft limit is raised."""
    try:
        import resource
    except ImportError:  # not a Unix: there is no such limit
        return 1 << 30
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(8, soft - FILES)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextmanager
def _bound(config: uvicorn.Config) -> Iterator[list[Any]]:
    """Yield a listening socket; raise ``OSError`` if there is none to be had."""
    import socket

    family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
    # With the protocol, asyncio sets TCP_NODELAY: without it the body of an answer waits 40 ms for an acknowledgement.
    with socket.socket(family, kind, protocol) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(config.backlog)  # before it is said: connections wait until uvicorn takes them
        yield [bound]


async def _serve(
    config: uvicorn.Config, service: Service, sockets: list[Any], tell: Callable[[str], None], address: str
) -> None:
    server = Server(config)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(initializer=schedule_computing))  # it loads models

    def close() -> None:
        server.should_exit = True

    def stop() -> None:
        if service.is_closing:
            server.should_exit = server.force_exit = True  # asked twice
            return
        service.is_closing = True
        loop.call_later(GRACE, service.models.stop)
        # Requests that are on their way are refused, which a closed connection does not tell.
        loop.call_later(LINGER if server.server_state.connections else 0.0, close)

    def reload() -> None:
        def report(done: asyncio.Future[list[str]]) -> None:
            for text in done.result():
                tell(f"reload: {text}")

        loop.run_in_executor(None, service.models.reload).add_done_callback(report)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, reload)
    names = ", ".join(service.models.by_name)
    tell(f"listening on {address} ({names}); Ctrl-C ends")
    await server.serve(sockets=sockets)


def _log_config() -> dict[str, Any]:
    """Return uvicorn's log settings, with everything on stderr."""
    config: dict[str, Any] = {**uvicorn.config.LOGGING_CONFIG}
    handlers = {name: {**handler, "stream": "ext://sys.stderr"} for name, handler in config["handlers"].items()}
    return {**config, "handlers": handlers}
