"""What pictures and results are made of, so that they are made anew where it changed."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def code(text: str) -> str:
    """Return what a module does: its code without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            if isinstance(body[0].value, ast.Constant):
                del body[0]
    return ast.dump(tree)


@cache
def digest(*places: str) -> str:
    """Return a digest of modules, of all in a folder, and of its results in JSON."""
    found = hashlib.sha256()
    for place in places:
        path = ROOT / place
        files = [path] if path.is_file() else [*path.rglob("*.py"), *path.rglob("*.json")]
        for file in sorted(files):
            text = file.read_text("utf-8")
            found.update(str(file.relative_to(ROOT)).encode())
            found.update((code(text) if file.suffix == ".py" else text).encode())
    return found.hexdigest()[:16]
