"""Formats of documents, and the names of files that suggest them."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

DocumentFormat: TypeAlias = Literal["html", "markdown", "xliff", "srt"]

SUFFIXES: Mapping[str, DocumentFormat] = {
    **dict.fromkeys([".html", ".htm", ".xhtml"], "html"),
    **dict.fromkeys([".md", ".markdown"], "markdown"),
    **dict.fromkeys([".xlf", ".xliff"], "xliff"),
    **dict.fromkeys([".srt", ".vtt"], "srt"),
}
"""Format that the end of a file name suggests."""
