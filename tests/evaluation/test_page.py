"""The page: well-formed, complete, self-contained, and safe from data that contain HTML."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

import bayescal
from bayescal.evaluation import _svg

EVIL = "<script>alert(1)</script>&\"'$x$"
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Parse elements with attributes, text by the nearest heading, and syntax errors."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.faults: list[str] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(source)
        self.close()
        self.faults += [f"{tag} is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, Any]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> list[str]:
        return [data for name, data in self.texts if name == tag]


def evaluate_binary(models: int = 1, n: int = 300, **options: Any) -> bayescal.Evaluation:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=n)
    y = (rng.uniform(size=n) < p**1.5).astype(int)
    names = ["raw", EVIL, "_third", *map(str, range(9))]
    probs = {names[j]: p ** (1 + j / 2) for j in range(models)}
    return bayescal.evaluate(probs, y, replicates=40, classes=["no", "yes"], **options)


def evaluate_classes(k: int, models: int = 1, names: Any = None) -> bayescal.Evaluation:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(300, k))
    y = (logits / 2 + rng.gumbel(size=(300, k))).argmax(axis=1)
    probs = {}
    for j in range(models):
        odds = np.exp(logits / (1 + j))
        probs[f"model {j}"] = odds / odds.sum(axis=1, keepdims=True)
    return bayescal.evaluate(probs, y, replicates=40, classes=names)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    names = [EVIL, "b$", "_c", "d", "e"]
    return {
        "one": evaluate_binary().to_html(title=EVIL, about={EVIL: EVIL}),
        "three": evaluate_binary(3).to_html(),
        "five": evaluate_classes(5, 2, names).to_html(),
        "many": evaluate_classes(30).to_html(),
    }


@pytest.mark.parametrize("name", ["one", "three", "five", "many"])
def test_page_is_well_formed_and_accessible(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    assert page.faults == []
    assert pages[name].startswith("<!DOCTYPE html>")
    assert page.all("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in page.all("meta")
    assert "width=device-width" in str(page.all("meta"))
    identifiers = [a["id"] for _, a in page.elements if "id" in a]
    assert len(set(identifiers)) == len(identifiers)
    assert len(page.all("h1")) == 1
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert max(np.diff(levels)) <= 1
    figures = [a for a in page.all("svg") if a.get("role") == "img"]
    assert len(figures) == len(page.all("figure")) == len(page.all("figcaption"))
    assert all(a["aria-label"] for a in figures)
    assert all(a.get("scope") in ("col", "row") for a in page.all("th"))
    assert all("tabindex" in a for a in page.all("div") if a.get("class") == "scroll")


@pytest.mark.parametrize("name", ["one", "three", "five", "many"])
def test_page_loads_nothing_and_links_within(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    source = pages[name]
    assert "http://" not in source and "https://" not in source and "@import" not in source
    identifiers = {a["id"] for _, a in page.elements if "id" in a}
    for _, attributes in page.elements:
        assert not {"src", "srcset", "data", "action", "poster"} & set(attributes)
        assert not [key for key in attributes if key.startswith("on")]
        if (target := attributes.get("href")) is not None:
            assert target == "data:," or target.removeprefix("#") in identifiers
        for value in attributes.values():
            for link in re.findall(r"url\(([^)]*)\)", value or ""):
                assert link.removeprefix("#") in identifiers
    (style,) = page.text("style")
    assert "url(" not in style


def test_only_our_script_may_run(pages: dict[str, str]) -> None:
    for page in map(Page, pages.values()):
        (script,) = page.text("script")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv")]
        assert f"script-src 'sha256-{digest}'" in policy
        assert policy.startswith("default-src 'none'")


def test_names_are_text(pages: dict[str, str]) -> None:
    one, three, five = (Page(pages[name]) for name in ("one", "three", "five"))
    assert one.text("h1") == [EVIL]
    assert EVIL in one.text("dt") and EVIL in one.text("dd")
    assert EVIL in three.text("th") and EVIL in three.text("h3")
    assert {EVIL, "b$", "_c"} <= set(five.text("p"))
    assert any(EVIL in (a.get("aria-label") or "") for a in three.all("svg"))


def test_both_themes_have_all_colors(pages: dict[str, str]) -> None:
    (style,) = Page(pages["one"]).text("style")
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", style)
    names = [set(re.findall(r"(--[\w-]+):", block)) for block in blocks]
    assert "prefers-color-scheme: dark" in style
    assert names[0] == names[1] == names[2] and len(names[0]) >= 15
    values = [dict(re.findall(r"(--[\w-]+): (#\w+)", block)) for block in blocks]
    assert values[1] == values[2]
    used = set(re.findall(r"var\((--[\w-]+)\)", pages["three"]))
    assert used <= names[0]
    for colors in values[:2]:
        for ground in ("--page", "--surface"):
            for ink in ("--ink", "--muted", "--accent", "--warn", "--good", "--slight"):
                assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)
        for j in range(7):
            assert contrast(colors[f"--series-{j}"], colors["--surface"]) >= 3, j


def contrast(first: str, second: str) -> float:
    """Compute the contrast ratio of WCAG 2."""
    light = []
    for color in (first, second):
        parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        light.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(light) + 0.05) / (min(light) + 0.05)


def test_sections_and_figures_fit_the_data(pages: dict[str, str]) -> None:
    one, three, five, many = (Page(pages[n]) for n in ("one", "three", "five", "many"))
    assert "Costs of decisions" in one.text("h2") and "Class by class" not in one.text("h2")
    assert "Class by class" in five.text("h2") and "Costs of decisions" not in five.text("h2")
    assert "Subgroups" not in one.text("h2")
    assert "Differences from raw" in three.text("h2") and "Differences" not in str(one.text("h2"))
    assert len(one.all("figure")) == 1 + 3 + 1
    assert len(three.all("figure")) == 1 + 3 * 3 + 1
    assert len(five.all("figure")) == 1 + 2 * 3 + 5
    assert len(many.all("figure")) == 1 + 3 + 12 + 1
    assert "The 12 of 30 classes with the largest error are shown" in pages["many"]
    assert "and 10 more" in pages["many"]


def test_numbers_are_those_of_the_report(pages: dict[str, str]) -> None:
    result = evaluate_binary(3)
    cells = Page(pages["three"]).text("td")
    for by_metric in result.report.intervals.values():
        for interval in by_metric.values():
            assert f"{interval.estimate:.4f}" in cells
    strengths = [finding.strength for finding in result.findings.values()]
    assert re.findall(r'class="verdict (\w+)"', pages["three"]) == strengths
    assert len(set(strengths)) > 1
    page = Page(pages["three"])
    for by_metric in result.report.differences.values():
        for interval in by_metric.values():
            shown = f"{interval.estimate:+.4f}".replace("-", "\N{MINUS SIGN}")
            assert shown in cells or float(f"{interval.estimate:.4f}") == 0
    assert f"[{result.report.intervals['raw']['ECE'].lower:.4f}" in str(page.text("span"))


def test_page_is_written_and_does_not_depend_on_the_style_of_plots(tmp_path: Path) -> None:
    result = evaluate_binary()
    result.save_html(tmp_path / "page.html", title="Title")
    kept = (tmp_path / "page.html").read_text(encoding="utf-8")
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"axes.edgecolor": "red", "font.size": 30, "text.usetex": True}):
        assert result.to_html(title="Title") == kept
    assert dict(matplotlib.rcParams) == before


def test_what_weights_are_worth_is_said() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.uniform(size=50), rng.integers(0, 2, size=50)
    weights = rng.exponential(size=50)
    worth = weights.sum() ** 2 / (weights**2).sum()
    phrase = "cases of equal weight"
    page = bayescal.evaluate(p, y, weights=weights, replicates=20).to_html()
    assert f"equivalent to {worth:.0f} {phrase}" in page
    whole = bayescal.evaluate(p, y, weights=np.tile([0, 2], 25), replicates=20).to_html()
    assert phrase not in whole and "they add up to 50" in whole


def test_colors_are_those_of_the_theme() -> None:
    assert _svg.theme_color("#0072b2") == "var(--series-0)"
    assert _svg.theme_color("#0072b2", 9) == "var(--series-2)"
    assert _svg.theme_color("#D55E00", 1) == "var(--series-2)"
    assert _svg.theme_color("#000000") == "currentColor"
    assert _svg.theme_color("#ffffff") == "var(--surface)"
    assert _svg.theme_color("#8c8c8c") == "var(--muted)"
    assert _svg.theme_color("#123456") == "#123456"


def test_figures_have_no_colors_of_their_own(pages: dict[str, str]) -> None:
    for name in ("one", "three", "five"):
        drawn = re.findall(r"<svg.*?</svg>", pages[name], re.DOTALL)
        assert not [color for svg in drawn for color in re.findall(r":\s*#[0-9a-f]{6}", svg)]


def test_long_paths_are_thinned_within_what_is_seen() -> None:
    x = np.linspace(0, 100, 20_001)
    y = np.round(x)
    path = "M " + " L ".join(f"{a:.6f} {b:.6f}\n" for a, b in zip(x, y, strict=True)) + "z\n"
    thin = np.array(re.findall(r"[ML] (\S+) (\S+)", _svg._thin(path)), float)
    assert len(thin) < 1000
    np.testing.assert_array_equal(thin[[0, -1]], [[0, 0], [100, 100]])
    assert _svg._thin(path).endswith(" z")
    for point in np.stack([x, y], axis=1)[::37]:
        assert np.abs(thin - point).sum(axis=1).min() <= _svg._NEAR
    short = "M 0 0 \nL 0.01 0 \nL 1 1 \n"
    assert _svg._thin(short) == "M 0 0 L 0.01 0 L 1 1"


@pytest.mark.slow
@pytest.mark.parametrize(("models", "k"), [(9, 2), (2, 3)])
def test_many_models_have_a_page(models: int, k: int) -> None:
    result = evaluate_binary(models) if k == 2 else evaluate_classes(k, models)
    assert Page(result.to_html()).faults == []


def test_fonts_of_pictures_are_those_of_the_page() -> None:
    style = "font: italic 10px 'DejaVu Sans', sans-serif; fill: #0072b2; ; font-family: x; top: 1"
    assert [*_svg._declarations(style, 0)] == ["font-size: 10px", "fill: var(--series-0)", "top: 1"]
    assert [*_svg._declarations("font: caption", 0)] == []
