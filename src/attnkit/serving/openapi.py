"""The OpenAPI document, from the schemas of bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

_GETS = {
    "/health": "Whether the process runs.",
    "/ready": "Whether requests are taken.",
    "/metrics": "Counters in Prometheus' text format.",
    "/languages": "Languages and their targets.",
    "/frontend/settings": "Settings that LibreTranslate's page asks for.",
    "/v1/models": "Models, tasks and languages.",
    "/openapi.json": "This document.",
}
_ERRORS = {
    "400": "A field is missing or invalid.",
    "401": "An API key is needed.",
    "403": "The API key is not valid.",
    "413": "The request exceeds a limit.",
    "503": "Too many lines are waiting; Retry-After says for how long.",
    "504": "The request was not answered in time.",
}


def document(posts: Sequence[tuple[str, type[BaseModel], str]]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of routes: path, body and summary of each."""
    from attnkit import __version__

    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {
        path: {"get": {"summary": summary, "responses": {"200": {"description": "OK"}}}}
        for path, summary in _GETS.items()
    }
    for path, body, summary in posts:
        schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[body.__name__] = schema
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}
        errors = {status: {"description": text} for status, text in _ERRORS.items()}
        paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, "content": content},
                "responses": {"200": {"description": "OK", "content": {"application/json": {}}}, **errors},
            }
        }
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "attnkit serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": bearer}},
        "security": [{"key": []}, {}],
    }
