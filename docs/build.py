"""Build the site into ``docs/_build/html`` and check it.

    python docs/build.py [--fast]

Sphinx warnings are errors. With ``--fast``, the notebooks, which take minutes, are not executed and
show no output; the gallery of plots is still drawn. The script needs the dependency group ``docs``,
but no network.
"""

from __future__ import annotations

import os
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

DOCS = Path(__file__).resolve().parent
SITE = DOCS / "_build" / "html"
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_extensions")]


class Page(HTMLParser):
    """Links, loaded resources and element ids of an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the id, the links and the loaded resources of an element."""
        for name, value in attrs:
            if not value:
                continue
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src"):
                (self.links if tag == "a" else self.loaded).append(value)


def link_faults(site: Path) -> list[str]:
    """List links to missing files or missing ids, and resources that load from other hosts."""
    pages = {
        path: Page(path.read_text("utf-8"))
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.parts
    }
    faults = []
    for path, page in pages.items():
        name = path.relative_to(site)
        faults += [f"{name} loads {link}" for link in page.loaded if urlsplit(link).netloc]
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.exists():
                faults.append(f"{name} links to {link}, which is not there")
            elif anchor and target in pages and anchor not in pages[target].ids:
                faults.append(f"{name} links to {link}, a place that is not there")
    return sorted(faults)


def missing_names(site: Path) -> tuple[list[str], int]:
    """List the public names without a reference page, and count all public names."""
    import reference

    missing = []
    names = reference.public_names()
    for name in names:
        path = site / "reference" / f"{name}.html"
        ids = {f"bayescal.{name}", f"module-bayescal.{name}"}
        if not path.exists() or not ids & Page(path.read_text("utf-8")).ids:
            missing.append(name)
    return missing, len(names)


def search_faults(site: Path, words: tuple[str, ...]) -> list[str]:
    """List the words (stems) that are missing from the search index."""
    path = site / "searchindex.js"
    index = path.read_text("utf-8") if path.exists() else ""
    return [f"the search does not find {word!r}" for word in words if f'"{word}"' not in index]


def build(fast: bool) -> int:
    """Build the site with Sphinx and return the exit code."""
    from sphinx.cmd.build import main

    # Each notebook runs in a separate process, which must import the package from this checkout.
    paths = [str(DOCS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ.pop("BAYESCAL_DOCS_FAST", None)
    if fast:
        os.environ["BAYESCAL_DOCS_FAST"] = "1"
    cache = ["-d", str(DOCS / "_build" / "doctrees")]
    return main(["-q", "-W", "--keep-going", "-b", "html", *cache, str(DOCS), str(SITE)])


def run(arguments: list[str]) -> int:
    """Build the site, check it, print all faults and return the exit code."""
    start = time.monotonic()
    if code := build(fast="--fast" in arguments):
        return code
    seconds = time.monotonic() - start
    missing, num_names = missing_names(SITE)
    faults = [f"bayescal.{name} has no page" for name in missing]
    faults += link_faults(SITE) + search_faults(SITE, ("temperatur", "isoton", "posterior"))
    print(*faults, sep="\n", end="\n" * bool(faults))
    files = [path for path in SITE.rglob("*") if path.is_file()]
    pages = sum(path.suffix == ".html" for path in files)
    size = sum(path.stat().st_size for path in files) / 1e6
    print(
        f"{SITE}: {pages} pages, {size:.1f} MB, {seconds:.0f} s; "
        f"{num_names - len(missing)} of {num_names} public names; {len(faults)} faults"
    )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
