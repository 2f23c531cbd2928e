"""The application: routes, errors, headers and counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from attnkit.errors import AttnkitError, DataError, UsageError
from attnkit.quality.language_names import name_of
from attnkit.serving import answers, calls, schemas
from attnkit.serving.callers import check_host, check_origin
from attnkit.serving.limits import Limits, RefusedError, busy
from attnkit.serving.metrics import Metrics
from attnkit.serving.models import Models
from attnkit.serving.openapi import PostRoute, document
from attnkit.serving.page import page
from attnkit.serving.requests import (
    FORM,
    check_key,
    check_kind,
    has_body,
    read_body,
    to_json,
    unless_gone,
    validate_body,
)
from attnkit.serving.routes import Handler, Routes

POSTS = (
    PostRoute(
        *("/translate", schemas.LibreTranslateBody, calls.libretranslate, answers.LibreTranslateAnswer),
        "Translate, as LibreTranslate does.",
        form=True,
    ),
    PostRoute(
        *("/v2/translate", schemas.DeepLBody, calls.deepl, answers.DeepLAnswer), "Translate, as DeepL does.", form=True
    ),
    PostRoute(
        *("/v1/translations", schemas.TranslationsBody, calls.translations, answers.TranslationsAnswer),
        "Translate one text, as vLLM does.",
        stream=calls.translations_stream,
    ),
    PostRoute(
        *("/v1/translate", schemas.TranslateBody, calls.translate, answers.TranslateAnswer),
        "Translate, with alternatives and scores.",
    ),
    PostRoute("/v1/score", schemas.ScoreBody, calls.score, answers.ScoreAnswer, "Score translations or texts."),
    PostRoute(
        *("/v1/predict", schemas.PredictBody, calls.predict, answers.PredictAnswer), "Predict labels, tags or answers."
    ),
    PostRoute("/v1/fill-mask", schemas.FillMaskBody, calls.fill_mask, answers.FillMaskAnswer, "Fill masks."),
    PostRoute(
        *("/v1/generate", schemas.GenerateBody, calls.generate, answers.GenerateAnswer),
        "Generate text, as a whole or as a stream.",
        stream=calls.generate_stream,
    ),
    PostRoute("/v1/embed", schemas.EmbedBody, calls.embed, answers.EmbedAnswer, "Embed texts, words or vectors."),
    PostRoute("/v1/similar", schemas.SimilarBody, calls.similar, answers.SimilarAnswer, "Find similar words."),
)
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer, none of which a handler sets itself."""


class Service:
    """The handlers of all routes, over the models of a service."""

    def __init__(
        self, models: Models, *, api_key: str | None = None, origins: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
    ) -> None:
        """Take loaded models.

        Args:
            models: the runs.
            api_key: key that every request but ``/health`` and ``/ready`` must have; None: no key.
            origins: origins of pages that may call the service (CORS); none by default.
            hosts: names by which clients call the service, beside its addresses and ``localhost``. With a key any is
                taken, as a page of another site does not have the key.
        """
        self.models, self.key, self.origins = models, api_key, origins
        self.hosts = frozenset(host.lower() for host in hosts)
        self.metrics = Metrics()
        self.is_closing, self.n_streams = False, 0
        self.n_bytes = 0  #: of the bodies of requests that are not answered

    @property
    def limits(self) -> Limits:
        """Limits of requests."""
        return self.models.limits

    def app(self) -> ASGIApp:
        """Return the ASGI application."""
        gets = {
            "/": self.page,
            "/health": self.health,
            "/ready": self.ready,
            "/metrics": self.show_metrics,
            "/languages": self.languages,
            "/frontend/settings": self.settings,
            "/v1/models": self.list_models,
            "/openapi.json": self.openapi,
        }
        posts = {post.path: self._post(post) for post in POSTS}
        posts |= {"/detect": self.detect, "/admin/reload": self.reload}
        routes = {("GET", path): self._counted(path, handler) for path, handler in gets.items()}
        routes |= {("POST", path): self._counted(path, handler) for path, handler in posts.items()}
        app = Routes(routes, self._unknown, self._close)
        if not self.origins:
            return app
        from starlette.middleware.cors import CORSMiddleware

        class Preflight(CORSMiddleware):
            def preflight_response(self, request_headers: Headers) -> Response:
                response = super().preflight_response(request_headers)
                response.raw_headers.extend(HEADERS)
                return response

        origins, headers = list(self.origins), ["authorization", "content-type"]
        return Preflight(app, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=headers)

    async def _close(self) -> None:
        self.is_closing = True
        await asyncio.get_running_loop().run_in_executor(None, self.models.close, 5.0)

    def _counted(self, path: str, handler: Handler) -> Handler:
        """Wrap a handler: errors become answers, and every answer is counted."""

        async def answer(request: Request) -> Response:
            began = time.monotonic()
            try:
                if self.key is None:
                    check_host(request, self.hosts)
                response = await handler(request)
            except RefusedError as error:
                response = _error(error)
            except (UsageError, DataError) as error:
                response = _error(RefusedError(400, f"{error.what}" + (f" ({error.help})" if error.help else "")))
            except AttnkitError as error:
                response = _error(RefusedError(500, error.what))
            except Exception as error:  # a bug of ours: no traceback leaves the service
                response = _error(RefusedError(500, f"internal error: {type(error).__name__}"))
            finally:
                self.n_bytes -= getattr(request.state, "n_bytes", 0)
            self.metrics.add(path, response.status_code, time.monotonic() - began)
            response.raw_headers.extend(HEADERS)
            return response

        return answer

    def _hold(self, request: Request, n: int) -> None:
        """Count bytes of a body until its request is answered.

        Raises ``RefusedError`` (503) if there are too many with those of the others.
        """
        if self.n_bytes + n > self.limits.max_bodies:
            raise busy(1.0)
        self.n_bytes += n
        request.state.n_bytes = getattr(request.state, "n_bytes", 0) + n

    def _post(self, post: PostRoute) -> Handler:
        async def handle(request: Request) -> Response:
            fields = await self._read(request, form=post.form)
            body = validate_body(post.body, fields)
            if post.stream is not None and getattr(body, "stream", False):
                begin = partial(post.stream, self.models, body)
                return await self._stream(lambda: unless_gone(request, begin()))
            found = await unless_gone(request, post.call(self.models, body))
            return Response(to_json(found), media_type="application/json")

        return handle

    async def _read(self, request: Request, *, form: bool = False) -> dict[str, Any]:
        """Read a body and check the key, in the header or in the body."""
        if self.is_closing:
            raise RefusedError(503, "the service is shutting down", {"Retry-After": "5"})
        fields: dict[str, Any] = {}
        if has_body(request):
            if check_kind(request, form=form) == FORM:
                check_origin(request, self.origins)
            fields = await read_body(request, self.limits, partial(self._hold, request))
        check_key(request, self.key, fields.pop("api_key", None))
        return fields

    async def _stream(self, begin: Callable[[], Awaitable[AsyncGenerator[dict[str, Any], None]]]) -> Response:
        if self.n_streams >= self.limits.max_streams:
            raise busy(self.limits.seconds / 2)
        self.n_streams += 1  # at once, as others may ask before the first piece
        try:
            pieces = await begin()
        except BaseException:
            self.n_streams -= 1
            raise
        end = time.monotonic() + self.limits.seconds

        async def events() -> AsyncIterator[bytes]:
            try:
                async for piece in pieces:
                    yield b"data: " + to_json(piece) + b"\n\n"
                    if self.models.is_stopped:
                        raise RefusedError(503, "the service is shutting down")
                    if time.monotonic() > end:
                        raise RefusedError(504, f"no end within {self.limits.seconds:g} s")
                yield b"data: [DONE]\n\n"
            except Exception as error:  # the answer has begun: its code cannot change
                what = getattr(error, "what", None) or getattr(
                    error, "message", f"internal error: {type(error).__name__}"
                )
                yield b"data: " + to_json({"error": what}) + b"\n\n"
            finally:
                await pieces.aclose()

        def end_stream() -> None:
            self.n_streams -= 1

        return _Stream(events(), end_stream)

    async def page(self, request: Request) -> Response:
        """Return the page for people."""
        return HTMLResponse(page(self.models, needs_key=self.key is not None))

    async def health(self, request: Request) -> Response:
        """Say that the process runs, and which runs are not served."""
        return JSONResponse({"status": "ok", **self._problems()})

    async def ready(self, request: Request) -> Response:
        """Say whether requests are taken."""
        if self.is_closing:
            raise RefusedError(503, "the service is shutting down", {"Retry-After": "5"})
        return JSONResponse({"status": "ready", "models": list(self.models.by_name), **self._problems()})

    def _problems(self) -> dict[str, list[str]]:
        """Return names of runs that are not served, and that keep an older checkpoint."""
        outdated = [name for name, model in self.models.by_name.items() if model.is_outdated]
        return {"failed": list(self.models.failed), "outdated": outdated}

    async def show_metrics(self, request: Request) -> Response:
        """Return all counters."""
        check_key(request, self.key)
        return PlainTextResponse(self.metrics.text(self.models), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def languages(self, request: Request) -> Response:
        """Return the languages, as LibreTranslate does."""
        targets: dict[str, list[str]] = {}
        for model in self.models.translators():
            src, tgt = model.languages or ("src", "tgt")
            targets.setdefault(src, []).append(tgt)
        codes = list(dict.fromkeys([*targets, *(code for own in targets.values() for code in own)]))
        found = [{"code": code, "name": name_of(code), "targets": targets.get(code, [])} for code in codes]
        return JSONResponse(found)

    async def settings(self, request: Request) -> Response:
        """Return what LibreTranslate's own page asks for."""
        first = next(iter(self.models.translators()), None)
        src, tgt = (first.languages if first is not None else None) or ("src", "tgt")
        named = [{"code": code, "name": name_of(code)} for code in (src, tgt)]
        return JSONResponse(
            {
                "apiKeys": self.key is not None,
                "charLimit": self.limits.max_characters,
                "frontendTimeout": 500,
                "keyRequired": self.key is not None,
                "language": {"source": named[0], "target": named[1]},
                "filesTranslation": False,
                "suggestions": False,
                "supportedFilesFormat": [],
            }
        )

    async def detect(self, request: Request) -> Response:
        """Refuse to detect languages: no run can."""
        validate_body(schemas.DetectBody, await self._read(request, form=True))
        raise RefusedError(501, "this service does not detect languages; name the source language")

    async def list_models(self, request: Request) -> Response:
        """Return the models with their tasks, languages and summaries."""
        check_key(request, self.key)
        found = []
        for model in self.models.by_name.values():
            summary = model.model.summary.to_dict()
            summary = {key: value for key, value in summary.items() if key not in ("path", "languages")}
            languages = dict(zip(("source_lang", "target_lang"), model.languages or (), strict=False))
            found.append({"name": model.name, **languages, **summary})
        return Response(to_json({"models": found}), media_type="application/json")

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document."""
        return JSONResponse(document(POSTS))

    async def reload(self, request: Request) -> Response:
        """Replace models by newer checkpoints; only with a key."""
        if self.key is None:
            raise RefusedError(403, "reloading by request needs an API key; send SIGHUP to the process")
        await self._read(request)
        said = await asyncio.get_running_loop().run_in_executor(None, self.models.reload)
        return JSONResponse({"models": said})

    def _unknown(self, allowed: list[str]) -> Response:
        status, said = (405, "this route has another method") if allowed else (404, "no such route")
        self.metrics.add("unknown", status, 0.0)
        return refusal(RefusedError(status, said, {"Allow": ", ".join(allowed)} if allowed else None))


class _Stream(StreamingResponse):
    """Server-sent events; ``end`` is called when they end, or were never begun."""

    def __init__(self, events: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


def _error(error: RefusedError) -> Response:
    """Return an error as LibreTranslate (``error``) and DeepL (``message``) do."""
    content = to_json({"error": error.message, "message": error.message})
    return Response(content, error.status, headers=error.headers, media_type="application/json")


def refusal(error: RefusedError) -> Response:
    """Return the answer to a request that no handler has seen."""
    response = _error(error)
    response.raw_headers.extend(HEADERS)
    return response
