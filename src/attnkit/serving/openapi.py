"""The OpenAPI document, from the schemas of bodies and answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from attnkit.runtime.version import installed_version
from attnkit.serving import answers, schemas
from attnkit.serving.models import Models
from attnkit.serving.requests import FORM

JSON = "application/json"


@dataclass(frozen=True)
class PostRoute:
    """A route that reads a body and answers with JSON."""

    path: str
    body: type[BaseModel]
    call: Callable[[Models, Any], Awaitable[dict[str, Any]]]
    answer: type[BaseModel]
    summary: str
    form: bool = False  #: whether the body may be a form, as clients of the other service send it
    stream: Callable[[Models, Any], Awaitable[AsyncGenerator[dict[str, Any], None]]] | None = None
    """Function for server-sent events, for a body that asks for a ``stream``; None: there are none."""


_GETS: dict[str, tuple[str, type[BaseModel]]] = {
    "/health": ("Whether the process runs.", answers.HealthAnswer),
    "/ready": ("Whether requests are taken.", answers.ReadyAnswer),
    "/frontend/settings": ("Settings that LibreTranslate's page asks for.", answers.SettingsAnswer),
    "/v1/models": ("Models, tasks and languages.", answers.ModelsAnswer),
}
OPEN = ("/health", "/ready", "/languages", "/frontend/settings", "/openapi.json", "/")
"""Routes that need no key."""
ERRORS = {
    "400": "A field is missing or invalid.",
    "401": "An API key is needed.",
    "403": "The API key is not valid, or a page of another origin sent a form.",
    "404": "The model is not served.",
    "408": "The request took too long to arrive.",
    "413": "The request exceeds a limit.",
    "415": "The type of the body is not read, or it is compressed.",
    "421": "The request names another host.",
    "500": "The model failed.",
    "503": "Too much text is waiting, or the model could not be loaded; Retry-After says for how long.",
    "504": "The request was not answered in time.",
}


def document(posts: Sequence[PostRoute]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a service with these routes."""
    found = _Schemas()
    paths: dict[str, Any] = {}
    for path, (summary, answer) in _GETS.items():
        paths[path] = {"get": _operation(path, summary, found, {JSON: found.add(answer)}, ("401", "403", "421"))}
    languages = {"type": "array", "items": found.add(answers.LanguageAnswer)}
    for path, summary, content in (
        ("/", "A page for people.", {"text/html": {"type": "string"}}),
        ("/languages", "Languages and their targets, as LibreTranslate has them.", {JSON: languages}),
        ("/metrics", "Counters in Prometheus' text format.", {"text/plain": {"type": "string"}}),
        ("/openapi.json", "This document.", {JSON: {"type": "object"}}),
    ):
        paths[path] = {"get": _operation(path, summary, found, content, ("401", "403", "421"))}
    for post in posts:
        content = {JSON: found.add(post.answer)}
        if post.stream is not None:
            content["text/event-stream"] = {"type": "string"}
        own = _operation(post.path, post.summary, found, content, tuple(ERRORS))
        body = {kind: {"schema": found.add(post.body)} for kind in (JSON, *([FORM] if post.form else []))}
        paths[post.path] = {"post": own | {"requestBody": {"required": True, "content": body}}}
    detect = _operation("/detect", "Refuse to detect languages, as LibreTranslate's client expects it.", found, {}, ())
    kinds = {kind: {"schema": found.add(schemas.DetectBody)} for kind in (JSON, FORM)}
    detect["responses"] = {"501": _response("No run detects languages.", {JSON: found.add(answers.ErrorAnswer)})}
    paths["/detect"] = {"post": detect | {"requestBody": {"required": True, "content": kinds}}}
    reloads = {JSON: found.add(answers.ReloadAnswer)}
    own = _operation("/admin/reload", "Load newer checkpoints, and runs that failed.", found, reloads, ("401", "403"))
    paths["/admin/reload"] = {"post": own}
    bearer = {"type": "http", "scheme": "bearer", "description": "Also: Authorization: DeepL-Auth-Key KEY."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "attnkit serve", "version": installed_version()},
        "paths": paths,
        "components": {"schemas": found.by_name, "securitySchemes": {"key": bearer}},
        "security": [{"key": []}, {}],
    }


class _Schemas:
    """Schemas that the document names."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def add(self, model: type[BaseModel]) -> dict[str, Any]:
        """Add the schema of a model, and those in it; return a reference to it."""
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        self.by_name |= schema.pop("$defs", {})
        self.by_name[model.__name__] = schema
        return {"$ref": f"#/components/schemas/{model.__name__}"}


def _response(description: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {kind: {"schema": schema} for kind, schema in content.items()}}


def _operation(
    path: str, summary: str, schemas: _Schemas, content: dict[str, Any], errors: Sequence[str]
) -> dict[str, Any]:
    """Return an operation with its answer of code 200, and errors."""
    error = {JSON: schemas.add(answers.ErrorAnswer)}
    responses = {"200": _response("OK", content), **{code: _response(ERRORS[code], error) for code in errors}}
    name = path.strip("/").replace("/", "_").replace(".", "_").replace("-", "_") or "page"
    own: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    return own | ({"security": []} if path in OPEN else {})
