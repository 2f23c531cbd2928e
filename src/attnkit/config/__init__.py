"""Strict parsing of YAML files and ``--set a.b=c`` into frozen pydantic models.

Values come in layers (default < preset < file < ``--set`` < flag). Each layer is a plain tree of dictionaries.
``merge`` combines the layers and records the origin of every leaf. ``validate`` converts the merged tree to a model
or raises an error that locates the invalid value.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from attnkit.config.plain import MAX_DEPTH, brief, dump_tree, dump_yaml, load_yaml, parse_yaml, quote
from attnkit.errors import UsageError

__all__ = ["dump_tree", "dump_yaml", "load_yaml", "parse_yaml"]  # re-exported from ``plain``

Tree = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)


class Layer(NamedTuple):
    """A tree of values and its origin for error messages, e.g. ``preset small``."""

    origin: str
    tree: Tree


def parse_assignment(text: str) -> Tree:
    """Parse ``a.b=value`` into ``{"a": {"b": value}}``; the value is YAML."""
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        raise UsageError(f"--set expects KEY=VALUE, not {quote(text)}", help="for example --set model.d_model=512")
    return nest(keys, parse_yaml(value, f"--set {brief(path)}"))


def nest(keys: list[str], value: Any) -> Tree:
    """Return a nested tree: ``nest(["a", "b"], 1)`` is ``{"a": {"b": 1}}``."""
    for key in reversed(keys):
        value = {key: value}
    tree: Tree = value
    return tree


def merge(layers: Iterable[Layer]) -> tuple[Tree, dict[str, str]]:
    """Return the merged tree and the origin per dotted key; later layers win."""
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
                if isinstance(into.get(key), dict):
                    for replaced in [name for name in origins if name.startswith(f"{dotted}.")]:
                        del origins[replaced]
                into[key] = value
                origins[dotted] = origin

    for layer in layers:
        lay(tree, layer.tree, "", layer.origin)
    return tree, origins


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a tree by dotted key, in order."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def validate(model: type[Model], tree: Tree, origins: Mapping[str, str] | None = None) -> Model:
    """Validate a tree and return it as a configuration model.

    Raises ``UsageError`` with the origin, the dotted key, the value, the valid choices and the nearest valid key.
    """
    try:
        return model.model_validate_json(json.dumps(tree, allow_nan=False))
    except ValidationError as error:
        raise _explain(model, tree, origins or {}, error) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise _unusable(tree, origins or {}) from error


def _explain(model: type[BaseModel], tree: Tree, origins: Mapping[str, str], error: ValidationError) -> UsageError:
    """Return one error for pydantic's first problem; unknown keys come first."""
    problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    if problem["type"] == "json_invalid":
        return _unusable(tree, origins)
    keys, value = _locate(tree, problem["loc"])
    if problem["type"] == "union_tag_invalid" and isinstance(value, dict):
        keys.append(str(problem["ctx"]["discriminator"]).strip("'"))
        value = value.get(keys[-1])
    dotted, shown = brief(".".join(keys)), brief(json.dumps(value))
    message = problem["msg"].removeprefix("Value error, ")
    where = _where(".".join(keys), origins, message)
    if problem["type"] == "extra_forbidden":
        return UsageError(f"unknown key '{dotted}'", where=where, help=_suggest(model, tree, keys))
    if problem["type"] in ("union_tag_invalid", "literal_error"):
        context = problem.get("ctx", {})
        choices = str(context.get("expected") or context.get("expected_tags", ""))
        words = re.findall(r"'([^']*)'", choices)
        close = difflib.get_close_matches(brief(str(value)), words, n=1)
        hint = f"choose one of {choices}" + (f"; did you mean '{close[0]}'?" if close else "")
        return UsageError(f"{dotted} cannot be {shown}", where=where, help=hint)
    help = problem.get("ctx", {}).get("help")  # of a PydanticCustomError
    if dotted and not isinstance(value, dict):
        return UsageError(f"{dotted}: invalid value {shown}: {_lower(message)}", where=where, help=help)
    return UsageError(_lower(message) if not dotted else f"{dotted}: {_lower(message)}", where=where, help=help)


def has_key(model: type[BaseModel], tree: Tree, dotted: str) -> bool:
    """Return whether a configuration has a key, given the kinds in ``tree``."""
    *section, name = dotted.split(".")
    return name in _siblings(model, tree, section)


def _suggest(model: type[BaseModel], tree: Tree, keys: list[str]) -> str:
    """Return the help for an unknown key: the keys that may be meant."""
    from attnkit.config.other_tools import meant_keys, remark  # a long table, for errors only

    word, section = brief(keys[-1]), "".join(f"{key}." for key in keys[:-1])
    known = meant_keys(word, lambda key: has_key(model, tree, key))
    own = [key for key in known if section and key.startswith(section)]
    siblings = sorted(_siblings(model, tree, keys[:-1]))
    # In a section that exists, a typing error is likelier than a word that means another section's key.
    cutoff = 0.75 if known else 0.6
    close = [] if own or (known and not section) else difflib.get_close_matches(word, siblings, n=1, cutoff=cutoff)
    meant = own or [f"{section}{name}" for name in close] or known
    if not meant:
        return "the same command with --dry-run shows all keys"
    return f"did you mean {' or '.join(repr(key) for key in meant)}?{remark(meant, word)}"


def _unusable(tree: Tree, origins: Mapping[str, str]) -> UsageError:
    """Return the error for a value that is not finite, not Unicode or not plain data."""
    for dotted, value in flatten(tree).items():
        where = _where(dotted, origins)
        try:
            f"{dotted}{json.dumps(value, allow_nan=False, ensure_ascii=False)}".encode()
        except UnicodeEncodeError:
            return UsageError(f"{brief(dotted)}: invalid UTF-8", where=where)
        except (TypeError, ValueError, RecursionError):
            shown = brief(str(value))
            return UsageError(f"{brief(dotted)}: invalid value {shown}: neither a finite number nor text", where=where)
    return UsageError("the configuration is nested too deeply")


def _where(dotted: str, origins: Mapping[str, str], message: str = "") -> str | None:
    """Return the key and origin of a problem; in a section, the key it mentions."""
    near = [key for key in origins if not dotted or key == dotted or key.startswith(f"{dotted}.")]
    near = near or [key for key in origins if dotted.startswith(f"{key}.")]
    names = {key: re.escape(key.removeprefix(f"{dotted}.") if dotted else key) for key in near if key != dotted}
    places = {key: found.start() for key, name in names.items() if (found := re.search(rf"\b{name}\b", message))}
    meant = sorted(places, key=places.__getitem__)
    if not dotted and not meant:
        return None
    by_hand_first = sorted(meant or near, key=lambda key: origins[key].startswith("preset "))
    if not by_hand_first:
        return brief(dotted)
    return f"{brief(by_hand_first[0] if meant else dotted)} ({brief(origins[by_hand_first[0]])})"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _locate(tree: Tree, location: tuple[int | str, ...]) -> tuple[list[str], Any]:
    """Return the keys and the value at pydantic's location, skipping union tags."""
    keys: list[str] = []
    value: Any = tree
    for index, part in enumerate(location):
        if isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        elif index < len(location) - 1 or (isinstance(value, dict) and value.get("kind") == part):
            continue
        elif isinstance(part, str) and (value is None or isinstance(value, str | int | float)):
            continue  # tag of a union of a value and a list: a plain value has no keys
        else:
            value = None
        keys.append(str(part))
    return keys, value


def _siblings(model: type[BaseModel], tree: Tree, keys: list[str]) -> set[str]:
    """Return the valid field names at a path."""
    candidates: list[type[BaseModel]] = [model]
    value: Any = tree
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
        kind = value.get("kind") if isinstance(value, dict) else None
        fields = [candidate.model_fields[key] for candidate in candidates if key in candidate.model_fields]
        candidates = [inner for field in fields for inner in _models_in(field.annotation)]
        if kind:  # models in the union whose field ``kind``, if any, allows this kind
            of_kind = [(inner, inner.model_fields.get("kind")) for inner in candidates]
            candidates = [inner for inner, field in of_kind if field is None or kind in get_args(field.annotation)]
    return {name for candidate in candidates for name in candidate.model_fields}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
