"""Render formulas as MathML, which browsers display without scripts or remote fonts."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

# Replacements of LaTeX commands, as regular expressions. docutils does not support \dots or \big,
# and delimiters stretch without \big. It would put subscripts of accented letters below the letter,
# and would set names of functions without space.
REPLACEMENTS = {
    r"\\dots\b": r"\\ldots",
    r"\\[bB]ig(?![a-z])": "",
    r"(\\(?:bar|hat|overline)\s*(?:\{[^{}]*\}|\\[a-z]+|\w))(?=[_^])": r"{\1{}}",
    r"(\\(?:exp|ln|log)\b)(?![_^])": r"\\,\1\\,",
    r"(\\operatorname\{\w+\})(?![_^({])": r"\\,\1\\,",
}


def convert(node: nodes.Element, as_block: bool) -> str:
    """Convert a formula to MathML; if that fails, warn and return the LaTeX as code."""
    text = node.astext()
    for pattern, replacement in REPLACEMENTS.items():
        text = re.sub(pattern, replacement, text)
    try:
        return tex2mathml(text, as_block=as_block)
    except MathError as error:
        getLogger(__name__).warning("formula %r: %s", text, error, location=node)
        return f"<code>{text}</code>"


def inline(translator: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    translator.body.append(convert(node, as_block=False))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    translator.body.append(f'<div class="math">{convert(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the MathML renderer of formulas."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
