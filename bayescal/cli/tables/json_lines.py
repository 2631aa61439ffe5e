"""JSON lines: one object per line, whose names are those of columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bayescal.cli._errors import CommandError

_OBJECT = re.compile(r'\s*\{\s*"')


def is_json(path: Path, line: str = "") -> bool:
    """Whether a file contains JSON lines, judged by its name or its first line."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return bool({".jsonl", ".ndjson"} & {*suffixes}) or bool(_OBJECT.match(line))


def parse_objects(
    path: Path, lines: Iterable[str], decimal: str
) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Yield the number of each non-empty line, the line, and the texts of its values.

    Numbers keep their digits, with another decimal point; missing values are empty texts.
    """
    decoder = json.JSONDecoder(
        parse_float=lambda text: text.replace(".", decimal), parse_int=str, parse_constant=str
    )
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line:
            continue
        try:
            values = decoder.decode(line)
        except (ValueError, RecursionError) as error:
            problem = getattr(error, "msg", error)
            raise CommandError(f"{path}: line {number} is not JSON: {problem}") from None
        if not isinstance(values, dict):
            raise CommandError(f"{path}: line {number} must be a JSON object, as {{...}}")
        yield number, line, {name: _text(value) for name, value in values.items()}


def _text(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_text(part)}' for name, part in value.items())}}}"
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_members(line: str, names: Sequence[str], values: Sequence[float]) -> str:
    """Append members to a line with a JSON object."""
    body = line[:-1].rstrip()
    added = ", ".join(
        f"{json.dumps(name, ensure_ascii=False)}: {'null' if value != value else repr(value)}"
        for name, value in zip(names, values, strict=True)
    )
    return f"{body}{'' if body == '{' else ', '}{added}}}\n"
