"""``attnkit serve``: trained runs behind one address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli import options


def command(
    runs: Annotated[
        list[str],
        Argument(help="Run folder of any task; NAME=RUN names it, en:de=RUN names its languages.", metavar="RUN..."),
    ],
    host: Annotated[str, Option(help="Address to listen on; others than this machine's own need a key.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8000,
    api_key_file: Annotated[
        Path | None, Option(help="File with the API key that requests must have. [default: $ATTNKIT_API_KEY]")
    ] = None,
    no_auth: Annotated[bool, Option(help="Serve other machines without a key.")] = False,
    cors_origin: Annotated[
        list[str] | None, Option(help="Origin of web pages that may call the service; repeatable.", metavar="URL")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        Option(help="Name by which clients call the service, if not by address; repeatable.", metavar="NAME"),
    ] = None,
    max_texts: Annotated[int, Option(min=1, max=1 << 20, help="Maximum lines of a request.")] = 512,
    max_characters: Annotated[int, Option(min=1, max=1 << 26, help="Maximum characters of a request.")] = 100_000,
    max_waiting: Annotated[int, Option(min=1, max=1 << 24, help="Lines that may wait before requests get 503.")] = 4096,
    max_wait: Annotated[
        float, Option(min=0.1, help="Seconds that a line may take while others wait; requests that would are refused.")
    ] = 10.0,
    max_beam_size: Annotated[int, Option(min=1, max=1024, help="Maximum beam size of a request.")] = 16,
    request_seconds: Annotated[float, Option(min=0.1, help="Seconds until a request is answered with 504.")] = 60.0,
    access_log: Annotated[bool, Option(help="Log the line of each request, without text, to standard error.")] = False,
    device: options.Device = "auto",
    precision: options.Precision = "float32",
    threads: options.Threads = None,
) -> None:
    """Serve trained runs over HTTP; needs attnkit[serve].

    Clients of LibreTranslate work unmodified (/translate, /languages), DeepL's /v2/translate too; attnkit's own routes
    are below /v1, their OpenAPI document is /openapi.json, and / is a page for people. Lines of waiting requests are
    translated together. SIGTERM finishes the running requests, SIGHUP loads newer checkpoints.

    \b
    Examples:
      attnkit serve run
      attnkit serve en:de=run1 de:en=run2 --port 8080 --precision int8
      attnkit serve run --host 0.0.0.0 --api-key-file key.txt
    """
    from attnkit.serving.serve import read_key, serve

    serve(
        runs,
        host=host,
        port=port,
        api_key=None if api_key_file is None else read_key(api_key_file),
        no_auth=no_auth,
        cors_origin=cors_origin or (),
        allowed_host=allowed_host or (),
        max_texts=max_texts,
        max_characters=max_characters,
        max_waiting=max_waiting,
        max_wait=max_wait,
        max_beam_size=max_beam_size,
        request_seconds=request_seconds,
        access_log=access_log,
        device=device,
        precision=precision,
        threads=threads,
    )
