"""Examples in the pages of docs/ run, page by page."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))


def parts_of(page: str) -> list[tuple[list[str], str]]:
    """Return the blocks of Python of a page, with the libraries that each says it needs."""
    found = []
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL):
        needs = re.match(r"# needs: (.*)\n", block)
        found.append((needs[1].split(", ") if needs else [], block))
    return found


def run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, present: list[str]) -> int:
    """Run the blocks that need no other libraries than some; return how many needed any."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "example"}
    more = 0
    for needs, block in parts_of(page):
        if set(needs) <= set(present):
            exec(compile(block, page, "exec"), names)
            more += bool(needs)
    return more


def test_there_are_pages() -> None:
    assert "serve.md" in PAGES


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parts_of(page)
    run(page, tmp_path, monkeypatch, ["dask", "pyarrow", "flax"])


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
    page: str,
    libraries: tuple[str, ...],
    blocks: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(page, tmp_path, monkeypatch, list(libraries)) == blocks
