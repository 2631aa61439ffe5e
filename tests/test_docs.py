"""Examples in the pages of docs/ run, page by page, each page in a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Written by the site's build, which runs what they hold.
WRITTEN = ("_build", "reference", "gallery")
PRELUDE = r"""
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)
"""


def parts_of(page: str) -> list[tuple[list[str], str]]:
    """Return the blocks of Python of a page, with the libraries that each says it needs."""
    found = []
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL):
        needs = re.match(r"# needs: (.*)\n", block)
        found.append((needs[1].split(", ") if needs else [], block))
    return found


PAGES = [str(page.relative_to(DOCS)) for page in sorted(DOCS.rglob("*.md"))]
PAGES = [page for page in PAGES if page.split("/")[0] not in WRITTEN and parts_of(page)]


def run_python(code: str, folder: Path) -> str:
    """Run code in a new process, where a warning is an error; return what it prints."""
    paths = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    (folder / "example.py").write_text(paths + PRELUDE + code, "utf-8")
    command = [sys.executable, "-X", "utf8", "example.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(page: str, folder: Path, present: list[str]) -> int:
    """Run the blocks that need no other libraries than some; return how many needed any."""
    parts = [(needs, block) for needs, block in parts_of(page) if set(needs) <= set(present)]
    run_python("\n".join(block for _, block in parts), folder)
    return sum(bool(needs) for needs, _ in parts)


def test_there_are_pages() -> None:
    assert {"serve.md", "start/index.md"} <= set(PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, tmp_path: Path) -> None:
    run(page, tmp_path, ["dask", "pyarrow", "flax"])


def test_a_warning_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="look out"):
        run_python("warnings.warn('look out')", tmp_path)


@pytest.mark.parametrize(
    ("page", "libraries", "blocks"),
    [
        pytest.param(page, libraries, blocks, marks=pytest.mark.parity(*libraries))
        for page, libraries, blocks in (
            ("serve.md", ("torch", "onnxruntime", "ndonnx"), 2),
            ("pytorch.md", ("torch", "torchmetrics"), 2),
        )
    ],
)
def test_examples_of_other_libraries_run(
    page: str, libraries: tuple[str, ...], blocks: int, tmp_path: Path
) -> None:
    assert run(page, tmp_path, list(libraries)) == blocks
