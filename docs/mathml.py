"""Formulas as MathML, written when the site is built: pages need neither a script nor a font of formulas."""

from __future__ import annotations

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def to_mathml(latex: str, display: str = "inline") -> str:
    """Return a formula as MathML; ``aligned``, which a repository's browser needs, is ``align*`` to the converter."""
    found = convert(latex.replace("{aligned}", "{align*}"), display=display)
    # Browsers align columns by style alone (MathML Core).
    return re.sub(r'columnalign="(left|right)"', r'style="text-align: \1"', found)


def _inline(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(to_mathml(node.astext()))
    raise nodes.SkipNode


def _block(writer: HTML5Translator, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{to_mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def add_renderer(app: Sphinx) -> None:
    """Make ``mathml`` a value of ``html_math_renderer``."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
