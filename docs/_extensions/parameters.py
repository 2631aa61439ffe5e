"""Add defaults of parameters and inherited attributes to the reference pages of classes."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

SECTION = r"^{}\n-+\n(.*?)(?=^\w[^\n]*\n-{{3,}}$|\Z)"
ENTRY = re.compile(r"^(\S[^\n]*?) : ([^\n]*)\n((?:[ ]+[^\n]*\n|\n)*)", re.MULTILINE)


class Entry(NamedTuple):
    """An entry of a section: names of parameters, their common type and description."""

    names: str
    type: str
    text: str

    def lines(self, defaults: dict[str, str]) -> str:
        """Format the entry, with the default value if all names have the same one."""
        values = {defaults.get(name, "") for name in self.names.split(", ")}
        default = values.pop() if len(values) == 1 else ""
        is_complete = default in ("", "None") or re.search(r"\bdefault\b", self.type)
        description = self.type if is_complete else f"{self.type}, default {default}"
        return f"{self.names} : {description}\n{self.text.rstrip()}\n"


def _section(doc: str, title: str) -> re.Match[str] | None:
    return re.search(SECTION.format(title), doc, re.DOTALL | re.MULTILINE)


def entries(doc: str, title: str = "Parameters") -> list[Entry]:
    """Parse the entries of a section of a docstring."""
    section = _section(doc, title)
    return [Entry(*match) for match in ENTRY.findall(section[1] + "\n")] if section else []


def defaults_of(cls: type) -> dict[str, str]:
    """Format the default values of the parameters of a constructor."""
    parameters = inspect.signature(cls).parameters.values()
    return {p.name: repr(p.default) for p in parameters if p.default is not p.empty}


def complete(cls: type, doc: str) -> str:
    """Add defaults of parameters and inherited attributes to the docstring of an estimator.

    Docstrings of other classes are returned unchanged.
    """
    from sklearn.base import BaseEstimator

    if not issubclass(cls, BaseEstimator):
        return doc
    parameters, defaults = entries(doc), defaults_of(cls)
    if parameters:
        lines = "".join(entry.lines(defaults) for entry in parameters)
        section = f"Parameters\n----------\n{lines}\n"
        old = _section(doc, "Parameters")
        assert old is not None
        doc = doc[: old.start()] + section + doc[old.end() :]
    return _with_attributes(cls, doc)


def _with_attributes(cls: type, doc: str) -> str:
    """Add the attributes that base classes document to the docstring of a class."""
    attributes = entries(doc, "Attributes")
    documented = {name for entry in attributes for name in entry.names.split(", ")}
    for base in cls.__mro__[1:]:
        if not base.__module__.startswith("bayescal."):
            continue
        for entry in entries(inspect.cleandoc(vars(base).get("__doc__") or ""), "Attributes"):
            names = [name for name in entry.names.split(", ") if name not in documented]
            if names:
                attributes.append(entry._replace(names=", ".join(names)))
                documented.update(names)
    if not attributes:
        return doc
    section = "Attributes\n----------\n" + "".join(e.lines({}) for e in attributes) + "\n"
    if old := _section(doc, "Attributes"):
        return doc[: old.start()] + section + doc[old.end() :]
    end = match.end() if (match := _section(doc, "Parameters")) else len(doc)
    return f"{doc[:end]}{section}{doc[end:]}"


def complete_lines(app: Any, what: str, name: str, value: Any, *rest: Any) -> None:
    """Complete the docstring of a class, before napoleon parses its sections."""
    lines: list[str] = rest[-1]
    if what == "class" and inspect.isclass(value):
        lines[:] = complete(value, "\n".join(lines)).split("\n")


def setup(app: Any) -> dict[str, Any]:
    """Register the extension; its priority makes it run before other processors of docstrings."""
    app.connect("autodoc-process-docstring", complete_lines, priority=300)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
