"""Check every page of the built site in Chromium: wide and narrow windows, light and dark themes.

    python docs/look.py [--out DIR] [PAGE ...]

Print the pages that are wider than their window, warnings and errors of the browser console, and
searches that do not find the expected page. With ``--out``, save a screenshot of every page. The
script needs the built site (``docs/build.py``), the dependency group ``test``, Chromium and
ChromeDriver.
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
CHROMIUM_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
# Number of pixels by which the page is wider than the window. Content that scrolls inside its own
# box does not count.
EXCESS_WIDTH = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
SET_THEME = (
    "localStorage.setItem('mode', arguments[0]); localStorage.setItem('theme', arguments[0])"
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without logging requests."""

    def log_message(self, format: str, *args: Any) -> None:
        """Discard the message."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on the loopback interface and yield the URL."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def browser() -> Iterator[Any]:
    """Start headless Chromium and yield its driver."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    programs = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    options.binary_location = next(filter(None, programs), "")
    for option in CHROMIUM_OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With an explicit driver path and offline mode, Selenium downloads nothing.
    service = webdriver.ChromeService(
        executable_path=shutil.which("chromedriver"),
        env=os.environ | {"SE_OFFLINE": "true", "SE_AVOID_STATS": "true"},
    )
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def save_screenshot(driver: Any, width: int, path: Path, limit: int = 6000) -> None:
    """Save a screenshot of a page, cut off after ``limit`` pixels of height."""
    height = min(driver.execute_script("return document.documentElement.scrollHeight"), limit)
    area = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    parameters = {"format": "png", "clip": area, "captureBeyondViewport": True}
    data = driver.execute_cdp_cmd("Page.captureScreenshot", parameters)["data"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(data))


def faults_of(driver: Any, home: str, page: str, out: Path | None) -> Iterator[str]:
    """Check a page at every width and in every theme, and yield its faults."""
    for theme in THEMES:
        driver.execute_script(SET_THEME, theme)
        driver.get(f"{home}/{page}")
        if driver.execute_script("return document.documentElement.dataset.theme") != theme:
            yield f"{page}: the {theme} theme is not applied"
        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            if (excess := driver.execute_script(EXCESS_WIDTH)) > 0:
                yield f"{page} is {excess} pixels wider than the window ({width}, {theme})"
            if out:
                name = page.removesuffix(".html").replace("/", "-")
                save_screenshot(driver, width, out / f"{name}-{width}-{theme}.png")
    yield from console_messages(driver, page)


def console_messages(driver: Any, page: str) -> Iterator[str]:
    """Yield warnings and errors of the browser console, without the other messages of the theme."""
    for entry in driver.get_log("browser"):
        if entry["level"] in ("WARNING", "SEVERE"):
            yield f"{page}: {entry['message']}"


def search_faults(driver: Any, home: str, word: str, page: str) -> Iterator[str]:
    """Search for a word and yield a fault if the expected page is not among the results."""
    driver.get(f"{home}/search.html?q={word}")
    for _ in range(50):
        paths = driver.execute_script(
            "return [...document.querySelectorAll('#search-results a')].map(a => a.pathname)"
        )
        if any(path.endswith(page) for path in paths):
            break
        time.sleep(0.1)
    else:
        yield f"the search for {word!r} finds {len(paths)} pages, but not {page}"
    yield from console_messages(driver, f"search.html?q={word}")


def main() -> int:
    """Check the pages, print all faults and return the exit code."""
    parser = argparse.ArgumentParser(description="Check the site in Chromium.")
    parser.add_argument("--out", type=Path, help="folder for screenshots")
    parser.add_argument(
        "pages", nargs="*", help="pages to check, such as start/index.html (default: all)"
    )
    args = parser.parse_args()
    pages = args.pages or sorted(
        str(path.relative_to(SITE))
        for path in SITE.rglob("*.html")
        if not {"_static", "_images"} & set(path.relative_to(SITE).parts)
    )
    faults: list[str] = []
    with served(SITE) as home, browser() as driver:
        driver.get(f"{home}/index.html")
        for page in pages:
            faults += faults_of(driver, home, page, args.out)
        faults += search_faults(driver, home, "isotonic", "reference/Isotonic.html")
        faults += search_faults(driver, home, "temperature", "reference/Temperature.html")
    print(*faults, sep="\n", end="\n" * bool(faults))
    print(f"{len(pages)} pages, {WIDTHS} pixels wide, {THEMES}: {len(faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
