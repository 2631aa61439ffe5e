"""Names in figures: long names, many names, and names that Matplotlib interprets."""

from collections.abc import Callable
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text

import bayescal as bc
from bayescal import plots
from bayescal.inference.parameters import ParameterPosterior
from bayescal.plots import style

LONG = "a model with a long name-of-its-own_and-then-some-more-"
STRANGE = ["_tuned", "cost of $5$ and $6", "50 % <b>bold</b> & more", "two\nlines", "日本語"]
SIZES = [(3.0, 3.0), (8.0, 4.0)]


def forecasts(names: list[str]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    p = (np.arange(120) + 0.5) / 120
    y = ((np.arange(120) * 0.618034) % 1 < p**1.5).astype(int)
    return {name: p ** (1 + index / 5) for index, name in enumerate(names)}, y


def curves(names: list[str], **options: Any) -> Any:
    models, y = forecasts(names)
    return plots.curve({name: bc.Logistic().fit(p, y) for name, p in models.items()}, **options)


def by_size(names: list[str], **options: Any) -> Any:
    values = {name: np.array([0.5, 0.4, 0.3]) + index for index, name in enumerate(names)}
    return plots.by_size([30, 100, 300], values, **options)


def critical_difference(names: list[str], **options: Any) -> Any:
    rng = np.random.default_rng(0)
    scores = {name: rng.normal(size=8) + index for index, name in enumerate(names)}
    return plots.critical_difference(scores, **options)


def classwise(names: list[str], **options: Any) -> Any:
    k = len(names)
    rng = np.random.default_rng(0)
    probs, y = rng.dirichlet(np.ones(k), 200), rng.integers(0, k, 200)
    models = {"raw": probs, "_a": probs[::-1]}
    return plots.classwise(models, y, classes=names, columns=2, **options)


DRAWN: dict[str, Callable[..., Any]] = {
    "reliability": lambda names, **options: plots.reliability(*forecasts(names), **options),
    "decision_cost": lambda names, **options: plots.decision_cost(*forecasts(names), **options),
    "cumulative": lambda names, **options: plots.cumulative(*forecasts(names), **options),
    "curve": curves,
    "by_size": by_size,
    "critical_difference": critical_difference,
}
PANELS: dict[str, Callable[..., Any]] = {
    "by_model": lambda names, **options: plots.by_model(*forecasts(names), columns=2, **options),
    "classwise": classwise,
}


def texts_of(figure: Any) -> list[Text]:
    """Return the visible texts."""
    figure.canvas.draw()
    ticks = {
        label
        for ax in figure.findobj(Axes)
        for axis in (ax.xaxis, ax.yaxis)
        for label in (*axis.get_ticklabels(), *axis.get_ticklabels(minor=True))
    }
    texts = (text for text in figure.findobj(Text) if text not in ticks)
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


def shown_names(figure: Any) -> set[str]:
    """Return the visible texts, each on one line."""
    return {" ".join(text.get_text().split("\n")) for text in texts_of(figure)}


@pytest.mark.parametrize("name", list(DRAWN))
def test_strange_names_are_shown_as_they_are(name: str) -> None:
    ax = DRAWN[name](STRANGE)
    result = " | ".join(shown_names(ax.figure))
    for strange in STRANGE:
        assert " ".join(strange.split("\n")) in result
    named = [t for t in texts_of(ax.figure) if "$5$" in t.get_text() or "50 %" in t.get_text()]
    assert len(named) == 2
    assert not any(text.get_parse_math() for text in named)


@pytest.mark.parametrize("name", list(PANELS))
def test_strange_names_are_titles_as_they_are(name: str) -> None:
    axes = PANELS[name](STRANGE)
    axes[0].figure.set_size_inches(12, 8)
    result = " | ".join(shown_names(axes[0].figure))
    for strange in STRANGE:
        assert " ".join(strange.split("\n")) in result
    if name == "classwise":
        assert "_a" in {text.get_text() for text in axes[0].figure.legends[0].get_texts()}


@pytest.mark.parametrize(("name", "count"), [("reliability", 2), *((name, 12) for name in DRAWN)])
def test_long_names_leave_room_on_a_new_figure(name: str, count: int) -> None:
    ax = DRAWN[name]([f"{LONG}{index}" for index in range(count)])
    figure = ax.figure
    check_inside(figure)
    inches = ax.get_window_extent().size / figure.dpi
    assert inches[0] > 1.5
    # Shortened names stay different.
    result = [text for text in shown_names(figure) if text.startswith("a m")]
    assert len(set(result)) >= count
    legend = ax.get_legend()
    if name == "reliability":
        data = ax.transData.transform([(0, 0), (1, 1)])
        box = legend.get_window_extent()
        assert box.x0 >= data[1, 0] or box.width <= 0.8 * (data[1, 0] - data[0, 0])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", list(DRAWN))
def test_long_names_stay_within_given_axes(name: str, size: tuple[float, float]) -> None:
    figure: Any
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    DRAWN[name]([*(f"{LONG}{index}" for index in range(4)), *STRANGE], ax=ax)
    check_inside(figure)
    inches = np.asarray(ax.get_window_extent().size) / figure.dpi
    assert inches.min() > 0.25 * min(size)


@pytest.mark.parametrize(
    ("size", "given"),
    [(None, False), *((size, given) for size in SIZES for given in (False, True))],
)
@pytest.mark.parametrize("name", list(PANELS))
def test_titles_of_neighbors_do_not_meet(
    name: str, given: bool, size: tuple[float, float] | None
) -> None:
    names = [*(f"{LONG}{index}" for index in range(2)), *STRANGE[1:3]]
    figure: Any
    if given:
        figure, axes = plt.subplots(2, 2, figsize=size, layout="constrained")
        PANELS[name](names, axes=axes)
    else:
        figure = PANELS[name](names)[0].figure
        if size is not None:
            figure.set_size_inches(size)
    figure.canvas.draw()
    check_inside(figure, 0.02)
    boxes = {ax: ax.title.get_window_extent() for ax in figure.axes if ax.get_title()}
    assert len(boxes) == 4
    for (first, box), (second, other) in combinations(boxes.items(), 2):
        assert not box.overlaps(other), (first.get_title(), second.get_title())
    if not given and figure.get_figheight() > 3.5:
        across = figure._supxlabel.get_window_extent()
        beside = figure._supylabel.get_window_extent()
        ticks = [t for ax in figure.axes for t in (*ax.get_xticklabels(), *ax.get_yticklabels())]
        for tick in ticks:
            if tick.get_visible() and tick.get_text():
                assert not tick.get_window_extent().overlaps(across)
                assert not tick.get_window_extent().overlaps(beside)


def test_parameters_and_corners_are_named_as_they_are() -> None:
    rng = np.random.default_rng(0)
    draws = {"_$a$": rng.normal(size=(1, 50)), "日": rng.normal(size=(1, 50, 2))}
    posterior = ParameterPosterior(draws, "laplace", np.zeros(1), np.zeros(1), 0)
    figure = plots.parameters(posterior).figure
    figure.canvas.draw()
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["_$a$", "日[0]", "日[1]"]
    assert not any(label.get_parse_math() for label in labels)
    corners = ["_$a$", "x\ny", "日"]
    figure = plots.simplex(lambda p: p, labels=corners).figure
    assert {"_$a$", "x y", "日"} <= shown_names(figure)


@pytest.mark.parametrize("name", list(DRAWN))
def test_names_that_are_equal_as_text_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="differ"):
        DRAWN[name]([1, "1"])


def check_inside(figure: Any, slack: float = 0.01) -> None:
    """Check that texts are inside the figure."""
    width, height = figure.bbox.size
    for text in texts_of(figure):
        box = text.get_window_extent()
        assert box.x0 >= -slack * width, text
        assert box.x1 <= (1 + slack) * width, text
        assert box.y0 >= -slack * height, text
        assert box.y1 <= (1 + slack) * height, text


class Font:
    """A font with some letters."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def get_charmap(self) -> dict[int, int]:
        return {ord(letter): 0 for letter in self.letters}


@pytest.mark.parametrize("last", [True, False])
def test_fonts_are_added_for_letters_that_the_given_ones_lack(
    monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    from matplotlib import font_manager

    fonts = {"given": "ab", "useless": "ab", "greek": "aαβ", "broken": None, "cyrillic": "жα"}
    names = [*fonts, *([style._LAST_RESORT] if last else [])]
    entries = [SimpleNamespace(name=name, fname=name) for name in names if name != "given"]

    def get(path: str) -> Font:
        if fonts[path] is None:
            raise OSError("no font")
        return Font(fonts[path])

    monkeypatch.setattr(font_manager, "findfont", lambda properties: properties.get_family()[0])
    monkeypatch.setattr(font_manager, "get_font", get)
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    result = style._fonts_with.__wrapped__
    assert result(frozenset("ab"), ("given",)) == []
    assert result(frozenset("aα"), ("given",)) == ["greek"]
    assert result(frozenset("βж"), ("given",)) == ["greek", "cyrillic"]
    rest = [style._LAST_RESORT] if last else []
    assert result(frozenset("α漢"), ("given",)) == ["greek", *rest]


@pytest.mark.parametrize("name", list(PANELS))
def test_panels_of_the_user_stay_open_after_an_error(name: str) -> None:
    figure, axes = plt.subplots(2, 2)
    with pytest.raises(ValueError, match="bins must be at least 1, got -3"):
        PANELS[name]([*"abcd"], axes=axes, bins=-3)
    assert plt.get_fignums() == [figure.number]
    with pytest.raises(ValueError, match="bins must be at least 1, got -3"):
        PANELS[name]([*"abcd"], bins=-3)
    assert plt.get_fignums() == [figure.number]


def test_titles_that_fit_in_no_size_have_the_smallest() -> None:
    figure, axes = plt.subplots(2, 2, figsize=(1.6, 0.5))
    drawn = PANELS["by_model"]([f"{LONG}{i}" for i in range(4)], axes=axes)
    figure.canvas.draw()
    usual = plt.rcParams["axes.titlesize"]
    sizes = {ax.title.get_fontsize() for ax in drawn}
    full = FontProperties(size=usual).get_size_in_points()
    assert max(sizes) <= 0.56 * full
