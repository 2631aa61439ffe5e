"""On light and dark backgrounds, all drawn elements contrast with what lies behind them."""

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb, to_rgba

import bayescal as bc
from bayescal import plots
from bayescal.inference.parameters import ParameterPosterior
from bayescal.plots.style import COLORS, is_dark

#: Minimum WCAG contrast of lines.
LINES = 3.0
#: Minimum contrast of pale areas; black needs more.
AREAS = {"white": 1.15, "black": 1.3}
#: Minimum contrast of thin reference lines, which are meant to be faint.
FAINT = 1.5


def luminance(rgb: Any) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(rgb)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(color: Any, ground: Any) -> float:
    """Return the contrast of a color, seen through its opacity, and its ground."""
    *rgb, alpha = to_rgba(color)
    blended = [alpha * c + (1 - alpha) * g for c, g in zip(rgb, to_rgb(ground), strict=True)]
    low, high = sorted((luminance(blended), luminance(ground)))
    return (high + 0.05) / (low + 0.05)


def draw_binary() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    p = rng.uniform(size=400)
    return p, (rng.uniform(size=400) < p).astype(int)


def draw_models() -> tuple[dict[str, np.ndarray], np.ndarray]:
    p, y = draw_binary()
    return {f"m{e}": p ** (1 + e / 5) for e in range(len(COLORS))}, y


def make_posterior() -> ParameterPosterior:
    z = np.linspace(-2, 2, 101)
    return ParameterPosterior({"b": (z[:, None] + [0, 1, 2])[None]}, "laplace", z, z, 0)


def fit_beta() -> Any:
    return bc.Beta(inference="laplace", random_state=0).fit(*draw_binary())


DRAWN: dict[str, Callable[[], Any]] = {
    "binned": lambda: plots.reliability(*draw_models()),
    "corp": lambda: plots.reliability(*draw_models(), method="corp", band="confidence"),
    "smooth": lambda: plots.reliability(*draw_models(), method="smooth"),
    "cumulative": lambda: plots.cumulative(*draw_models()),
    "by_model": lambda: plots.by_model(*draw_models())[0],
    "curve": lambda: plots.curve(fit_beta()),
    "by_size": lambda: plots.by_size(
        [1, 2], {str(j): [j, j + 1] for j in range(7)}, errors={str(j): [1, 1] for j in range(7)},
        floor=0,
    ),
    "decision_cost": lambda: plots.decision_cost(*draw_models()),
    "critical_difference": lambda: plots.critical_difference(
        {name: np.sin(np.arange(9) * (j + 1)) for j, name in enumerate("abc")}, test="nemenyi"
    ),
    "parameters": lambda: plots.parameters(make_posterior()),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "style"),
    [
        *((name, style) for name in DRAWN for style in ("default", "dark_background")),
        *((name, "transparent") for name in ("binned", "by_size", "parameters")),
    ],
)
def test_what_is_drawn_is_seen(name: str, style: str) -> None:
    clear = {"axes.facecolor": "none", "figure.facecolor": "none"}
    styles: list[Any] = ["dark_background", clear] if style == "transparent" else [style]
    with plt.style.context(styles):
        ax = DRAWN[name]()
        ground = "white" if style == "default" else "black"
        assert is_dark(ax) == (ground == "black")
        for line in ax.lines:
            least = LINES if line.get_linewidth() > 1 else FAINT
            # Orange, purple and sky blue are as pale on white as the palette allows.
            if ground == "white" and line.get_color() in COLORS:
                least = 2.0
            alone = line.get_linestyle() == "None"
            color = line.get_markeredgecolor() if alone else line.get_color()
            assert contrast(color, ground) >= least, line
        for collection in ax.collections:
            for color in (*collection.get_facecolor(), *collection.get_edgecolor()):
                if color[3] > 0:
                    assert contrast(color, ground) >= AREAS[ground], collection
        for text in ax.texts:
            assert contrast(text.get_color(), ground) >= LINES, text
