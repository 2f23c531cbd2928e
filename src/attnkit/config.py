"""YAML files and ``--set a.b=c`` to frozen pydantic models, strictly. Knows no task and no model.

Values come in layers (default < preset < file < ``--set`` < flag). Each layer is a plain tree of dictionaries;
``merge`` lays them over each other and remembers where every leaf came from, ``validate`` turns the tree into the
model or says what is wrong.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from attnkit.errors import UsageError

Tree = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)


class Layer(NamedTuple):
    """Values that share an origin (a file's name, ``--set``, ``preset small``), which error messages show."""

    origin: str
    tree: Tree


class _StrictLoader(yaml.SafeLoader):
    """YAML as people expect it: ``1e-4`` is a number, ``no`` and dates are words, a repeated key is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML reads this class attribute
        first: [
            (tag, pattern) for tag, pattern in resolvers if tag.split(":")[-1] not in ("bool", "float", "timestamp")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # refused below
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key}' stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"),
    list("-+0123456789."),
)


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML text; ``origin`` names it in messages.

    Raises:
        UsageError: not YAML, a repeated key, or a language feature beyond plain data.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)  # a SafeLoader below
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{origin}:{mark.line + 1}" if mark else origin
        problem = getattr(error, "problem", None) or str(error)
        raise UsageError(f"this is not valid YAML: {problem}", where=where) from error


def load_yaml(path: Path) -> Tree:
    """Read a configuration file.

    Raises:
        UsageError: missing, unreadable or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UsageError(
            f"cannot read the configuration: {reason}", where=str(path), help="check the spelling of the path"
        ) from error
    tree = parse_yaml(text, str(path))
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UsageError("a configuration is a mapping of keys to values", where=str(path))
    return tree


def parse_assignment(text: str) -> Tree:
    """Turn ``a.b=value`` into ``{"a": {"b": value}}``; the value is YAML."""
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UsageError(f"--set takes key=value, not '{text}'", help="for example --set model.d_model=512")
    return nest(keys, parse_yaml(value, f"--set {path}"))


def nest(keys: list[str], value: Any) -> Tree:
    """Return ``value`` under a path of keys: ``nest(["a", "b"], 1) == {"a": {"b": 1}}``."""
    for key in reversed(keys):
        value = {key: value}
    tree: Tree = value
    return tree


def merge(layers: Iterable[Layer]) -> tuple[Tree, dict[str, str]]:
    """Lay trees over each other, later over earlier; return the tree and dotted leaf -> origin."""
    tree: Tree = {}
    origins: dict[str, str] = {}

    def lay(into: Tree, over: Tree, prefix: str, origin: str) -> None:
        for key, value in over.items():
            dotted = f"{prefix}{key}"
            if isinstance(value, Mapping) and value:
                if not isinstance(into.get(key), dict):
                    into[key] = {}
                    origins.pop(dotted, None)
                lay(into[key], dict(value), f"{dotted}.", origin)
            else:
                for replaced in [name for name in origins if name.startswith(f"{dotted}.")]:
                    del origins[replaced]
                into[key] = value
                origins[dotted] = origin

    for layer in layers:
        lay(tree, layer.tree, "", layer.origin)
    return tree, origins


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted leaf -> value, in order."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def validate(model: type[Model], tree: Tree, origins: Mapping[str, str] | None = None) -> Model:
    """Check a tree against a configuration model.

    Raises:
        UsageError: naming the origin, the dotted path, the value, the choices and the nearest valid key.
    """
    try:
        return model.model_validate_json(json.dumps(tree, allow_nan=False))
    except ValidationError as error:
        raise _explain(model, tree, origins or {}, error) from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"a value cannot be used in a configuration: {error}") from error


def dump_yaml(model: BaseModel) -> str:
    """Return a configuration as YAML text that ``load_yaml`` and ``validate`` read back to an equal one."""
    return yaml.safe_dump(
        model.model_dump(mode="json"), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )


def _explain(model: type[BaseModel], tree: Tree, origins: Mapping[str, str], error: ValidationError) -> UsageError:
    """Turn pydantic's first complaint (an unknown key before any other) into one message of ours."""
    problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    keys, value = _locate(tree, problem["loc"])
    dotted = ".".join(keys)
    origin = next((origins[key] for key in origins if key == dotted or key.startswith(f"{dotted}.")), None)
    where = f"{dotted} ({origin})" if origin and dotted else dotted or None
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(keys[-1], sorted(_siblings(model, tree, keys[:-1])), n=1)
        hint = (
            f"did you mean '{'.'.join([*keys[:-1], close[0]])}'?"
            if close
            else "see `attnkit train --dry-run` for every key"
        )
        return UsageError(f"unknown key '{dotted}'", where=where, help=hint)
    if problem["type"] in ("union_tag_invalid", "literal_error"):
        context = problem.get("ctx", {})
        choices = str(context.get("expected") or context.get("expected_tags", ""))
        words = re.findall(r"'([^']*)'", choices)
        close = difflib.get_close_matches(str(value), words, n=1)
        hint = f"choose one of {choices}" + (f"; did you mean '{close[0]}'?" if close else "")
        return UsageError(f"{dotted} cannot be {json.dumps(value)}", where=where, help=hint)
    message = problem["msg"].removeprefix("Value error, ")
    if dotted and not isinstance(value, dict):
        return UsageError(f"{dotted}: {json.dumps(value)} does not fit: {_lower(message)}", where=where)
    return UsageError(_lower(message) if not dotted else f"{dotted}: {_lower(message)}", where=where)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _locate(tree: Tree, location: tuple[int | str, ...]) -> tuple[list[str], Any]:
    """Follow pydantic's location through the tree; tags of unions, which are no keys, fall out."""
    keys: list[str] = []
    value: Any = tree
    for index, part in enumerate(location):
        if isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        elif index < len(location) - 1 or (isinstance(value, dict) and value.get("kind") == part):
            continue
        else:
            value = None
        keys.append(str(part))
    return keys, value


def _siblings(model: type[BaseModel], tree: Tree, keys: list[str]) -> set[str]:
    """Return the field names that are valid at a path."""
    candidates: list[type[BaseModel]] = [model]
    value: Any = tree
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
        kind = value.get("kind") if isinstance(value, dict) else None
        fields = [candidate.model_fields[key] for candidate in candidates if key in candidate.model_fields]
        found = [inner for field in fields for inner in _models_in(field.annotation)]
        candidates = [inner for inner in found if not kind or _may_be(inner, kind)]
    return {name for candidate in candidates for name in candidate.model_fields}


def _may_be(model: type[BaseModel], kind: Any) -> bool:
    """Return whether a model is of a kind, as far as its field of that name, if it has one, says so."""
    field = model.model_fields.get("kind")
    return field is None or kind in get_args(field.annotation)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
