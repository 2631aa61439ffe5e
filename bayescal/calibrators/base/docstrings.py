"""Docstrings of estimators describe every parameter, also those that a base class defines."""

from __future__ import annotations

import inspect
import re
from functools import cache

_TITLE = "Parameters\n----------\n"
#: An entry of a section: names, type and indented text.
_ENTRY = re.compile(r"^(\w[\w, ]*) : [^\n]*\n(?:(?: +[^\n]*)?\n)*", re.MULTILINE)
_SECTION = re.compile(r"^\w[^\n]*\n-{3,}$", re.MULTILINE)


@cache
def _parameters(doc: str) -> dict[str, str]:
    """Return the entries of the section of parameters, by their names."""
    doc = inspect.cleandoc(doc) + "\n"
    if _TITLE not in doc:
        return {}
    body = doc.split(_TITLE, 1)[1]
    end = _SECTION.search(body)
    body = (body[: end.start()] if end else body).rstrip("\n") + "\n"
    return {match[1]: match[0].rstrip("\n") + "\n" for match in _ENTRY.finditer(body)}


def inherit_parameters(cls: type) -> None:
    """Add the parameters that base classes describe to the docstring of a class."""
    if not cls.__doc__ or cls.__name__.startswith("_"):
        return
    doc = inspect.cleandoc(cls.__doc__) + "\n"
    own = {name for names in _parameters(doc) for name in names.split(", ")}
    inherited: dict[str, str] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited |= _parameters(vars(base).get("__doc__") or "")
    added = [text for names, text in inherited.items() if own.isdisjoint(names.split(", "))]
    if not added:
        return
    title = doc.find(_TITLE)
    begin = 0 if title < 0 else title + len(_TITLE)
    following = _SECTION.search(doc, begin)
    end = following.start() if following else len(doc)
    before = doc[:end].rstrip("\n") + "\n" + ("" if begin else f"\n{_TITLE}")
    after = f"\n{doc[end:]}" if following else ""
    cls.__doc__ = before + "".join(added) + after
