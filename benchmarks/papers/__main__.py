"""Write the pages of docs/papers from the results in benchmarks/results.

    python -m benchmarks.papers [--check]

With --check nothing is written, and the command fails if a page differs from the results. To update
the results first, run python -m benchmarks.studies NAME --data DIR --out DIR, and copy
DIR/NAME.json to benchmarks/results/study_NAME.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.figures import table
from benchmarks.papers import histogram_binning, kull_jung, lucena, maher, valk, weight_scaling
from benchmarks.papers._common import ROOT, Page

FOLDER = ROOT / "docs" / "papers"
PAPERS = (maher, valk, lucena, weight_scaling, histogram_binning, kull_jung)
WRITTEN = "`python -m benchmarks.papers` writes this page from `benchmarks/results`."
AGREES = """\
A figure *agrees* if it differs from the published one by at most one unit of the last printed
digit. Otherwise it is bold, or the difference is given. Explanations that experiments confirmed are
below each table; differences without an explanation are unexplained."""


def summary(pages: list[Page]) -> str:
    """Write the page with the findings of all papers."""
    heads = ["figure or claim", "published", "ours", "verdict"]
    tables = "\n\n".join(
        f"## [{page.title}]({page.name}.md)\n\n{table(heads, [list(f) for f in page.findings])}"
        for page in pages
    )
    return f"""\
# The papers, figure by figure

This page compares the figures of five papers, and of two papers whose predictions they use, with
those that bayescal computes from the same predictions and data, where these are available. Each
paper also has a page with details.

{AGREES}

{WRITTEN}

{tables}
"""


def files() -> dict[Path, str]:
    """Write the text of all pages, by path."""
    pages = [paper.page() for paper in PAPERS]
    written = {
        FOLDER / f"{page.name}.md": f"# {page.title}\n\n{AGREES}\n\n{WRITTEN}\n\n{page.text}"
        for page in pages
    }
    return {FOLDER / "figures.md": summary(pages), **written}


if __name__ == "__main__":
    for path, new in files().items():
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != new:
            sys.exit(f"{path} is not up to date: python -m benchmarks.papers")
