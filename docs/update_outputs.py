"""Update the printed output of the examples on the pages.

    python docs/update_outputs.py [--check] [PAGE ...]

Each page is a path relative to the root of the repository; the default is README.md and all pages
of docs/. The Python blocks of a page run in order, in one process. If a ```` ```text ```` block
follows a Python block, the script replaces it with the output of the Python block; with
``--check``, it leaves pages unchanged and fails if an output differs. A block that begins with
``# needs: LIBRARY`` is skipped if the library is not installed.
"""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.test_docs import run_python  # noqa: E402

BLOCK = re.compile(r"(```python\n(.*?)```)(?:\n\n```text\n.*?```)?", re.DOTALL)
OUTPUT = re.compile(r"```python\n[^`]*```\n\n```text\n")
END = "=== end of block ==="


def has_requirements(block: str) -> bool:
    """Check whether all libraries that a block needs are installed."""
    needs = re.match(r"# needs: (.*)\n", block)
    return needs is None or all(find_spec(name) is not None for name in needs[1].split(", "))


def updated(text: str) -> str:
    """Run the Python blocks of a page and insert their output below them."""
    blocks = [block for _, block in BLOCK.findall(text) if has_requirements(block)]
    code = "\n".join(f"{block}\nprint({END!r})" for block in blocks)
    with tempfile.TemporaryDirectory() as folder:
        outputs = iter(run_python(code, Path(folder)).split(f"{END}\n"))

    def with_output(match: re.Match[str]) -> str:
        if not has_requirements(match[2]):
            return match[0]
        output = next(outputs)
        if "```text" not in match[0]:
            return match[0]
        lines = "\n".join(line.rstrip() for line in output.splitlines())
        return f"{match[1]}\n\n```text\n{lines}\n```"

    return BLOCK.sub(with_output, text)


def main(arguments: list[str]) -> int:
    """Update or check the pages and return the exit code."""
    names = [name for name in arguments if name != "--check"]
    pages = [ROOT / name for name in names] or [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    stale = []
    for page in sorted(pages):
        text = page.read_text("utf-8")
        if OUTPUT.search(text) and (new := updated(text)) != text:
            stale.append(page)
            print(f"{page.relative_to(ROOT)}: output has changed")
            if "--check" not in arguments:
                page.write_text(new, "utf-8")
    return bool(stale) and "--check" in arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
