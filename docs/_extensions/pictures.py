"""Draw a picture of each calibrator on three models with known true probabilities.

The models are an over-confident network (its log odds are 2.5 times too large), an under-confident
forest (its log odds are half as large as they should be), and a margin whose reliability curve is
bent. Each model has 1,000 calibration rows. ``draw`` writes one picture with three panels.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit, logit

import bayescal as bc

ROWS = 1_000
GRID = expit(np.linspace(-6, 6, 161))
# Colors for a white page. Pictures are transparent, and the dark theme of the site inverts them.
GRAY = "#57606a"
COLORS = BLUE, ORANGE = "#0072b2", "#d55e00"
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bayescal",
    "font.size": 9,
    "font.family": "sans-serif",
    **{f"{name}.color": GRAY for name in ("text", "xtick", "ytick")},
    **{name: GRAY for name in ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor")},
    **{f"{name}.major.size": 2 for name in ("xtick", "ytick")},
}

MODELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "over-confident network": lambda p: expit(0.4 * logit(p)),
    "under-confident forest": lambda p: expit(2 * logit(p)),
    "bent margin": lambda p: 0.08 + 0.84 * expit(4 * (p - 0.75) / 0.25) + 0.06 * p,
}


def sample(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Draw predicted probabilities of a model, and labels from the true probabilities."""
    rng = np.random.default_rng(list(MODELS).index(name))
    if name == "over-confident network":
        p = expit(3 * rng.normal(size=ROWS))
    elif name == "under-confident forest":
        p = np.round(rng.beta(3, 3, ROWS) * 100) / 100  # proportions of 100 trees
        p = np.clip(p, 0.01, 0.99)
    else:
        p = rng.beta(1.2, 1.2, ROWS)
    return p, (rng.uniform(size=ROWS) < MODELS[name](p)).astype(int)


def calibrators() -> dict[str, Any]:
    """Create an instance of every calibrator, by class name."""
    result = {}
    for name in bc.__all__:
        kind: Any = getattr(bc, name)
        if inspect.isclass(kind) and issubclass(kind, bc.Calibrator) and kind is not bc.Calibrator:
            required = [
                p
                for p in inspect.signature(kind).parameters.values()
                if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
            result[name] = kind(bc.Isotonic()) if required else kind()
    result["Auto"] = bc.Auto()
    result["Average"] = bc.Average([bc.Beta(), bc.Isotonic()])
    result["Composition"] = bc.compose(bc.Temperature(), bc.KNN())
    return {name: result[name] for name in sorted(result)}


@contextmanager
def panels(path: Path, count: int, **options: Any) -> Iterator[Any]:
    """Yield the axes of a row of panels, and write the picture on exit."""
    import matplotlib

    figure = Figure(figsize=(7.2, 2.5), layout="constrained")
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = figure.subplots(1, count, **options)
        for ax in axes:
            ax.set_facecolor("none")
            ax.spines[["top", "right"]].set_visible(False)
        yield axes
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})


def draw(calibrator: Any, path: Path) -> None:
    """Fit a calibrator to each model and draw its calibration curve beside the true one."""
    if "random_state" in calibrator.get_params():
        calibrator.set_params(random_state=0)
    with panels(path, 3, sharey=True) as axes:
        for ax, name in zip(axes, MODELS, strict=True):
            p, y = sample(name)
            curve = calibrator.fit(p, y).predict_proba(GRID)[:, 1]
            ax.plot([0, 1], [0, 1], color=GRAY, linewidth=0.6)
            ax.plot(GRID, MODELS[name](GRID), color=GRAY, linestyle="--", linewidth=1.5)
            ax.plot(GRID, curve, color=ORANGE, linewidth=1.8)
            ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
            ax.set_title(name, fontsize=9)


def drawings() -> dict[str, tuple[Callable[[Path], None], str]]:
    """Map the public name of each calibrator to a drawing function and a caption."""
    caption = (
        "Calibrated probability (orange) by predicted probability, for three models with "
        f"{ROWS:,} calibration rows each. Dashed: the true probability."
    )
    return {
        name: (partial(draw, calibrator), caption) for name, calibrator in calibrators().items()
    }
