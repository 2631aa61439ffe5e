"""Formulas as MathML, which browsers draw themselves, without scripts and fonts from elsewhere."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

# What docutils does not know, in words that it knows. Fences grow by themselves. Indices of letters
# with accents would stand below, and names of functions without space.
OTHER_WORDS = {
    r"\\dots\b": r"\\ldots",
    r"\\[bB]ig(?![a-z])": "",
    r"(\\(?:bar|hat|overline)\s*(?:\{[^{}]*\}|\\[a-z]+|\w))(?=[_^])": r"{\1{}}",
    r"(\\(?:exp|ln|log)\b)(?![_^])": r"\\,\1\\,",
    r"(\\operatorname\{\w+\})(?![_^({])": r"\\,\1\\,",
}


def convert(node: nodes.Element, as_block: bool) -> str:
    """Return a formula; one that cannot be read is a warning and stays as it is."""
    text = node.astext()
    for word, other in OTHER_WORDS.items():
        text = re.sub(word, other, text)
    try:
        return tex2mathml(text, as_block=as_block)
    except MathError as error:
        getLogger(__name__).warning("formula %r: %s", text, error, location=node)
        return f"<code>{text}</code>"


def inline(translator: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(convert(node, as_block=False))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula of its own line."""
    translator.body.append(f'<div class="math">{convert(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Be the renderer of formulas."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
