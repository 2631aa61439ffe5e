"""Pages that are executed: the project's notebooks, and one of all plots.

Both are written into ``docs/gallery`` before Sphinx reads the pages. The plots are those of the
examples in their docstrings, so that the gallery has each of them.
"""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import jupytext
import reference
from sphinx.application import Sphinx

SOURCES = Path(__file__).resolve().parents[2] / "notebooks"
HEAD = """---
file_format: mystnb
kernelspec: {name: python3}
---
# Plots

These are the examples of the docstrings. Every plot accepts and returns Matplotlib axes.

```{code-cell} ipython3
:tags: [remove-cell]
import matplotlib.pyplot as plt
plt.rcParams.update({"figure.dpi": 80})
```
"""


def imports(name: str, code: str) -> str:
    """Return the imports that an example of a docstring leaves to its module."""
    known = {"np": "import numpy as np\n", "bc": "import bayescal as bc\n"}
    known[name] = f"from bayescal.plots import {name}\n"
    return "".join(
        line
        for word, line in known.items()
        if re.search(rf"(?<!\.)\b{word}\b", code) and line not in code
    )


def plots() -> str:
    """Return the page of plots."""
    parts = [HEAD]
    for name in reference.names_of(reference.bc.plots):
        value = reference.value_of(f"plots.{name}")
        examples = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
        if not examples:
            continue
        code = imports(name, code := "".join(example.source for example in examples)) + code
        parts += [f"## {name}\n", f"{reference.summary(value).replace('``', '`')}"]
        parts += [f"[Reference](/reference/plots.{name}.rst)\n"]
        parts += [f"```{{code-cell}} ipython3\n{code}```\n"]
    return "\n".join(parts)


def generate(app: Sphinx) -> None:
    """Write the pages that changed."""
    gallery = Path(app.srcdir) / "gallery"
    reference.write(gallery / "plots.md", plots())
    names = {path.stem for path in SOURCES.glob("*.py")}
    for name in names:
        text = jupytext.writes(jupytext.read(SOURCES / f"{name}.py"), fmt="md:myst")
        reference.write(gallery / "notebooks" / f"{name}.md", text)
    for path in (gallery / "notebooks").glob("*.md"):
        if path.stem not in names:
            path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Write before anything is read."""
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
