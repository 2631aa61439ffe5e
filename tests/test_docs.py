"""Run the examples in docs/."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Written by the site build, which runs their examples.
WRITTEN = ("_build", "contributing", "reference", "gallery")
PRELUDE = r"""
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)
warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive", UserWarning)
"""
#: Printed before the name of each page.
BEGIN = "===== "


def parts_of(page: str) -> list[tuple[list[str], str, str]]:
    """Return the Python blocks of a page: required libraries, code and output."""
    parts = []
    fence = r"```(?:python|\{code-cell\} ipython3(?:\n:tags:[^\n]*)?)\n"
    pattern = fence + r"(.*?)```(?:\n\n```text\n(.*?)```)?"
    for block, output in re.findall(pattern, (DOCS / page).read_text("utf-8"), re.DOTALL):
        needs = re.match(r"# needs: (.*)\n", block)
        parts.append((needs[1].split(", ") if needs else [], block, output))
    return parts


TEXTS = [str(page.relative_to(DOCS)) for page in sorted(DOCS.rglob("*.md"))]
TEXTS = [page for page in TEXTS if page.split("/")[0] not in WRITTEN]
TEXTS += ["gallery/index.md"]
# benchmarks/tests/test_reproduction.py runs this page with fewer data sets.
PAGES = [page for page in TEXTS if parts_of(page) and page != "papers/reproduction.md"]


def run_python(code: str, folder: Path) -> str:
    """Run code in a new process with warnings as errors, and return its output.

    Trailing spaces are removed, as editors remove them from pages.
    """
    paths = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    (folder / "example.py").write_text(paths + PRELUDE + code, "utf-8")
    command = [sys.executable, "-X", "utf8", "example.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def run(pages: Sequence[str], folder: Path, present: list[str]) -> int:
    """Run the blocks whose libraries are present, and return how many needed any.

    Each page has its own variables and warning filters. Each block must print the output shown
    below it.
    """
    parts = {
        page: [part for part in parts_of(page) if set(part[0]) <= set(present)] for page in pages
    }
    script = ""
    for page, kept in parts.items():
        code = "\n".join(block for _, block, _ in kept)
        script += (
            f"print({BEGIN + page!r})\nwith warnings.catch_warnings():\n"
            f"    exec(compile({code!r}, {page!r}, 'exec'), {{'__name__': '__main__'}})\n"
        )
    printed = run_python(script, folder).split(BEGIN)[1:]
    for text, (page, kept) in zip(printed, parts.items(), strict=True):
        for _, block, output in kept:
            assert output in text, f"{page}: {block}"
    return sum(bool(needs) for kept in parts.values() for needs, _, _ in kept)


def link_faults(page: str, text: str) -> list[str]:
    """Find broken links and Sphinx roles in Markdown."""
    text = re.sub(r"<!-- site:.*?-->|^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    faults = re.findall(r"\{[\w:]+\}`[^`]*`", text)
    for link in re.findall(r"\]\(([^()\s#]+)[^()\s]*\)", text):
        target = (DOCS / page).parent.joinpath(link).resolve()
        inner = target.relative_to(DOCS).as_posix() if target.is_relative_to(DOCS) else ""
        written = inner.split("/")[0] in WRITTEN and inner not in TEXTS
        if "://" not in link and (written or not target.exists()):
            faults.append(link)
    return faults


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_somewhere_without_the_site(page: str) -> None:
    assert link_faults(page, (DOCS / page).read_text("utf-8")) == []


def test_links_into_the_site_are_seen() -> None:
    text = (
        "[a](start/index.md#install) [b](reference/Beta.rst) [c](/start/index.md) {doc}`d` "
        "[e](gone.md) [f](https://example.org) [g](../README.md) <!-- site: [h](plots.rst) -->"
    )
    assert link_faults("index.md", text) == [
        "{doc}`d`",
        "reference/Beta.rst",
        "/start/index.md",
        "gone.md",
    ]


def test_every_page_is_listed() -> None:
    for index in sorted(DOCS.glob("*/index.md")):
        folder = index.parent.relative_to(DOCS).as_posix()
        if folder in WRITTEN:
            continue
        pages = (DOCS if folder == "guides" else index.parent).glob("*.md")
        listed = re.findall(r"^- \[.*?\]\((?:\.\./)?([\w-]+\.md)\)", index.read_text("utf-8"), re.M)
        assert sorted(listed) == sorted(page.name for page in pages if page.stem != "index"), folder


def test_there_are_pages() -> None:
    assert {"serve.md", "start/index.md"} <= set(PAGES)


@pytest.mark.slow
@pytest.mark.all_cases
@pytest.mark.parametrize("first", range(4))
def test_examples_run(first: int, tmp_path: Path) -> None:
    """Run a quarter of the pages in one process, which imports and compiles once."""
    run(PAGES[first::4], tmp_path, ["dask", "pyarrow", "flax"])


def test_a_warning_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="look out"):
        run_python("warnings.warn('look out')", tmp_path)


@pytest.mark.parametrize(
    ("page", "libraries", "blocks"),
    [
        pytest.param(page, libraries, blocks, marks=pytest.mark.parity(*libraries))
        for page, libraries, blocks in (
            ("serve.md", ("torch", "onnxruntime", "ndonnx"), 2),
            ("pytorch.md", ("torch", "torchmetrics"), 4),
        )
    ],
)
def test_examples_of_other_libraries_run(
    page: str, libraries: tuple[str, ...], blocks: int, tmp_path: Path
) -> None:
    assert run([page], tmp_path, list(libraries)) == blocks


def test_outputs_are_written_below_their_blocks() -> None:
    from docs import update_outputs  # update_outputs imports this module

    page = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n\n```python\nx = 4\n```\n"
    assert update_outputs.updated(page) == page.replace("3", "2")


def test_prediction_sets_hold_tied_scores() -> None:
    """Check labels of which 30 % have the score of the threshold, which 1 - (1 - 0.3) exceeds."""
    page = (DOCS / "prediction-sets.md").read_text("utf-8")
    code = re.search(r"def prediction_sets.*?\n\n", page, re.DOTALL)
    assert code is not None
    y = np.repeat([0, 1], [70, 30])
    names = {"np": np, "X_conformal": y, "y_conformal": y, "X_test": y}
    exec(code[0], names)
    model = SimpleNamespace(predict_proba=lambda x: np.tile([0.7, 0.3], (len(x), 1)))
    assert names["prediction_sets"](model).all()
