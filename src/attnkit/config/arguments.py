"""Checks of the arguments of public calls against their annotations. Torch-free."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from attnkit.config.plain import brief
from attnkit.errors import UsageError

Count = Annotated[int, 1]
"""A number of things; as an annotation of ``checked`` calls, ``Annotated[TYPE, N]`` asks for at least N."""
CountOrZero = Annotated[int, 0]
P = ParamSpec("P")
R = TypeVar("R")
_NAMES = {
    str: ("text", "texts"), int: ("whole number", "whole numbers"), float: ("number", "numbers"),
    Path: ("path", "paths"), bool: ("True or False", "True or False"), NoneType: ("None", "None"),
    Any: ("value", "values"),
}  # fmt: skip
_KINDS: dict[type, type] = {int: Integral, float: Real}  # numbers of numpy are numbers, too


def checked(call: Callable[P, R]) -> Callable[P, R]:
    """Let a call raise ``UsageError`` for arguments that do not fit its annotations.

    Types, literals, items of lists and names of keywords are checked; ranges are not. An annotation whose names are
    imported for type checking alone is not checked.
    """
    signature = inspect.signature(call)
    variadic = [one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD]

    @functools.wraps(call)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        where = f"attnkit.{call.__qualname__.removesuffix('.__init__')}"
        hints = _hints(call)
        unknown = kwargs.keys() - hints
        if unknown:
            raise _unknown(min(unknown), hints, where)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise UsageError(str(error), where=where, help=f"see help({where})") from error
        for name, value in ({**given, **given[variadic[0]]} if variadic and variadic[0] in given else given).items():
            if name in hints and (found := _misfit(value, hints[name])):
                raise UsageError(f"{name} must be {found[0]}", where=where, help=found[1] or f"see help({where})")
        return call(*args, **kwargs)

    return checking


@functools.cache
def _hints(call: Callable[..., Any]) -> dict[str, Any]:
    """Return the type of each keyword; Any if it is unknown at run time."""
    names = vars(inspect.getmodule(call))
    found: dict[str, Any] = {}
    for one in inspect.signature(call).parameters.values():
        if one.kind is one.VAR_KEYWORD:  # Unpack[of a TypedDict]
            keys = names[str(one.annotation)[len("Unpack[") : -1]]
            found |= {name: _resolved(inspect.getmodule(keys), hint) for name, hint in keys.__annotations__.items()}
        elif one.annotation is not one.empty:
            hint = _resolved(inspect.getmodule(call), one.annotation)
            found[one.name] = Sequence[hint] if one.kind is one.VAR_POSITIONAL else hint  # type: ignore[valid-type]
    return found


def _resolved(module: Any, annotation: Any) -> Any:
    text = getattr(annotation, "__forward_arg__", annotation)
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"x": text}), vars(module), include_extras=True)["x"]
    except NameError:
        return Any


def _unknown(word: str, hints: Mapping[str, Any], where: str) -> UsageError:
    close = difflib.get_close_matches(word, hints, 1, 0.55)
    help = f"did you mean {close[0]}?" if close else f"see help({where})"
    if not close and "settings" in hints:
        help = f"keys of the configuration go into settings, e.g. settings={{'{word}': …}}"
    return UsageError(f"unknown argument '{brief(word)}'", where=where, help=help)


def _misfit(value: Any, hint: Any) -> tuple[str, str | None] | None:
    """Return what a value must be and is not, and a hint; None if it fits."""
    if _fits(value, hint):
        return None
    place = None if (origin := get_origin(hint)) is Literal else _misplaced(value, hint)
    expected = f"{_described(hint)}, not {_shown(value)}"
    if place is not None:
        number, item, inner = place
        hint_of_item = _misfit(item, inner)
        return f"{_described(hint)}; item {number} is {_shown(item)}", hint_of_item and hint_of_item[1]
    choices = [str(one) for part in (hint, *get_args(hint)) if get_origin(part) is Literal for one in get_args(part)]
    if close := difflib.get_close_matches(value, choices, 1) if isinstance(value, str) else []:
        return expected, f"did you mean '{close[0]}'?"
    if isinstance(value, str) and "a list of" in expected.split(", not ")[0]:
        return expected, "put it into a list: [text]"
    if origin is not Literal and "list" in expected and hasattr(value, "__next__"):
        return expected, "take list(…) of it, or the call for streams"
    return expected, None


def _misplaced(value: Any, hint: Any) -> tuple[int, Any, Any] | None:
    """Return the first item of a list that does not fit: number from 0, value, type."""
    lists = [part for part in (hint, *get_args(hint)) if _is_list(part)]
    if len(lists) != 1 or not _listed(value):
        return None
    inner = get_args(lists[0])[0]
    return next(((number, item, inner) for number, item in enumerate(value) if not _fits(item, inner)), None)


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in inner)
    if origin is Annotated:
        return _fits(value, inner[0]) and value >= inner[1]
    if origin is Literal:
        return isinstance(value, str | int) and value in inner
    if _is_list(hint):
        return _listed(value) and all(_fits(item, inner[0]) for item in value)
    if origin is tuple:
        return isinstance(value, tuple | list) and len(value) == len(inner) and all(map(_fits, value, inner))
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if origin is Iterable:  # its items are looked at when they are taken
        return isinstance(value, Iterable) and not isinstance(value, str | bytes)
    kind = origin or hint
    if kind is Any or not isinstance(kind, type):
        return True
    return isinstance(value, _KINDS.get(kind, kind)) and (kind not in _KINDS or not isinstance(value, bool))


def _is_list(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Sequence) and origin is not tuple


def _listed(value: Any) -> bool:
    is_sized = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return is_sized and not isinstance(value, str | bytes | Mapping)


def _described(hint: Any, several: bool = False) -> str:
    """Return what a value of a type is called."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        parts = [part for part in inner if part is not str or Path not in inner]  # a text can name any path
        return " or ".join(dict.fromkeys(_described(part, several) for part in parts))
    if origin is Annotated:
        return f"{_described(inner[0], several)} of at least {inner[1]}"
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if _is_list(hint):
        return f"{'lists' if several else 'a list'} of {_described(inner[0], True)}"
    if origin is tuple:
        return f"{'pairs' if several else 'a pair'} ({', '.join(_described(part) for part in inner)})"
    if origin is Iterable:
        return f"an iterable of {_described(inner[0], True)}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping of {_described(inner[0], True)} to {_described(inner[1], True)}"
    one, more = _NAMES.get(hint, (getattr(origin or hint, "__name__", "value"),) * 2)
    return more if several else one if hint in (bool, NoneType) else f"a {one}"


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return f"'{brief(value)}'" if isinstance(value, str) else f"a {type(value).__name__}"
