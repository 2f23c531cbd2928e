"""Schemas of what commands print with ``--json``, and the page that lists their keys."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Union, get_args, get_type_hints

from json_outputs import OUTPUTS, Printed
from json_types import SOURCES
from pydantic import BaseModel, TypeAdapter

from attnkit.config.descriptions import describe_fields

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMES = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true`, `false`", "null": "`null`"}
INTRODUCTION = """\
What each command prints with `--json`, on standard output. The schemas (JSON Schema, draft 2020-12) say the same for
programs. All keys are there unless their meaning says when, and there are no others. Percentages go from 0 to 100.

Commands that answer for each line of input print JSON lines: one object per line of text. Their schemas describe such
a line."""


def schema(name: str) -> dict[str, Any]:
    """Return the schema of a command's output: of one line, where it prints JSON lines."""
    printed = OUTPUTS[name]
    made = TypeAdapter(Union[printed.types]).json_schema(mode="serialization")  # noqa: UP007
    classes = dict(_classes(printed.types))
    _describe(made, classes, made.get("title"))
    for key, part in made.get("$defs", {}).items():
        _describe(part, classes, key)
    title = f"attnkit {name} --json" + (f": one per {printed.per}" if printed.per else "")
    return {"$schema": DIALECT, **made, "title": title}


def schema_file(name: str) -> str:
    """Return the name of a command's file: ``word2vec-similar.json``."""
    return f"{name.replace(' ', '-')}.json"


def schema_texts() -> dict[str, str]:
    """Return file name → text of all schemas."""
    return {schema_file(name): json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n" for name in OUTPUTS}


def _classes(hints: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the class of each type with fields within a type."""
    for hint in hints:
        yield from _classes(get_args(hint))
        is_model = isinstance(hint, type) and issubclass(hint, BaseModel)
        if isinstance(hint, type) and (is_dataclass(hint) or is_model or hasattr(hint, "__total__")):
            yield hint.__name__, hint
            yield from _classes(get_type_hints(hint).values())


def _describe(part: dict[str, Any], classes: dict[str, Any], name: str | None) -> None:
    """Close an object to other keys, and give its keys the comments of the sources."""
    if "properties" not in part:
        return
    part["additionalProperties"] = False
    source = classes.get(name or "")
    if not hasattr(source, "__total__"):  # dataclasses and models print fields that have defaults as well
        part["required"] = list(part["properties"])
    said = {}
    for one in _as_tuple(SOURCES.get(name or "", source)):
        said |= _comments(one)
    if source is not None:
        part["description"] = _one_line((source.__doc__ or "").split("\n\n")[0])
    for key, field in part["properties"].items():
        field.pop("title", None)
        field.pop("default", None)
        if said.get(key):
            field["description"] = said[key]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _comments(source: type) -> dict[str, str]:
    """Return the comment (``#:``) or the docstring of each field, as the sources have them."""
    if issubclass(source, BaseModel):
        return describe_fields(source)
    found: dict[str, str] = {}
    for base in reversed(source.__mro__[:-1]):
        try:
            text = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):
            continue
        found |= dict(re.findall(r"^    (\w+): .*?  #: (.+)$", text, re.MULTILINE))
        (tree,) = ast.parse(text).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                if isinstance(below.value, ast.Constant):
                    found[field.target.id] = _one_line(str(below.value.value))
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())


def page() -> str:
    """Return the page of all outputs."""
    parts = ["# JSON output", "<!-- generated from the sources: make docs -->", INTRODUCTION]
    for name, printed in OUTPUTS.items():
        found = schema(name)
        parts += [f"## {name}", f"{_form(printed)} Schema: [{schema_file(name)}](schemas/{schema_file(name)})."]
        parts += list(_tables(found, printed))
    return "\n\n".join(parts) + "\n"


def _form(printed: Printed) -> str:
    return f"One line per {printed.per}." if printed.per else "One value."


def _tables(found: dict[str, Any], printed: Printed) -> Iterator[str]:
    """Yield the tables of an output: first those of its types, then of the objects within."""
    tops = found.get("anyOf", [found])
    parts = {key: part for key, part in found.get("$defs", {}).items() if "properties" in part}
    named = [one["$ref"].rpartition("/")[2] if "$ref" in one else "" for one in tops]
    order = [name for name in named if name] + [name for name in parts if name not in named]
    for one in tops:
        if "properties" in one:
            yield f"{one.get('description', '')}\n\n{_table(one)}"
        elif "$ref" not in one:
            yield f"{_type(one)[:1].upper()}{_type(one)[1:]}."
    for name in order:
        yield f"**{name}**: {parts[name].get('description', '')}\n\n{_table(parts[name])}"


def _table(part: dict[str, Any]) -> str:
    needed = part.get("required", ())
    rows = []
    for key, field in part["properties"].items():
        said = field.get("description", "")
        said += "" if key in needed or "with -" in said else (" (not always)" if said else "not always")
        rows.append(f"| `{key}` | {_type(field)} | {_cell(said)} |")
    return "| key | type | meaning |\n|---|---|---|\n" + "\n".join(rows)


def _cell(text: str) -> str:
    return _one_line(text.replace("|", "&#124;").replace("``", "`").replace("<", "&lt;"))


def _type(field: dict[str, Any]) -> str:
    """Return a type in words."""
    if "$ref" in field:
        return str(field["$ref"].rpartition("/")[2])
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(one) for one in field["anyOf"]))
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"])
    kind = field.get("type")
    if kind == "array":
        inner = field.get("prefixItems")
        if inner:
            return f"list of {len(inner)}: {', '.join(map(_type, inner))}"
        return f"list of {_type(field.get('items', {}))}"
    if kind == "object":
        values = field.get("additionalProperties")
        return f"object: text → {_type(values if isinstance(values, dict) else {})}"
    return NAMES.get(str(kind), "any")
