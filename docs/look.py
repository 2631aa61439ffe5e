"""Look at every page of the built site in Chromium, wide and narrow, light and dark.

    python docs/look.py [--out DIR] [PAGE ...]

It says which pages are wider than their window, what the console complains of, and whether the
search finds; with --out it keeps a picture of each. It needs the site (``docs/build.py``), the
dependency group ``test``, Chromium and its driver.
"""

from __future__ import annotations

import argparse
import base64
import functools
import http.server
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SITE = Path(__file__).resolve().parent / "_build" / "html"
WIDTHS = (1300, 390)
THEMES = ("light", "dark")
SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
# What reaches beyond the window; what scrolls within a box of its own does not count.
WIDER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
THEME = "localStorage.setItem('mode', arguments[0]); localStorage.setItem('theme', arguments[0])"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing of it."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder to this machine alone; yield its address."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def browser() -> Iterator[Any]:
    """Yield Chromium without a display."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    programs = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    options.binary_location = next(filter(None, programs), "")
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The driver is told where it is, and nothing is looked for elsewhere.
    service = webdriver.ChromeService(
        executable_path=shutil.which("chromedriver"),
        env=os.environ | {"SE_OFFLINE": "true", "SE_AVOID_STATS": "true"},
    )
    running = webdriver.Chrome(options=options, service=service)
    yield running
    running.quit()


def keep_picture(driver: Any, width: int, path: Path, limit: int = 6000) -> None:
    """Write a picture of a whole page, of the first ``limit`` pixels of a long one."""
    height = min(driver.execute_script("return document.documentElement.scrollHeight"), limit)
    area = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = {"format": "png", "clip": area, "captureBeyondViewport": True}
    data = driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(data))


def faults_of(driver: Any, home: str, page: str, out: Path | None) -> Iterator[str]:
    """Yield what is wrong with a page at any width, in any theme."""
    for theme in THEMES:
        driver.execute_script(THEME, theme)
        driver.get(f"{home}/{page}")
        if driver.execute_script("return document.documentElement.dataset.theme") != theme:
            yield f"{page} is not {theme}"
        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            if (more := driver.execute_script(WIDER)) > 0:
                yield f"{page} is {more} pixels wider than {width}, {theme}"
            if out:
                name = page.removesuffix(".html").replace("/", "-")
                keep_picture(driver, width, out / f"{name}-{width}-{theme}.png")
    yield from complaints(driver, page)


def complaints(driver: Any, page: str) -> Iterator[str]:
    """Yield what the console complains of; the theme tells of what it does, too."""
    for entry in driver.get_log("browser"):
        if entry["level"] in ("WARNING", "SEVERE"):
            yield f"{page}: {entry['message']}"


def search_faults(driver: Any, home: str, word: str, page: str) -> Iterator[str]:
    """Yield what is wrong with a search that should find a page."""
    driver.get(f"{home}/search.html?q={word}")
    for _ in range(50):
        found = driver.execute_script(
            "return [...document.querySelectorAll('#search-results a')].map(a => a.pathname)"
        )
        if any(path.endswith(page) for path in found):
            break
        time.sleep(0.1)
    else:
        yield f"the search for {word!r} finds {len(found)} pages, but not {page}"
    yield from complaints(driver, f"search.html?q={word}")


def main() -> int:
    """Look at all pages; say what is wrong."""
    parser = argparse.ArgumentParser(description="Look at the site in Chromium.")
    parser.add_argument("--out", type=Path, help="folder for pictures")
    parser.add_argument("pages", nargs="*", help="only these, such as start/index.html")
    given = parser.parse_args()
    pages = given.pages or sorted(
        str(path.relative_to(SITE))
        for path in SITE.rglob("*.html")
        if not {"_static", "_images"} & set(path.relative_to(SITE).parts)
    )
    faults: list[str] = []
    with served(SITE) as home, browser() as driver:
        driver.get(f"{home}/index.html")
        for page in pages:
            faults += faults_of(driver, home, page, given.out)
        faults += search_faults(driver, home, "isotonic", "reference/Isotonic.html")
        faults += search_faults(driver, home, "temperature", "reference/Temperature.html")
    print(*faults, sep="\n", end="\n" * bool(faults))
    print(f"{len(pages)} pages, {WIDTHS} pixels wide, {THEMES}: {len(faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
