"""Compute digests of source code, so that pictures and results are rebuilt when it changes."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def code(text: str) -> str:
    """Dump the syntax tree of a module, without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            if isinstance(body[0].value, ast.Constant):
                del body[0]
    return ast.dump(tree)


@cache
def digest(*paths: str) -> str:
    """Compute a digest of files and folders: the code of modules and the text of JSON files.

    Paths are relative to the root of the repository. Of other files, only those that are passed by
    name count.
    """
    result = hashlib.sha256()
    for name in paths:
        path = ROOT / name
        files = [path] if path.is_file() else [*path.rglob("*.py"), *path.rglob("*.json")]
        for file in sorted(files):
            text = file.read_text("utf-8")
            result.update(str(file.relative_to(ROOT)).encode())
            result.update((code(text) if file.suffix == ".py" else text).encode())
    return result.hexdigest()[:16]
