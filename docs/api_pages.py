"""The pages of the Python interface: one per public module, written from its docstrings when the site is built."""

from __future__ import annotations

import pkgutil
from importlib import import_module

PUBLIC = ("attnkit", "attnkit.errors", "attnkit.tasks.word2vec.vectors", "attnkit.tasks.word2vec.fit")
PUBLIC += ("attnkit.plotting.html.projection",)
"""Modules outside these packages that are public as a whole."""
PACKAGES = ("attnkit.library", "attnkit.models", "attnkit.decoding")


def modules() -> list[str]:
    """Return the names of all modules that have a page."""
    found = list(PUBLIC)
    for package in PACKAGES:
        members = pkgutil.walk_packages(import_module(package).__path__, f"{package}.")
        # Modules of Triton kernels cannot be imported without it.
        found += [package, *(member.name for member in members if not member.name.endswith("_kernel"))]
    return [name for name in found if (import_module(name).__doc__ or "").strip()]


def page(name: str) -> str:
    """Return the page of one module, as Markdown with a directive of autodoc."""
    lines = [f".. automodule:: {name}", "   :members:", "   :show-inheritance:"]
    return f"# {name}\n\n```{{eval-rst}}\n" + "\n".join(lines) + "\n```\n"


def pages() -> dict[str, str]:
    """Return file name → text of every page."""
    return {f"{name}.md": page(name) for name in modules()}
