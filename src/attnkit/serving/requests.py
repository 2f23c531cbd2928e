"""Reading requests: bounded bodies, JSON or forms, keys, and clients that go away."""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from attnkit.io.plain_data import plain
from attnkit.io.safe_read import parse_json
from attnkit.serving.limits import Limits, RefusedError

ResultT = TypeVar("ResultT")
BodyT = TypeVar("BodyT", bound=BaseModel)
MAX_FIELDS = 64  #: fields of a form
FORM = "application/x-www-form-urlencoded"
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


async def read_body(request: Request, limits: Limits, hold: Callable[[int], None]) -> dict[str, Any]:
    """Return the fields of a JSON object or of a form.

    ``hold`` is called with the number of bytes of each part, and may raise.

    Raises:
        RefusedError: the body is too large (413), too slow (408), encoded (415), or not an object (400).
    """
    if request.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
        raise RefusedError(415, "compressed bodies are not read; send the text as it is")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.max_body:
        raise too_large(limits)
    block = RefusableBlock()
    late = RefusedError(408, f"the request took more than {limits.read_seconds:g} s to arrive")
    timer = asyncio.get_running_loop().call_later(limits.read_seconds, block.refuse, late)
    try:
        with block:
            raw = await _read(request, limits, hold)
    except ClientDisconnect:
        raise RefusedError(499, "the client has closed the connection") from None
    finally:
        timer.cancel()
    try:
        if kind_of(request) == FORM:
            return _parse_form(raw)
        found = parse_json(raw)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is not valid: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise RefusedError(400, "the body is not a JSON object")
    return found


def kind_of(request: Request) -> str:
    """Return the type of a body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def has_body(request: Request) -> bool:
    """Return whether a request has a body, or says of which type it is."""
    headers = request.headers
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers or "content-type" in headers


def check_kind(request: Request, *, form: bool) -> str:
    """Return the type of a body; raise ``RefusedError`` (415) unless it may be read.

    Pages of any origin may make a browser send other types, or none, without asking first.
    """
    kind = kind_of(request)
    if kind == "application/json" or (kind == FORM and form):
        return kind
    wanted = f"application/json{f' or {FORM}' if form else ''}"
    raise RefusedError(415, f"send Content-Type: {wanted}, not {kind[:80] or 'none'}")


async def _read(request: Request, limits: Limits, hold: Callable[[int], None]) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        hold(len(part))
        size += len(part)
        if size > limits.max_body:
            raise too_large(limits)
        parts.append(part)
    return b"".join(parts)


def _parse_form(raw: bytes) -> dict[str, Any]:
    if raw.lstrip()[:1] == b"{":
        raise ValueError("JSON needs the header Content-Type: application/json")
    fields = parse_qs(raw.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


def too_large(limits: Limits) -> RefusedError:
    """Return the answer to a body above the limit."""
    return RefusedError(413, f"the body has more than {limits.max_body:,} bytes; send less text at a time")


def validate_body(model: type[BodyT], fields: Mapping[str, Any]) -> BodyT:
    """Return a validated body; raise ``RefusedError`` (400) that names the field."""
    try:
        return model.model_validate(dict(fields))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        raise RefusedError(400, f"{place}: {first['msg']}" if place else first["msg"]) from None


def check_texts(texts: list[str], limits: Limits) -> None:
    """Raise ``RefusedError`` (413) for too many texts, lines or characters."""
    n_lines = sum(text.count("\n") + 1 for text in texts)
    if n_lines > limits.max_texts:
        raise RefusedError(413, f"{n_lines:,} lines are more than the {limits.max_texts:,} of a request")
    n_characters = sum(map(len, texts))
    if n_characters > limits.max_characters:
        raise RefusedError(413, f"{n_characters:,} characters are more than the {limits.max_characters:,} of a request")
    longest = max((len(line) for text in texts for line in text.split("\n")), default=0)
    if longest > limits.max_line:
        raise RefusedError(413, f"a line of {longest:,} characters is longer than {limits.max_line:,}")
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise RefusedError(400, "a text contains a lone surrogate") from None


def check_key(request: Request, key: str | None, given: object = None) -> None:
    """Raise ``RefusedError`` (401, 403) unless a request has the key, if there is one.

    It is read from ``Authorization: Bearer KEY``, ``Authorization: DeepL-Auth-Key KEY`` or a field ``api_key``.
    """
    if key is None:
        return
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    found = value.strip() if scheme.lower() in ("bearer", "deepl-auth-key") else given
    if not isinstance(found, str) or not found:
        raise RefusedError(401, "an API key is needed", {"WWW-Authenticate": "Bearer"})
    if not hmac.compare_digest(found.encode("utf-8", "replace"), key.encode()):
        raise RefusedError(403, "this API key is not valid")


class RefusableBlock:
    """Block of a task in which ``refuse``, called from elsewhere, raises an error.

    It costs no second task, as ``asyncio.wait_for`` would. ``refuse`` may be called by the loop of events or by other
    tasks, that is, while the block awaits something.
    """

    def __enter__(self) -> None:
        self._task, self._error = asyncio.current_task(), None

    _task: asyncio.Task[Any] | None = None
    _error: RefusedError | None = None

    def refuse(self, error: RefusedError) -> None:
        """End the block with an error, unless it has ended."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        task, self._task = self._task, None
        if self._error is not None and kind is asyncio.CancelledError:
            if sys.version_info >= (3, 11) and task is not None and task.uncancel():
                return  # cancelled by others as well
            raise self._error from None


async def unless_gone(request: Request, work: Awaitable[ResultT]) -> ResultT:
    """Return the result of work, which is cancelled if the client goes away.

    Raises:
        RefusedError: the client has gone (499, which nobody reads).
    """
    block = RefusableBlock()
    watcher = asyncio.ensure_future(_watch(request, block))
    try:
        with block:
            return await work
    finally:
        watcher.cancel()


async def _watch(request: Request, block: RefusableBlock) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    block.refuse(RefusedError(499, "the client has closed the connection"))


def to_json(tree: object) -> bytes:
    """Return plain data as JSON; numbers that JSON lacks become null."""
    try:
        text = _ENCODER.encode(tree)
    except ValueError:  # the rare case costs a copy
        text = _ENCODER.encode(plain(tree))
    return text.encode("utf-8", "replace")
