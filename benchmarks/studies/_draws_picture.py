"""Draw the picture of log losses by the number of draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bayescal.plots import by_size
from benchmarks.studies.store import write_figure

_TITLES = {"montecarlo": "Monte Carlo", "sobol": "Sobol"}


def draw_figure(path: Path, result: dict[str, Any], methods: tuple[str, ...]) -> None:
    """Draw the losses for each prior, and their differences from quadrature."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 7), layout="constrained")
    axes = figure.subplots(2, len(result["priors"]), squeeze=False)
    for column, (name, facts) in zip(axes.T, result["priors"].items(), strict=True):
        losses, differences = {}, {}
        sizes = facts["montecarlo"][methods[0]]["sizes"]
        for integrator, title in _TITLES.items():
            for method in methods:
                curve = facts[integrator][method]
                table = np.full((len(sizes), result["repeats"]), np.nan)
                table[[sizes.index(size) for size in curve["sizes"]]] = curve["loss"]
                difference = table - facts["quadrature"][method]
                losses[f"{method}, {title}"] = table.mean(axis=1)
                differences[f"{method}, {title}"] = np.sqrt(np.mean(difference**2, axis=1))
        top, bottom = column
        by_size(sizes, losses, floor=facts["floor"], ax=top)
        top.axhline(facts["quadrature"]["preds"], color="0.4", linewidth=0.9)
        top.set(title=name, xlabel="Draws from the prior", ylabel="Log loss")
        low = min(facts["floor"], *(np.nanmin(values) for values in losses.values()))
        # The large losses of very few draws are cut off.
        high = facts["quadrature"]["preds"] + 0.1
        margin = 0.05 * (high - low)
        top.set_ylim(low - margin, high)
        by_size(sizes, differences, ax=bottom)
        bottom.axhline(result["tolerance"], color="0.4", linewidth=0.9, linestyle=":")
        bottom.set(
            yscale="log", xlabel="Draws from the prior", ylabel="Difference from quadrature (rms)"
        )
    write_figure(path, figure)
