"""Write into the pages what their examples print.

    python docs/update_outputs.py [--check] [PAGE ...]

A page is a path from the root of the repository; without one, README.md and all pages of docs/ are
taken. The Python blocks of a page run in one process, in their order. A block that is followed by a
```` ```text ```` block prints what stands there; with --check a difference is an error. A block
that begins with ``# needs: LIBRARY`` is passed over if the library is missing.
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
SHOWN = re.compile(r"```python\n[^`]*```\n\n```text\n")
END = "=== end of block ==="


def is_able(block: str) -> bool:
    """Check that the libraries that a block needs are installed."""
    needs = re.match(r"# needs: (.*)\n", block)
    return needs is None or all(find_spec(name) is not None for name in needs[1].split(", "))


def updated(text: str) -> str:
    """Run the Python blocks of a page and return the page with their output."""
    blocks = [block for _, block in BLOCK.findall(text) if is_able(block)]
    code = "\n".join(f"{block}\nprint({END!r})" for block in blocks)
    with tempfile.TemporaryDirectory() as folder:
        outputs = iter(run_python(code, Path(folder)).split(f"{END}\n"))

    def shown(match: re.Match[str]) -> str:
        if not is_able(match[2]):
            return match[0]
        output = next(outputs)
        if "```text" not in match[0]:
            return match[0]
        lines = "\n".join(line.rstrip() for line in output.splitlines())
        return f"{match[1]}\n\n```text\n{lines}\n```"

    return BLOCK.sub(shown, text)


def main(arguments: list[str]) -> int:
    """Update or check pages; return the exit code."""
    names = [name for name in arguments if name != "--check"]
    pages = [ROOT / name for name in names] or [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    stale = []
    for page in sorted(pages):
        text = page.read_text("utf-8")
        if SHOWN.search(text) and (new := updated(text)) != text:
            stale.append(page)
            print(f"{page.relative_to(ROOT)}: output has changed")
            if "--check" not in arguments:
                page.write_text(new, "utf-8")
    return bool(stale) and "--check" in arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
