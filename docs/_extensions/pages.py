"""Adapt Markdown pages, which are also read in the repository, to the site.

Text in a comment ``<!-- site: ... -->`` appears only on the site, such as links to pages that the
build generates. The list of links on an index page, one per line, becomes its table of contents.
Public names in the text become links to their reference pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reference

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

SITE_COMMENT = re.compile(r"<!-- site:\s(.*?)\s*-->", re.DOTALL)
ENTRY = re.compile(r"^- .*?\]\(([\w./-]+)\.(?:md|rst)\)", re.MULTILINE)
TOCTREE = "\n\n```{{toctree}}\n:hidden:\n\n{}\n```\n"
NAME = re.compile(r"(?:bc\.|bayescal\.)?([\w.]+)(?:\(.*)?", re.DOTALL)
# Pages of the site that include a file from the root of the repository, with the text to append.
INCLUDED = {
    "contributing/index.md": ("CONTRIBUTING.md", TOCTREE.format("changes")),
    "contributing/changes.md": ("CHANGELOG.md", ""),
}


def include(app: Sphinx) -> None:
    """Write the pages that include a file from the root of the repository."""
    for page, (file, appended) in INCLUDED.items():
        text = f"```{{include}} ../../{file}\n```\n{appended}"
        reference.write(Path(app.srcdir) / page, text)


def show(app: Sphinx, name: str, source: list[str]) -> None:
    """Uncomment text for the site, and add a table of contents to an index page."""
    source[0] = SITE_COMMENT.sub(r"\1", source[0])
    if name.endswith("index") and (entries := ENTRY.findall(source[0])):
        source[0] += TOCTREE.format("\n".join(entries))


def link_names(app: Sphinx, page: nodes.document, name: str) -> None:
    """Link public names that are formatted as code, alone or in a call, to the reference."""
    from docutils import nodes

    if name.startswith("reference/"):
        return
    public = set(reference.public_names())
    for code in list(page.findall(nodes.literal)):
        match = NAME.fullmatch(code.astext())
        if not match or match[1] not in public:
            continue
        if isinstance(code.parent, nodes.reference | nodes.title):
            continue
        target = app.builder.get_relative_uri(name, f"reference/{match[1]}")
        link = nodes.reference(refuri=target, internal=True)
        code.replace_self(link)
        link += code


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the functions to the events of the build at which they run."""
    app.connect("builder-inited", include)
    app.connect("source-read", show)
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
