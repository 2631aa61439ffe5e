"""Files that are whole or not there, and that say which question they answer."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SUM = "sha256"


def write_text(path: Path, text: str) -> None:
    """Put a file in place in one piece: whoever is killed before leaves what was there."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write JSON in one piece."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a CSV file in one piece; numbers keep all their digits."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    partial.replace(path)


def keep(path: Path, question: Mapping[str, Any], answer: Any) -> None:
    """Write an answer together with its question and a checksum of both."""
    content = {"question": dict(question), "answer": answer}
    write_json(path, {**content, _SUM: _checksum(content)})


def recall(path: Path, question: Mapping[str, Any]) -> Any:
    """Return the answer kept there, or None if there is none, or it is broken or to another."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        whole = content.pop(_SUM) == _checksum(content)
        return content["answer"] if whole and content["question"] == question else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
