"""Build the site into ``docs/_build/html`` and check it.

    python docs/build.py [--fast]

Warnings are errors. ``--fast`` leaves the notebooks without results, which take minutes; but the
gallery of plots is drawn. It needs the dependency group ``docs`` and no network.
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
    """What a page of HTML points to, and what can be pointed to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what an element names."""
        for name, value in attrs:
            if not value:
                continue
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src"):
                (self.links if tag == "a" else self.loaded).append(value)


def link_faults(site: Path) -> list[str]:
    """Links of a site to files and places that it lacks, and what it would load from elsewhere."""
    pages = {
        path: Page(path.read_text("utf-8"))
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.parts
    }
    faults = []
    for path, page in pages.items():
        where = path.relative_to(site)
        faults += [f"{where} loads {link}" for link in page.loaded if urlsplit(link).netloc]
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            place = unquote(parts.fragment)
            if not target.exists():
                faults.append(f"{where} links to {link}, which is not there")
            elif place and target in pages and place not in pages[target].ids:
                faults.append(f"{where} links to {link}, a place that is not there")
    return sorted(faults)


def missing_names(site: Path) -> tuple[list[str], int]:
    """Return the public names that are not in the site's reference, and how many there are."""
    import reference

    missing = []
    names = reference.public_names()
    for name in names:
        path = site / "reference" / f"{name}.html"
        places = {f"bayescal.{name}", f"module-bayescal.{name}"}
        if not path.exists() or not places & Page(path.read_text("utf-8")).ids:
            missing.append(name)
    return missing, len(names)


def search_faults(site: Path, words: tuple[str, ...]) -> list[str]:
    """Words that the index of the search does not find."""
    path = site / "searchindex.js"
    index = path.read_text("utf-8") if path.exists() else ""
    return [f"the search does not find {word!r}" for word in words if f'"{word}"' not in index]


def build(fast: bool) -> int:
    """Run Sphinx; return its exit code."""
    from sphinx.cmd.build import main

    # Notebooks run in processes of their own, which import the package of this tree.
    paths = [str(DOCS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ.pop("BAYESCAL_DOCS_FAST", None)
    if fast:
        os.environ["BAYESCAL_DOCS_FAST"] = "1"
    known = ["-d", str(DOCS / "_build" / "doctrees")]
    return main(["-q", "-W", "--keep-going", "-b", "html", *known, str(DOCS), str(SITE)])


def run(arguments: list[str]) -> int:
    """Build, check, and say what was found."""
    start = time.monotonic()
    if code := build(fast="--fast" in arguments):
        return code
    seconds = time.monotonic() - start
    missing, names = missing_names(SITE)
    faults = [f"bayescal.{name} has no page" for name in missing]
    faults += link_faults(SITE) + search_faults(SITE, ("temperatur", "isoton", "posterior"))
    print(*faults, sep="\n", end="\n" * bool(faults))
    files = [path for path in SITE.rglob("*") if path.is_file()]
    pages = sum(path.suffix == ".html" for path in files)
    size = sum(path.stat().st_size for path in files) / 1e6
    print(
        f"{SITE}: {pages} pages, {size:.1f} MB, {seconds:.0f} s; "
        f"{names - len(missing)} of {names} public names; {len(faults)} faults"
    )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
