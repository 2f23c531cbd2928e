"""Settings of the documentation site; ``docs/build_site.py`` gathers its pages and calls Sphinx with this file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

import docstrings  # noqa: E402
import mathml  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

import attnkit  # noqa: E402

project = "attnkit"
author = "attnkit developers"
project_copyright = "attnkit developers, Apache-2.0"
version = release = attnkit.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
nitpicky = False  # signatures name types of torch and numpy, whose inventories would need the network

# Only what a repository's browser shows as well. Links to headings are checked, in lower case as browsers make them.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "ref.python"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "attnkit"
html_static_path = [str(FOLDER / "static")]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "native"


def set_language(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Say that a page of the lecture is Chinese: browsers choose glyphs and line breaks by it."""
    if pagename.startswith("docs/lecture/zh/"):
        context["language"] = "zh-CN"


def setup(app: Sphinx) -> None:
    """Add formulas as MathML, docstrings as they are written here and the language of pages."""
    app.connect("html-page-context", set_language)
    mathml.add_renderer(app)
    app.connect("autodoc-process-docstring", docstrings.to_markup)
