"""What each calibrator does to the same three models, whose truth is known.

The models: a network that is too sure (its log odds are 2.5 times too large), a forest that is not
sure enough (half as large as they should be), and a margin whose curve is bent. Each gives 1,000
rows to calibrate on. ``draw`` makes one picture of three panels.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit, logit

import bayescal as bc

ROWS = 1_000
GRID = expit(np.linspace(-6, 6, 161))
# Visible on white and on black: pictures have no background of their own.
GREY, BLUE, ORANGE = "#808080", "#3a8fd0", "#e07b28"
LOOK: Any = {"svg.fonttype": "none", "font.size": 9, "svg.hashsalt": "bayescal"}

MODELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "over-confident network": lambda p: expit(0.4 * logit(p)),
    "under-confident forest": lambda p: expit(2 * logit(p)),
    "bent margin": lambda p: 0.08 + 0.84 * expit(4 * (p - 0.75) / 0.25) + 0.06 * p,
}


def sample(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted probabilities of a model, and labels drawn from its truth."""
    rng = np.random.default_rng(list(MODELS).index(name))
    if name == "over-confident network":
        p = expit(3 * rng.normal(size=ROWS))
    elif name == "under-confident forest":
        p = np.round(rng.beta(3, 3, ROWS) * 100) / 100  # shares of 100 trees
        p = np.clip(p, 0.01, 0.99)
    else:
        p = rng.beta(1.2, 1.2, ROWS)
    return p, (rng.uniform(size=ROWS) < MODELS[name](p)).astype(int)


def calibrators() -> dict[str, Any]:
    """Return an instance of every calibrator, by the name of its class."""
    found = {}
    for name in bc.__all__:
        kind: Any = getattr(bc, name)
        if inspect.isclass(kind) and issubclass(kind, bc.Calibrator) and kind is not bc.Calibrator:
            needs = [
                p
                for p in inspect.signature(kind).parameters.values()
                if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
            found[name] = kind(bc.Isotonic()) if needs else kind()
    found["Auto"] = bc.Auto()
    found["Average"] = bc.Average([bc.Beta(), bc.Isotonic()])
    found["Composition"] = bc.compose(bc.Temperature(), bc.KNN())
    return {name: found[name] for name in sorted(found)}


def draw(calibrator: Any, path: Path) -> None:
    """Draw the curve of a calibrator that is fitted to each of the models."""
    import matplotlib

    if "random_state" in calibrator.get_params():
        calibrator.set_params(random_state=0)
    figure = Figure(figsize=(7.2, 2.5), layout="constrained")
    with matplotlib.rc_context(LOOK), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for ax, name in zip(figure.subplots(1, 3, sharey=True), MODELS, strict=True):
            p, y = sample(name)
            curve = calibrator.fit(p, y).predict_proba(GRID)[:, 1]
            ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.6)
            ax.plot(GRID, MODELS[name](GRID), color=GREY, linestyle="--", linewidth=1.5)
            ax.plot(GRID, curve, color=ORANGE, linewidth=1.8)
            ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
            ax.set_title(name, color=GREY, fontsize=9)
            ax.tick_params(colors=GREY, length=2)
            ax.set_facecolor("none")
            for side, spine in ax.spines.items():
                spine.set(color=GREY, visible=side in ("left", "bottom"))
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
