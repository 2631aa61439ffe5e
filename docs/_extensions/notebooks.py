"""Generate the executed pages: the notebooks of the project, and a gallery of all plots.

Notebooks are written to ``docs/gallery`` before Sphinx reads the pages. The gallery of plots, which
is part of the index page of ``docs/gallery``, shows the first picture of each plot in the guide
``docs/plots.md``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jupytext
import reference
import sources
from sphinx.application import Sphinx

SOURCES = Path(__file__).resolve().parents[2] / "notebooks"
CELL = re.compile(r"```\{code-cell\} ipython3\n(.*?)```", re.DOTALL)
# Plots that docs/plots.md need not show, with a picture from the repository.
EXISTING_PICTURES = {"monitor": "/pictures/monitor.svg"}


def draw_plots(guide: Path, folder: Path) -> None:
    """Draw the plots of a guide, unless the guide and the code of the library are unchanged."""
    cells, digest_path = CELL.findall(guide.read_text("utf-8")), folder / "digest.txt"
    digest = sources.digest("bayescal") + sources.digest("docs/plots.md")
    if digest_path.exists() and digest_path.read_text("utf-8") == digest:
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    drawn: set[str] = set()
    namespace: dict[str, Any] = {}
    for cell in cells:
        exec(cell, namespace)
        for name in set(re.findall(r"bc\.plots\.(\w+)", cell)) - drawn:
            plt.gcf().savefig(folder / f"{name}.png", dpi=110, bbox_inches="tight")
            drawn.add(name)
        plt.close("all")
    missing = {*reference.names_of(reference.bc.plots)} - drawn - EXISTING_PICTURES.keys()
    if missing:
        raise ValueError(f"docs/plots.md must show every plot, but lacks {sorted(missing)}")
    digest_path.write_text(digest, "utf-8")


def plots() -> str:
    """Format a grid of cards that show all plots and link to the reference."""
    lines = ["::::{grid} 1 2 3 3", ":gutter: 2"]
    for name in reference.names_of(reference.bc.plots):
        picture = EXISTING_PICTURES.get(name, f"/gallery/pictures/{name}.png")
        lines += ["", f":::{{grid-item-card}} {name}", f":link: /reference/plots.{name}"]
        lines += [":link-type: doc", f"```{{image}} {picture}", f":alt: {name}", "```", ":::"]
    return "\n".join([*lines, "::::", ""])


def generate(app: Sphinx) -> None:
    """Write the gallery of plots and the notebooks, and delete pages of removed notebooks."""
    gallery = Path(app.srcdir) / "gallery"
    draw_plots(Path(app.srcdir) / "plots.md", gallery / "pictures")
    reference.write(gallery / "plots.txt", plots())
    names = {path.stem for path in SOURCES.glob("*.py")}
    for name in names:
        text = jupytext.writes(jupytext.read(SOURCES / f"{name}.py"), fmt="md:myst")
        reference.write(gallery / "notebooks" / f"{name}.md", text)
    for path in (gallery / "notebooks").glob("*.md"):
        if path.stem not in names:
            path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Generate the pages before Sphinx reads the sources."""
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
