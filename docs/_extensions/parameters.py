"""Defaults of parameters, and inherited attributes, on the pages of classes."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

SECTION = r"^{}\n-+\n(.*?)(?=^\w[^\n]*\n-{{3,}}$|\Z)"
FIRST_SECTION = re.compile(r"^\w[^\n]*\n-{3,}$", re.MULTILINE)
ENTRY = re.compile(r"^(\S[^\n]*?) : ([^\n]*)\n((?:[ ]+[^\n]*\n|\n)*)", re.MULTILINE)


class Entry(NamedTuple):
    """Names of parameters that are described together, their type and the description."""

    names: str
    type: str
    text: str

    def lines(self, defaults: dict[str, str]) -> str:
        """Return the entry with its default, if that is the same for all names."""
        values = {defaults.get(name, "") for name in self.names.split(", ")}
        default = values.pop() if len(values) == 1 else ""
        known = default in ("", "None") or re.search(r"\bdefault\b", self.type)
        kind = self.type if known else f"{self.type}, default {default}"
        return f"{self.names} : {kind}\n{self.text.rstrip()}\n"


def _section(doc: str, title: str) -> re.Match[str] | None:
    return re.search(SECTION.format(title), doc, re.DOTALL | re.MULTILINE)


def entries(doc: str, title: str = "Parameters") -> list[Entry]:
    """Return the entries of a section of a docstring."""
    found = _section(doc, title)
    return [Entry(*match) for match in ENTRY.findall(found[1] + "\n")] if found else []


def defaults_of(cls: type) -> dict[str, str]:
    """Return the defaults of a constructor's parameters as text."""
    given = inspect.signature(cls).parameters.values()
    return {p.name: repr(p.default) for p in given if p.default is not p.empty}


def complete(cls: type, doc: str) -> str:
    """Return a docstring of an estimator with the defaults of its parameters."""
    from sklearn.base import BaseEstimator

    if not issubclass(cls, BaseEstimator):
        return doc
    own, defaults = entries(doc), defaults_of(cls)
    if own:
        section = "Parameters\n----------\n" + "".join(e.lines(defaults) for e in own) + "\n"
        if found := _section(doc, "Parameters"):
            doc = doc[: found.start()] + section + doc[found.end() :]
        else:
            start = match.start() if (match := FIRST_SECTION.search(doc)) else len(doc)
            doc = doc[:start] + section + doc[start:]
    return _with_attributes(cls, doc)


def _with_attributes(cls: type, doc: str) -> str:
    """Return a docstring with the attributes that base classes describe."""
    own = entries(doc, "Attributes")
    named = {name for entry in own for name in entry.names.split(", ")}
    for base in cls.__mro__[1:]:
        if not base.__module__.startswith("bayescal."):
            continue
        for entry in entries(inspect.cleandoc(vars(base).get("__doc__") or ""), "Attributes"):
            names = [name for name in entry.names.split(", ") if name not in named]
            if names:
                own.append(entry._replace(names=", ".join(names)))
                named.update(names)
    if not own:
        return doc
    section = "Attributes\n----------\n" + "".join(entry.lines({}) for entry in own) + "\n"
    if found := _section(doc, "Attributes"):
        return doc[: found.start()] + section + doc[found.end() :]
    end = found.end() if (found := _section(doc, "Parameters")) else len(doc)
    return f"{doc[:end]}{section}{doc[end:]}"


def complete_lines(app: Any, what: str, name: str, value: Any, *rest: Any) -> None:
    """Complete the docstring of a class before its sections are read."""
    lines: list[str] = rest[-1]
    if what == "class" and inspect.isclass(value):
        lines[:] = complete(value, "\n".join(lines)).split("\n")


def setup(app: Any) -> dict[str, Any]:
    """Complete docstrings before anything else looks at them."""
    app.connect("autodoc-process-docstring", complete_lines, priority=300)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
