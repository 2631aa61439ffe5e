"""Figures equal baselines that were checked by eye, without text, since fonts differ.

With BAYESCAL_NEW_BASELINES=1 the baselines are rewritten: look at them.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
from matplotlib.figure import Figure
from matplotlib.text import Text

import bayescal as bc
from bayescal import plots
from bayescal.inference.parameters import ParameterPosterior

BASELINES = Path(__file__).parent / "baselines"
#: Bound on the mean absolute difference of channels from 0 to 255. A missing line causes more than
#: twice as much.
TOLERANCE = 0.3


def forecasts() -> tuple[np.ndarray, np.ndarray]:
    """Return deterministic predictions and labels."""
    p = (np.arange(120) + 0.5) / 120
    return p, ((np.arange(120) * 0.618034) % 1 < p**1.5).astype(int)


def reliability(ax: Any, **options: Any) -> None:
    plots.reliability(*forecasts(), ax=ax, **options)


def classwise(ax: Any) -> None:
    p, y = forecasts()
    ax.set_axis_off()
    axes = [ax.inset_axes((0.52 * j, 0, 0.48, 1)) for j in range(2)]
    plots.classwise(np.stack([1 - p, p], axis=1), y, axes=axes)


def parameters(ax: Any) -> None:
    z = scipy.stats.norm.ppf((np.arange(200) + 0.5) / 200)
    coef = np.eye(5) * 1.3 + np.roll(np.eye(5), 2, axis=1) * -0.4
    draws = {
        "b": (np.array([-1.0, 0.2, 1.4]) + 0.3 * z[:, None])[None],
        "W": (coef + 0.1 * z[:, None, None])[None],
    }
    plots.parameters(ParameterPosterior(draws, "laplace", z, z, 0), ax=ax)


def by_size(ax: Any) -> None:
    sizes = np.array([10.0, 30, 100, 300])
    values = {"a": 0.5 + 2 / sizes, "b": 0.45 + 3 / sizes, "c": 0.4 + 5 / sizes}
    plots.by_size(sizes, values, errors={n: 0.5 / sizes for n in values}, floor=0.4, ax=ax)


def decision_cost(ax: Any) -> None:
    p, y = forecasts()
    plots.decision_cost({"raw": p, "better": p**1.5}, y, ax=ax)


def simplex(ax: Any) -> None:
    plots.simplex(lambda p: p[:, [1, 2, 0]], arrows=6, limit=3, ax=ax, colorbar=False)


def curve(ax: Any) -> None:
    calibrator = bc.Beta(inference="laplace", random_state=0).fit(*forecasts())
    plots.curve({"a": calibrator, "b": bc.Isotonic().fit(*forecasts())}, ax=ax)


def monitor(ax: Any) -> None:
    p, y = forecasts()
    mixed = np.random.default_rng(0).permutation(len(p))
    rows = bc.Monitor().update(p[mixed], y[mixed])
    rows.update(p[mixed], ((0.3 + mixed * 0.618034) % 1 < p[mixed] ** 4).astype(int))
    ax.set_axis_off()
    plots.monitor(rows, axes=[ax.inset_axes((0, 0.7 - 0.35 * j, 1, 0.3)) for j in range(3)])


def dark(ax: Any) -> None:
    ax.figure.set_facecolor("black")
    ax.set_facecolor("black")
    p, y = forecasts()
    plots.reliability({"a": p, "b": p**1.5}, y, method="corp", ax=ax, legend="ece")


PICTURES: dict[str, Callable[[Any], None]] = {
    "binned_confidence": lambda ax: reliability(ax, band="confidence"),
    "corp_consistency": lambda ax: reliability(ax, method="corp"),
    "corp_confidence": lambda ax: reliability(ax, method="corp", band="confidence"),
    "smooth_consistency": lambda ax: reliability(ax, method="smooth"),
    "smooth_confidence": lambda ax: reliability(ax, method="smooth", band="confidence"),
    "classwise": classwise,
    "parameters": parameters,
    "by_size": by_size,
    "decision_cost": decision_cost,
    "cumulative": lambda ax: plots.cumulative(*forecasts(), ax=ax),
    "simplex": simplex,
    "curve": curve,
    "monitor": monitor,
    "dark": dark,
}


def render(draw: Callable[[Any], None]) -> np.ndarray:
    """Render a drawing (h, w, 4) at 72 points per inch, without text."""
    figure = Figure(figsize=(3, 3), dpi=72)
    ax = figure.add_axes((0.1, 0.1, 0.65, 0.8))
    draw(ax)
    for text in figure.findobj(Text):
        text.set_visible(False)
    return pixels(figure)


def pixels(figure: Figure) -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).astype(float)


def difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).mean())


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_that_which_was_looked_at(name: str) -> None:
    result = render(PICTURES[name])
    path = BASELINES / f"{name}.png"
    if os.environ.get("BAYESCAL_NEW_BASELINES"):
        plt.imsave(path, result.astype(np.uint8), pil_kwargs={"optimize": True})
    assert path.stat().st_size <= 15_000
    baseline = 255 * plt.imread(path).astype(float)
    assert baseline.shape == result.shape
    assert difference(result, baseline) <= TOLERANCE


def test_pictures_that_differ_in_one_part_are_told_apart() -> None:
    without = {
        "binned_confidence": {"level": None},
        "corp_consistency": {"method": "corp", "level": 0.5},
        "smooth_consistency": {"method": "smooth", "band": "confidence"},
    }
    for name, options in without.items():
        other = render(lambda ax, options=options: reliability(ax, **options))
        assert difference(render(PICTURES[name]), other) > 2 * TOLERANCE
    thin = render(lambda ax: (reliability(ax, method="smooth"), ax.lines[-1].set_visible(False)))
    assert difference(render(PICTURES["smooth_consistency"]), thin) > 2 * TOLERANCE
