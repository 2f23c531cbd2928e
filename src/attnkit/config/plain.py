"""Parsing and dumping of a safe subset of YAML for configuration files."""

import contextlib
import copy
import difflib
import functools
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from attnkit.errors import SystemFailure, UsageError

MAX_BYTES = 1_000_000  #: maximum size of a configuration file in bytes
MAX_DEPTH = 32  #: maximum nesting depth
MAX_NODES = 20_000  #: maximum number of values after alias expansion
_YAML = "write key: value; quote text with special characters: key: 'a: b'"
_MERGE = "tag:yaml.org,2002:merge"
_TAGS = (None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_REPLACED = ("bool", "int", "float", "timestamp", "value")
_SCALARS = (
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+(?:_[0-9]+)*$"), list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"),
        list("-+0123456789."),
    ),
)


class _StrictLoader(yaml.SafeLoader):
    """YAML loader for plain data, without YAML 1.1 surprises.

    ``1e-4`` is a number, ``010`` is ten, ``no`` and dates are strings, and a duplicate key is an error. Anchors and
    merge keys are allowed; their expanded size is checked before anything is built.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML reads this class attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag.split(":")[-1] not in _REPLACED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._n_nodes = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) not in _TAGS:
            raise _refusal(f"the tag {quote(event.tag)} is not allowed here", event.start_mark)
        before, self._depth = self._n_nodes, self._depth + 1
        if self._depth > MAX_DEPTH:
            raise _refusal(f"it is nested more than {MAX_DEPTH} levels deep", event.start_mark)
        node = super().compose_node(parent, index)
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                raise _refusal(f"the alias {quote(event.anchor)} refers to itself", event.start_mark)
            self._n_nodes += self._sizes[id(node)]
        else:
            self._n_nodes += 1
            self._sizes[id(node)] = self._n_nodes - before
        if self._n_nodes > MAX_NODES:
            raise _refusal(f"it contains more than {MAX_NODES:,} values after alias expansion", event.start_mark)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # rejected by the superclass
            if key in seen:
                raise _refusal(f"duplicate key {quote(key)}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_int(self, node: yaml.ScalarNode) -> int:
        try:
            return int(node.value)
        except ValueError as error:  # Python limits integers to a few thousand digits
            raise _refusal(f"the number has {len(node.value):,} digits", node.start_mark) from error


def _refusal(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, problem, mark)


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_int)
for _tag, _pattern, _first in _SCALARS:
    _StrictLoader.add_implicit_resolver(_tag, _pattern, _first)


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes strings which a YAML reader could misinterpret."""


for _tag, _pattern, _first in _SCALARS:
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML text; ``origin`` identifies it in error messages.

    Raises ``UsageError`` for invalid YAML, a duplicate key, a YAML feature beyond plain data, or too many values.
    """
    try:
        return copy.deepcopy(_parsed(text))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"the character {quote(chr(error.character))} is not allowed"
        raise UsageError(f"this is not valid YAML: {problem}", where=f"{origin}:{line}", help=_YAML) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{origin}:{mark.line + 1}" if mark else origin
        problem = getattr(error, "problem", None) or str(error)
        if "another document" in problem:
            problem = "it contains more than one YAML document"
        raise UsageError(f"this is not valid YAML: {brief(problem)}", where=where, help=_YAML) from error


@functools.lru_cache(maxsize=32)
def _parsed(text: str) -> Any:
    """Parse YAML text (10 ms); cached, since runs reparse it for each checkpoint."""
    loader = _StrictLoader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a configuration file or pipe of at most ``MAX_BYTES`` bytes.

    Raises ``UsageError`` if it is missing, too large, not UTF-8 or not a mapping, ``SystemFailure`` if unreadable.
    """
    what = "cannot read the configuration"
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except IsADirectoryError as error:
        raise UsageError(f"{what}: it is a folder", where=str(path), help="name a YAML file in it") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = [entry.name for entry in path.parent.iterdir()]
        near = difflib.get_close_matches(path.name, names, n=1)
        help = f"did you mean {path.with_name(near[0])}?" if near else "check the spelling of the path"
        raise UsageError(f"{what}: no such file", where=str(path), help=help) from error
    except OSError as error:
        help = "check owner and permissions, or give another file"
        raise SystemFailure(f"{what}: {error.strerror or error}", where=str(path), help=help) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{what}: it has more than {MAX_BYTES:,} bytes", where=str(path), help="give another file")
    try:
        tree = parse_yaml(raw.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{what}: it is not UTF-8", where=f"{path}:{line}", help="save it as UTF-8") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UsageError("the configuration must be a mapping of keys to values", where=f"{path}:1", help=_YAML)
    return tree


def dump_yaml(model: BaseModel) -> str:
    """Return YAML from which ``load_yaml`` and ``validate`` restore an equal model."""
    return dump_tree(model.model_dump(mode="json"))


def dump_tree(tree: dict[str, Any]) -> str:
    """Return plain data as YAML that ``load_yaml`` reads as the same."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def quote(value: object) -> str:
    """Quote a value for a message, shortening long text."""
    return f"'{brief(str(value))}'"


def brief(text: str, most: int = 80) -> str:
    """Shorten text to at most ``most`` characters, ending in an ellipsis if cut."""
    return text if len(text) <= most else text[: most - 1] + "…"
