"""Text inside of tags that readers see: alternative texts, titles, labels."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping

from attnkit.formats.passages import Value

_ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'=<>`]+)))?")
_SHOWN = frozenset(["alt", "title", "placeholder", "aria-label", "aria-description"])
_SHOWN_OF: Mapping[str, frozenset[str]] = {
    "option": frozenset(["label"]),
    "optgroup": frozenset(["label"]),
    "track": frozenset(["label"]),
}
_BUTTONS = frozenset(["submit", "button", "reset"])
_DESCRIPTIONS = frozenset(["description", "og:title", "og:description", "twitter:title", "twitter:description"])
_UNSEEN = frozenset(["link", "style", "script", "meta"])
"""Elements whose ``title`` names a style sheet, or is not shown."""

# The end of a link or a whole image. Texts with a backslash or a bracket are left as they are.
_IMAGE = re.compile(r"!\[([^\[\]\\]*)\](?:\(|\[[^\]])")  # the text of ![text][] is a reference
_TITLE = re.compile(r"[ \t\n](?:\"([^\"\\]*)\"|'([^'\\]*)')[ \t\n]*\)\Z")


def html_values(tag: str, name: str) -> tuple[Value, ...]:
    """Return what readers see of an HTML tag, where it is in quotation marks.

    >>> [value.text for value in html_values('<img src="a.png" alt="a &amp; b">', "img")]
    ['a & b']
    """
    begin = len(name) + 1
    found = list(_ATTRIBUTE.finditer(tag, begin))
    given = {match[1].lower(): match[2] or match[3] or match[4] or "" for match in found}
    shown = _shown_attributes(name, given)
    values = []
    for match in found:
        group = 2 if match[2] else 3
        if match[1].lower() in shown and match[group]:
            escape = _escape_double if group == 2 else _escape_single
            values.append(Value(match.start(group), match.end(group), html.unescape(match[group]), escape))
    return tuple(values)


def _shown_attributes(name: str, given: Mapping[str, str]) -> frozenset[str]:
    if given.get("translate", "").lower() == "no":
        return frozenset()
    if name == "meta":
        named = (given.get("name", "") or given.get("property", "")).lower()
        return frozenset(["content"]) if named in _DESCRIPTIONS else frozenset()
    if name in _UNSEEN:
        return frozenset()
    if name == "input" and given.get("type", "").lower() in _BUTTONS:
        return _SHOWN | {"value"}
    return _SHOWN | _SHOWN_OF.get(name, frozenset())


def _escape_double(text: str) -> str:
    return html.escape(text, quote=False).replace('"', "&quot;")


def _escape_single(text: str) -> str:
    return html.escape(text, quote=False).replace("'", "&#39;")


def markdown_values(tag: str) -> tuple[Value, ...]:
    """Return the alternative text and the title of an image, or the title of a link.

    ``tag`` is the whole image, or a link from the end of its text.

    >>> [value.text for value in markdown_values('![a dog](dog.png "Rex")')]
    ['a dog', 'Rex']
    """
    values = []
    if (match := _IMAGE.match(tag)) and match[1].strip():
        values.append(Value(match.start(1), match.end(1), match[1], _escape_with("[]|")))
    if match := _TITLE.search(tag):
        group = 1 if match[1] is not None else 2
        if match[group].strip():
            values.append(
                Value(match.start(group), match.end(group), match[group], _escape_with("\"'"[group - 1] + "|"))
            )
    return tuple(values)


def _escape_with(marks: str) -> Callable[[str], str]:
    """Return a function that puts a backslash before some characters."""
    pattern = re.compile(f"[{re.escape(marks)}\\\\]")
    return lambda text: pattern.sub(r"\\\g<0>", text)
