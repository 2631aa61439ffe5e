"""Tests that need other libraries use the marker, so that no environment skips them all."""

import re
from pathlib import Path

TESTS = Path(__file__).parent


def skipped_by_hand(sources: dict[str, str]) -> list[str]:
    """Find files that skip a test by hand without a library that others require by marker."""
    marked = re.compile(r"mark\.parity\(([^)]*)\)")
    names = {
        name
        for text in sources.values()
        for arguments in marked.findall(text)
        for name in re.findall(r'"(\w+)"', arguments)
    }
    return [
        f"{path} skips without {name}"
        for path, text in sources.items()
        for name in re.findall(r'importorskip\(\s*"(\w+)', text)
        if name in names
    ]


def test_missing_libraries_fail_where_they_are_to_be_installed() -> None:
    sources = {str(path.relative_to(TESTS)): path.read_text() for path in TESTS.rglob("*.py")}
    assert skipped_by_hand(sources) == []
    bad = 'torch = pytest.importorskip("' + 'torch.nn")'
    assert skipped_by_hand({**sources, "bad": bad}) == ["bad skips without torch"]
