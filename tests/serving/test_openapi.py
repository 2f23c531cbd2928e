"""The OpenAPI document is valid, names all routes, and each answer is as it says."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import openapi_spec_validator
import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from attnkit.serving.app import POSTS, Service
from attnkit.serving.models import Models
from attnkit.serving.openapi import document
from attnkit.serving.requests import FORM
from attnkit.serving.routes import Routes

METHODS = {"get", "post"}
OPERATION_KEYS = {"operationId", "summary", "responses", "requestBody", "security", "description"}


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a tree."""
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(part)


def resolve(tree: dict[str, Any], reference: str) -> Any:
    assert reference.startswith("#/"), reference
    found: Any = tree
    for part in reference[2:].split("/"):
        found = found[part]
    return found


def check(tree: dict[str, Any]) -> None:
    """Hold a document to what OpenAPI 3.1 asks of the parts that it has."""
    assert re.fullmatch(r"3\.1\.\d+", tree["openapi"]) and {"title", "version"} <= tree["info"].keys()
    assert tree.keys() <= {"openapi", "info", "paths", "components", "security"}
    for node in nodes(tree):
        if "$ref" in node:
            resolve(tree, node["$ref"])
    schemes = tree["components"]["securitySchemes"]
    assert all(scheme["type"] == "http" and "scheme" in scheme for scheme in schemes.values())
    for schema in tree["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    names = []
    for path, item in tree["paths"].items():
        assert path.startswith("/") and item and item.keys() <= METHODS
        for operation in item.values():
            assert operation.keys() <= OPERATION_KEYS, operation.keys()
            names.append(operation["operationId"])
            assert operation["responses"], "at least one response"
            contents = [operation["requestBody"]["content"]] if "requestBody" in operation else []
            for code, response in operation["responses"].items():
                assert re.fullmatch(r"[1-5]\d\d|[1-5]XX|default", code) and isinstance(response["description"], str)
                contents.append(response["content"])
            for content in contents:
                assert content, "a type of content"
                for kind, media in content.items():
                    assert re.fullmatch(r"[\w+.-]+/[\w+.-]+", kind)
                    Draft202012Validator.check_schema(media["schema"])
            for need in operation.get("security", []):
                assert need.keys() <= schemes.keys()
    assert len(set(names)) == len(names), "each operation has a name of its own"


def break_reference(tree: dict[str, Any]) -> None:
    del tree["components"]["schemas"]["LineAnswer"]


def break_responses(tree: dict[str, Any]) -> None:
    del tree["paths"]["/v1/score"]["post"]["responses"]


def break_description(tree: dict[str, Any]) -> None:
    del tree["paths"]["/ready"]["get"]["responses"]["200"]["description"]


def break_type(tree: dict[str, Any]) -> None:
    tree["components"]["schemas"]["EmbedBody"]["properties"]["text"] = {"type": "text"}


def break_name(tree: dict[str, Any]) -> None:
    tree["paths"]["/v1/score"]["post"]["operationId"] = "v1_embed"


def break_method(tree: dict[str, Any]) -> None:
    tree["paths"]["/v1/score"]["fetch"] = tree["paths"]["/v1/score"]["post"]


def test_the_document_is_valid() -> None:
    check(document(POSTS))


def test_the_document_is_valid_for_others_as_well() -> None:
    openapi_spec_validator.validate(document(POSTS))


BREAKS = [break_reference, break_responses, break_description, break_type, break_name, break_method]


@pytest.mark.parametrize("damage", BREAKS)
def test_the_check_finds_what_is_wrong(damage: Callable[[dict[str, Any]], None]) -> None:
    tree = copy.deepcopy(document(POSTS))
    damage(tree)
    with pytest.raises(Exception, match=r".*"):  # of the check or of jsonschema
        check(tree)


def test_all_routes_are_in_the_document(models: Models) -> None:
    app = Service(models).app()
    assert isinstance(app, Routes)
    served = {(method.lower(), path) for method, path in app.handlers if method != "HEAD"}
    assert served == {(method, path) for path, item in document(POSTS)["paths"].items() for method in item}


ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("get", "/health", {}),
    ("get", "/ready", {}),
    ("get", "/languages", {}),
    ("get", "/frontend/settings", {}),
    ("get", "/v1/models", {}),
    ("get", "/openapi.json", {}),
    ("post", "/translate", {"json": {"q": "1 2", "target": "de"}}),
    ("post", "/translate", {"json": {"q": ["1 2", "3"], "source": "en", "target": "de", "alternatives": 2}}),
    ("post", "/translate", {"data": {"q": "1 2", "source": "en", "target": "de"}}),
    ("post", "/translate", {"json": {}}),
    ("post", "/v2/translate", {"json": {"text": ["1"], "target_lang": "DE", "formality": "prefer_more"}}),
    ("post", "/v2/translate", {"data": {"text": ["1", "2"], "target_lang": "DE"}}),
    ("post", "/v1/translations", {"json": {"text": "1", "target_language": "de"}}),
    ("post", "/v1/translate", {"json": {"text": ["1 2\n", ""]}}),
    (
        *("post", "/v1/translate"),
        {"json": {"text": "1 2", "num_hypotheses": 2, "attention": True, "token_scores": True, "glossary": {"1": "7"}}},
    ),
    ("post", "/v1/translate", {"json": {"text": "1", "beam_size": 99}}),
    ("post", "/v1/score", {"json": {"source": "1", "target": "2"}}),
    ("post", "/v1/score", {"json": {"text": "the dog", "model": "gpt"}}),
    ("post", "/v1/predict", {"json": {"text": "the dog", "model": "mood"}}),
    ("post", "/v1/predict", {"json": {"text": "ada lives", "model": "names"}}),
    ("post", "/v1/predict", {"json": {"question": "who?", "context": "ada"}}),
    ("post", "/v1/fill-mask", {"json": {"text": "the [MASK] dog"}}),
    ("post", "/v1/generate", {"json": {"prompt": "the", "max_new_tokens": 3}}),
    ("post", "/v1/embed", {"json": {"text": "the dog", "model": "bert"}}),
    ("post", "/v1/embed", {"json": {"text": "the dog", "model": "nobody"}}),
    ("post", "/v1/embed", {"json": {"text": ["dog"], "model": "words"}}),
    ("post", "/v1/embed", {"json": {"vector": [[1.0, 2.0]], "model": "rows"}}),
    ("post", "/v1/similar", {"json": {"word": ["dog"], "top": 2}}),
    ("post", "/detect", {"json": {"q": "1"}}),
]


@pytest.mark.filterwarnings("ignore:this run was not trained to read terms")
@pytest.mark.parametrize("number", range(len(ASKED)))
def test_answers_are_as_the_document_says(models: Models, number: int) -> None:
    method, path, given = ASKED[number]
    tree = document(POSTS)
    operation = tree["paths"][path][method]
    client = TestClient(Service(models).app(), base_url="http://localhost")
    response = client.request(method, path, **given)
    schema = operation["responses"][str(response.status_code)]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": tree["components"]}).validate(response.json())
    if response.status_code == 200 and method == "post":
        body = operation["requestBody"]["content"][FORM if "data" in given else "application/json"]["schema"]
        sent = given.get("json", given.get("data"))
        Draft202012Validator({**body, "components": tree["components"]}).validate(sent)


def test_only_answers_that_are_as_the_document_says_pass(models: Models) -> None:
    """A field too many or too few is an error: schemas are closed."""
    for name, schema in document(POSTS)["components"]["schemas"].items():
        if name.endswith("Answer"):
            assert schema["additionalProperties"] is False, name
