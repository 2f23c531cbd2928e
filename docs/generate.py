"""Write the reference pages that follow from the sources: commands, configuration keys, JSON output and its schemas.

Run ``make docs`` after a flag, a help text or a key has changed; a test compares the pages.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import json_pages
from pydantic import BaseModel
from typer.models import OptionInfo

from attnkit.cli.main import COMMANDS, GROUPS, import_command
from attnkit.cli.options import command_hints
from attnkit.config.descriptions import describe_fields
from attnkit.engine.registry import TASKS
from attnkit.engine.run_config import RunConfig

FOLDER = Path(__file__).parent / "reference"
NOTE = "<!-- generated from the sources: make docs -->"


def commands() -> str:
    """Return the page of all commands, as ``--help`` shows them."""
    parts = [
        "# Commands",
        NOTE,
        "Results go to standard output, progress and warnings to standard error. `--json` on a command that reports "
        "prints the same for programs. Exit codes: [exit codes](exit-codes.md).",
        "Besides commands: `--debug` shows the traceback of an error, `--version` the version; `--install-completion` "
        "sets up shell completion.",
        "\n".join(f"- [`{name}`](#{name}): {line}" for name, (_, line) in COMMANDS.items()),
    ]
    for name in COMMANDS:
        parts.extend(_command(name, COMMANDS[name][0], "##"))
    return "\n\n".join(parts) + "\n"


def _command(name: str, module: str, level: str) -> Iterator[str]:
    function = import_command(module)
    yield f"{level} {name}"
    prose, _, examples = re.sub(r"(First steps|Examples):", "Example:", inspect.getdoc(function)).partition("Example:")
    shown, _, rest = examples.strip().partition("\n\n")
    yield re.sub(r"\n{3,}", "\n\n", f"{prose}\n\n{rest}".replace("\b\n", "").replace("\b", "")).strip()
    yield "```sh\n" + "\n".join(line.strip() for line in shown.splitlines()) + "\n```"
    if name in GROUPS:
        for inner, (path, _) in GROUPS[name].items():
            yield from _command(f"{name} {inner}", path, "###")
        return
    hints = command_hints(function)
    rows = [
        _row(key, hints[key], parameter.default) for key, parameter in inspect.signature(function).parameters.items()
    ]
    yield "| option | meaning | default |\n|---|---|---|\n" + "\n".join(row for row in rows if row)


def _row(name: str, hint: Any, default: Any) -> str:
    """Return one line of a command's table; nothing for what is neither option nor argument."""
    info = next((part for part in getattr(hint, "__metadata__", ()) if hasattr(part, "param_decls")), None)
    if info is None or info.hidden:
        return ""
    is_option = isinstance(info, OptionInfo)
    flag = f"--{name.replace('_', '-')}"
    # In ``Annotated`` typer takes the first name for the default until it builds the command.
    own = [part for part in (info.default, *(info.param_decls or ())) if isinstance(part, str) and part.startswith("-")]
    shown = ", ".join(own or [flag]) if is_option else (info.metavar or name.upper())
    if is_option and info.metavar:
        shown += f" {info.metavar}"
    choices = [f"`{choice}`" for choice in _choices(hint)]
    help = (info.help or "").strip() + (f" Choices: {', '.join(choices)}." if choices else "")
    value = "" if default in (None, False, inspect.Parameter.empty) else f"`{_plain(default)}`"
    return f"| `{shown}` | {_cell(help)} | {value} |"


def _choices(annotation: Any) -> list[Any]:
    """Return the values of the ``Literal`` within an annotation."""
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    return [choice for part in typing.get_args(annotation) for choice in _choices(part)]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "&#124;").replace("``", "`").split())


def keys() -> str:
    """Return the page of all configuration keys, one table per section."""
    parts = ["# Configuration keys", NOTE, "How keys are set: [configuration](../guides/configuration.md)."]
    sections: dict[tuple[str, type[BaseModel]], list[str]] = {}
    for task, entry in TASKS.items():
        for spec in (entry, *entry.variants.values()):
            for found in _models("", _config(spec)):
                if task not in sections.setdefault(found, []):
                    sections[found].append(task)
    parts += ["## Top level", _first(RunConfig.__doc__ or ""), _table("", RunConfig, set())]
    for (prefix, model), tasks in sorted(sections.items(), key=lambda item: item[0][0]):
        shared = set(RunConfig.model_fields) if prefix == "" else set()
        if shared >= set(model.model_fields):
            continue
        used = "all tasks" if tasks == list(TASKS) else ", ".join(f"`{task}`" for task in tasks)
        title = _title(prefix, model) or "Top level"
        title += "" if tasks == list(TASKS) else f" ({', '.join(tasks)})"
        parts += [f"## {title}", f"{_first(model.__doc__ or '')} Tasks: {used}.", _table(prefix, model, shared)]
    return "\n\n".join(parts) + "\n"


def _table(prefix: str, model: type[BaseModel], without: set[str]) -> str:
    said = describe_fields(model)
    rows = [
        _key(prefix, name, field, said.get(name, ""))
        for name, field in model.model_fields.items()
        if name not in without
    ]
    return "| key | type | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows)


def _config(spec: Any) -> type[BaseModel]:
    config = spec.config
    return typing.cast("type[BaseModel]", config if isinstance(config, type) else config())


def _title(prefix: str, model: type[BaseModel]) -> str:
    kind = model.model_fields.get("kind")
    if prefix == "model" and kind is not None:
        return f"model, kind {kind.default}"
    return prefix


def _models(prefix: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield prefix, model
    for name, field in model.model_fields.items():
        for inner in _inner(field.annotation):
            yield from _models(f"{prefix}.{name}".strip("."), inner)


def _inner(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _inner(part)]


def _key(prefix: str, name: str, field: Any, description: str) -> str:
    default = "" if field.is_required() else _value(field.get_default(call_default_factory=True))
    key = f"{prefix}.{name}".strip(".")
    return f"| `{key}` | {_type(field.annotation)} | {default} | {_cell(description)} |"


def _value(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "see below"
    return f"`{_plain(value)}`"


def _plain(value: Any) -> str:
    """Return a value as YAML would have it."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _type(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(annotation))
    if typing.get_origin(annotation) is typing.Annotated:
        return _type(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) is tuple:
        return "list of " + _type(typing.get_args(annotation)[0])
    if _inner(annotation):
        return "section"
    if typing.get_args(annotation):
        return " or ".join(dict.fromkeys(_type(part) for part in typing.get_args(annotation)))
    names = {int: "integer", float: "number", str: "text", bool: "`true`, `false`", type(None): "`null`"}
    return names.get(annotation, _cell(str(getattr(annotation, "__name__", annotation))))


def _first(text: str) -> str:
    return _cell(text.strip().split("\n\n")[0])


PAGES = {"commands.md": commands, "configuration.md": keys, "json.md": json_pages.page}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (FOLDER / page).write_text(write(), encoding="utf-8")
        sys.stderr.write(f"wrote {FOLDER / page}\n")
    (FOLDER / "schemas").mkdir(exist_ok=True)
    for name, text in json_pages.schema_texts().items():
        (FOLDER / "schemas" / name).write_text(text, encoding="utf-8")
