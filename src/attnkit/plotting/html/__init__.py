"""Self-contained HTML pages with hashed style and script, and data as JSON.

The content security policy of a page forbids requests, other scripts and markup created from text.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

HERE = "attnkit.plotting.html"
_NOT_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_page(
    package: str, scripts: Sequence[str], title: str, parts: Mapping[str, str], *, connects: bool = False
) -> str:
    """Return the HTML page of a package: ``page.html`` with style, script and parts.

    ``head.html`` precedes ``page.html``, ``base.css`` the style of the package, ``tools.js`` its scripts. Each
    placeholder ``@@NAME@@`` is replaced by the part of that name, but not those in the parts. ``connects`` allows
    requests to the page's own address.
    """
    style = _file(HERE, "base.css") + _file(package, "page.css")
    body = "\n".join([_file(HERE, "tools.js"), *(_file(package, name) for name in scripts)])
    script = f'"use strict";\n(() => {{\n{body}}})();\n'
    own = "connect-src 'self'; " if connects else ""
    policy = (
        f"default-src 'none'; {own}"
        f"script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'"
    )
    given = {"POLICY": escape(policy), "TITLE": escape(title), "STYLE": style, "SCRIPT": script, **parts}
    pieces = (_file(HERE, "head.html") + _file(package, "page.html")).split("@@")
    return "".join(given[piece] if i % 2 else piece for i, piece in enumerate(pieces))


_STATIC = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def static_page(brand: str, title: str, sections: Sequence[str], style: str = "") -> str:
    """Return a page without scripts; ``sections`` are HTML, ``title`` is text."""
    shown = escape(title)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(_STATIC)}">',
            '<meta name="viewport" content="width=device-width">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{shown}</title><style>{_file(HERE, 'base.css')}{style}</style></head><body>",
            f'<header><p class="brand">{escape(brand)}</p>',
            f"<h1><bdi>{shown}</bdi></h1></header><main>",
            *sections,
            "</main></body></html>",
            "",
        ]
    )


def escape(text: str) -> str:
    """Escape HTML markup, and replace characters invalid in XML by their code points."""
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        text = text.replace(sign, name)
    return _NOT_XML.sub(lambda found: f"U+{ord(found[0]):04X}", text)


def as_json(data: Any) -> str:
    """Return ASCII-only JSON in which all HTML markup characters are escaped."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
