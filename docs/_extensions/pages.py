"""Pages that are read in two places: as they stand on a host of code, and in the site.

What stands in a comment ``<!-- site: ... -->`` only the site shows, as links to pages that its
build writes. The links of an index, one a line, are its table of contents. Names of the library
in the text become links to their pages of the reference.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reference

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

ONLY_HERE = re.compile(r"<!-- site:\s(.*?)\s*-->", re.DOTALL)
ENTRY = re.compile(r"^- .*?\]\(([\w./-]+)\.(?:md|rst)\)", re.MULTILINE)
CONTENTS = "\n\n```{{toctree}}\n:hidden:\n\n{}\n```\n"
NAME = re.compile(r"(?:bc\.|bayescal\.)?([\w.]+)(?:\(.*)?", re.DOTALL)
# Pages that stand elsewhere in the repository, and what is below them here.
ELSEWHERE = {
    "contributing/index.md": ("CONTRIBUTING.md", CONTENTS.format("changes")),
    "contributing/changes.md": ("CHANGELOG.md", ""),
}


def include(app: Sphinx) -> None:
    """Write pages that include a file from elsewhere."""
    for page, (file, more) in ELSEWHERE.items():
        text = f"```{{include}} ../../{file}\n```\n{more}"
        reference.write(Path(app.srcdir) / page, text)


def show(app: Sphinx, name: str, source: list[str]) -> None:
    """Show what is only for the site, and the pages of an index beside it."""
    source[0] = ONLY_HERE.sub(r"\1", source[0])
    if name.endswith("index") and (entries := ENTRY.findall(source[0])):
        source[0] += CONTENTS.format("\n".join(entries))


def link_names(app: Sphinx, page: nodes.document, name: str) -> None:
    """Make links of public names that stand as code, alone or in a call."""
    from docutils import nodes

    if name.startswith("reference/"):
        return
    known = set(reference.public_names())
    for code in list(page.findall(nodes.literal)):
        found = NAME.fullmatch(code.astext())
        if not found or found[1] not in known:
            continue
        if isinstance(code.parent, nodes.reference | nodes.title):
            continue
        target = app.builder.get_relative_uri(name, f"reference/{found[1]}")
        link = nodes.reference(refuri=target, internal=True)
        code.replace_self(link)
        link += code


def setup(app: Sphinx) -> dict[str, Any]:
    """Write before anything is read, show while it is, and link when all is known."""
    app.connect("builder-inited", include)
    app.connect("source-read", show)
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
