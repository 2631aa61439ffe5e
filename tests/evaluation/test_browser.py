"""The page in a real browser: headless Chromium, driven by Selenium."""

import io
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayescal

pytestmark = pytest.mark.slow

EVIL = "<script>document.title = 'broken'</script>"
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def find_program(*names: str) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program = find_program("chromium", "chromium-browser", "google-chrome")
    driver = find_program("chromedriver")
    if program is None or driver is None:
        pytest.skip("no browser: chromium and chromedriver are not both installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # Selenium gets the driver's path, so it does not search for one.
    service = webdriver.ChromeService(
        executable_path=driver, env=os.environ | {"SE_OFFLINE": "true", "SE_AVOID_STATS": "true"}
    )
    running = webdriver.Chrome(options=options, service=service)
    yield running
    running.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("pages")
    p = rng.uniform(size=400)
    y = (rng.uniform(size=400) < p).astype(int)
    logits = 2 * rng.normal(size=(400, 10))
    codes = (logits + rng.gumbel(size=(400, 10))).argmax(axis=1)
    odds = np.exp(logits)
    rows = odds / odds.sum(axis=1, keepdims=True)
    data = {
        "one": ({"raw": p}, y, ["no", EVIL]),
        "three": ({"raw": p, EVIL: p**2, "a-name-" * 20: np.full(400, 0.5)}, y, ["no", "yes"]),
        "ten": ({"first": rows, "second": np.full((400, 10), 0.1)}, codes, None),
    }
    result = {}
    for name, (probs, labels, classes) in data.items():
        result[name] = folder / f"{name}.html"
        evaluation = bayescal.evaluate(probs, labels, classes=classes, replicates=30)
        evaluation.save_html(result[name], about={"File": "probs.csv"})
    return result


def show(browser: Any, page: Path, width: int, theme: str = "light") -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(page.as_uri())
    # On a busy machine the browser may report completion too early.
    deadline = time.monotonic() + 60
    while browser.execute_script("return document.readyState") != "complete":
        assert time.monotonic() < deadline, f"{page} is still being read"
        time.sleep(0.05)


def background(browser: Any) -> str:
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("name", ["one", "three", "ten"])
def test_page_opens_without_errors_or_requests(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    browser.get("about:blank")
    browser.get_log("performance")
    show(browser, pages[name], 1200)
    assert browser.title == "Calibration report"
    assert browser.get_log("browser") == []
    sent = [entry["message"] for entry in browser.get_log("performance")]
    sent = [message for message in sent if '"Network.requestWillBeSent"' in message]
    assert len(sent) == 1 + sum('"url":"data:' in message for message in sent)


@pytest.mark.parametrize("name", ["one", "three", "ten"])
@pytest.mark.parametrize("width", [320, 390, 1200])
def test_every_figure_is_drawn_and_nothing_overflows(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    show(browser, pages[name], width)
    figures = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(s => {"
        "  const box = s.getBoundingClientRect();"
        "  const drawn = [...s.querySelectorAll('path, use')].map(p => p.getBoundingClientRect());"
        "  return [box.left, box.right, box.height, Math.max(...drawn.map(b => b.width))];"
        "})"
    )
    assert len(figures) == {"one": 5, "three": 11, "ten": 17}[name]
    for left, right, height, drawn in figures:
        assert left >= 0 and right <= width
        assert min(right - left, height) > 90
        assert drawn > 0.5 * (right - left)
    assert browser.execute_script(
        "return document.documentElement.scrollWidth <= window.innerWidth"
    )


def test_text_can_be_read_on_a_phone(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["three"], 360)
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('body *:not(svg *, script)')]"
        "  .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))"
        "  .map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert len(sizes) > 100 and min(sizes) >= 16
    height = browser.execute_script(
        "return document.getElementById('theme').getBoundingClientRect().height"
    )
    assert height >= 44


@pytest.mark.parametrize("name", ["three", "ten"])
@pytest.mark.parametrize("width", [320, 390, 1200])
def test_text_in_figures_can_be_read(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    show(browser, pages[name], width)
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('figure text')].map(t => {"
        "  const s = t.closest('svg');"
        "  const scale = s.getBoundingClientRect().width / s.viewBox.baseVal.width;"
        "  return scale * parseFloat(getComputedStyle(t).fontSize);"
        "})"
    )
    assert len(sizes) > 100 and 10 <= min(sizes) <= max(sizes) < 24


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_wide_tables_scroll_within_themselves_and_show_it(
    browser: Any, pages: dict[str, Path], theme: str
) -> None:
    show(browser, pages["three"], 360, theme)
    wider = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(d => d.scrollWidth > d.clientWidth)"
    )
    assert any(wider)
    box = browser.find_elements("css selector", ".scroll")[wider.index(True)]
    browser.execute_script("arguments[0].scrollIntoView()", box)
    # On the side with hidden columns the background differs from the page's, and only there.
    first, last = edge_brightness(box)
    assert abs(first - last) > 25
    browser.execute_script("arguments[0].scrollLeft = 10000", box)
    moved = edge_brightness(box)
    assert abs(moved[0] - first) > 25 and abs(moved[1] - last) > 25


def edge_brightness(box: Any) -> list[float]:
    """Return the brightness of an element's left and right edge."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(box.screenshot_as_png))[..., :3].mean(axis=2) * 255
    return [float(np.median(pixels[:, column])) for column in (2, -3)]


def test_what_matters_comes_first(browser: Any, pages: dict[str, Path]) -> None:
    """Check that diagram and verdicts are visible without scrolling, and explanations folded."""
    show(browser, pages["three"], 1200)
    bottoms = browser.execute_script(
        "return [...document.querySelectorAll('.summary figure svg, .verdict strong')].slice(0, 3)"
        ".map(e => e.getBoundingClientRect().bottom)"
    )
    assert len(bottoms) == 3 and max(bottoms) < 800
    shown = browser.execute_script(
        "return [...document.querySelectorAll('details > :not(summary)')]"
        ".filter(e => e.checkVisibility()).length"
    )
    assert shown == 0


def test_theme_follows_the_system_and_the_button(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["one"], 1200, "light")
    light = background(browser)
    line = "return getComputedStyle(document.querySelector('figure path[style*=series]')).stroke"
    light_line = browser.execute_script(line)
    show(browser, pages["one"], 1200, "dark")
    dark = background(browser)
    assert brightness(dark) < 60 < 200 < brightness(light)
    assert browser.execute_script(line) != light_line
    button = browser.find_element("id", "theme")
    assert button.is_displayed() and button.text == "Light theme"
    button.click()
    assert (background(browser), button.text) == (light, "Dark theme")
    button.send_keys(" ")  # as with the keyboard
    assert (background(browser), button.text) == (dark, "Light theme")
    show(browser, pages["one"], 1200, "light")
    browser.find_element("id", "theme").click()
    assert background(browser) == dark
    assert browser.execute_script(line) != light_line


def test_print_is_on_white(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["one"], 1200, "dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert background(browser) == "rgb(255, 255, 255)"
    assert not browser.find_element("id", "theme").is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_details_open_by_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["one"], 1200)
    for index, summary in enumerate(browser.find_elements("css selector", "details summary")):
        summary.send_keys("\n")
        opened = "return document.querySelectorAll('details[open]').length"
        assert browser.execute_script(opened) == index + 1


def brightness(color: str) -> float:
    parts = color.removeprefix("rgb(").removesuffix(")").split(",")
    return float(np.mean([float(part) for part in parts]))
