"""The call behind ``attnkit serve``."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from attnkit.config.arguments import Count, checked
from attnkit.errors import UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.progress import console
from attnkit.serving.limits import Limits

KEY_VARIABLE = "ATTNKIT_API_KEY"
DEFAULTS = Limits()
SHORTEST = 0.1  #: seconds that a limit of time may be


@checked
def serve(
    runs: Sequence[str | Path],
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, 0] = 8000,
    api_key: str | None = None,
    no_auth: bool = False,
    cors_origin: Sequence[str] = (),
    allowed_host: Sequence[str] = (),
    max_texts: Count = DEFAULTS.max_texts,
    max_characters: Count = DEFAULTS.max_characters,
    max_waiting: Count = DEFAULTS.max_waiting,
    max_wait: float = DEFAULTS.max_wait,
    max_beam_size: Count = DEFAULTS.max_beam_size,
    request_seconds: float = DEFAULTS.seconds,
    access_log: bool = False,
    device: str = "auto",
    precision: Precision = "float32",
    threads: Count | None = None,
) -> None:
    """Serve runs over HTTP until SIGTERM or Ctrl-C; needs ``attnkit[serve]``.

    Messages go to standard error. SIGHUP loads newer checkpoints.

    Args:
        runs: run folders of any task; ``NAME=RUN`` names one, ``en:de=RUN`` its languages.
        host: address to listen on; others than this machine's own need a key.
        port: port to listen on; 0: any free one.
        api_key: key that requests must have; None: that of the environment variable ``ATTNKIT_API_KEY``, if it is set.
        no_auth: whether to serve other machines without a key.
        cors_origin: origins of web pages that may call the service.
        allowed_host: names by which clients call the service, if not by address.
        max_texts: maximum lines of a request.
        max_characters: maximum characters of a request.
        max_waiting: lines that may wait before requests get 503.
        max_wait: seconds that a line may take while others wait; requests that would are refused.
        max_beam_size: maximum beam size of a request.
        request_seconds: seconds until a request is answered with 504.
        access_log: whether to log the line of each request, without text.
        device: see ``attnkit.load``, as ``precision`` and ``threads``.

    Raises:
        UsageError: a value out of its range, an address for others without a key, two runs of one name, the call of
            another than the main thread, or the extra is not installed.
        RunError: no run can be served.
        SystemFailure: the address is in use or not this machine's.
    """
    seconds = {"max_wait": max_wait, "request_seconds": request_seconds}
    for name, is_fine, wanted in (
        ("runs", bool(runs), "a run or more"),
        ("host", bool(host), "an address"),
        ("port", port < 1 << 16, "at most 65,535"),
        ("api_key", api_key is None or bool(api_key.strip()), "a key, or None"),
        *((name, SHORTEST <= value < math.inf, f"at least {SHORTEST} seconds") for name, value in seconds.items()),
    ):
        if not is_fine:
            raise UsageError(f"{name} must be {wanted}", where="attnkit.serve", help="see help(attnkit.serve)")
    if threading.current_thread() is not threading.main_thread():
        what = "serve handles signals, which only the main thread can"
        raise UsageError(what, where="attnkit.serve", help="start a process: attnkit serve RUN")
    key = api_key if api_key is not None else os.environ.get(KEY_VARIABLE) or None
    if not is_own_address(host) and key is None and not no_auth:
        what = f"{host} can be reached from other machines, and no API key is set"
        help = "set a key (--api-key-file FILE, api_key=), or --no-auth to serve anyone"
        raise UsageError(what, where="host", help=help)
    try:
        from attnkit.serving.app import Service
        from attnkit.serving.server import run_server
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "h11"):
            raise
        raise UsageError(f"{error.name} is not installed", help="pip install 'attnkit[serve]'") from error
    from attnkit.serving.models import Models

    limits = Limits(
        max_texts=max_texts,
        max_characters=max_characters,
        max_waiting=max_waiting,
        max_wait=max_wait,
        max_beam_size=max_beam_size,
        seconds=request_seconds,
    )
    specs = [str(run) for run in runs]
    models = Models(specs, limits, device=device, precision=precision, threads=threads, tell=console.warn)
    service = Service(models, api_key=key, origins=tuple(cors_origin), hosts=(host, *allowed_host))
    run_server(service, host, port, tell=console.info, access_log=access_log)


def is_own_address(host: str) -> bool:
    """Return whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def read_key(path: Path) -> str:
    """Return the key of a file.

    Raises:
        UsageError: the key is empty or spans several lines.
    """
    from attnkit.text.lines import read_lines

    lines = [line.strip() for line in read_lines(path) if line.strip()]
    if len(lines) != 1:
        raise UsageError(f"{len(lines)} lines instead of one key", where=str(path), help="write the key on one line")
    return lines[0]
