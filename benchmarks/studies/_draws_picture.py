"""The picture of log losses by the number of draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bayescal.plots import by_size
from benchmarks.studies.store import write_figure

_TITLES = {"montecarlo": "Monte Carlo", "sobol": "Sobol"}


def draw_figure(path: Path, found: dict[str, Any], methods: tuple[str, ...]) -> None:
    """Draw for each prior the losses, and their differences from quadrature."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 7), layout="constrained")
    axes = figure.subplots(2, len(found["priors"]), squeeze=False)
    for column, (name, facts) in zip(axes.T, found["priors"].items(), strict=True):
        losses, gaps = {}, {}
        every = facts["montecarlo"][methods[0]]["sizes"]
        for integrator, title in _TITLES.items():
            for method in methods:
                own = facts[integrator][method]
                table = np.full((len(every), found["repeats"]), np.nan)
                table[[every.index(size) for size in own["sizes"]]] = own["loss"]
                gap = table - facts["quadrature"][method]
                losses[f"{method}, {title}"] = table.mean(axis=1)
                gaps[f"{method}, {title}"] = np.sqrt(np.mean(gap**2, axis=1))
        top, bottom = column
        by_size(every, losses, floor=facts["floor"], ax=top)
        top.axhline(facts["quadrature"]["preds"], color="0.4", linewidth=0.9)
        top.set(title=name, xlabel="Draws from the prior", ylabel="Log loss")
        low = min(facts["floor"], *(np.nanmin(each) for each in losses.values()))
        # Of very few draws only the beginning of the fall is of interest.
        high = facts["quadrature"]["preds"] + 0.1
        margin = 0.05 * (high - low)
        top.set_ylim(low - margin, high)
        by_size(every, gaps, ax=bottom)
        bottom.axhline(found["tolerance"], color="0.4", linewidth=0.9, linestyle=":")
        bottom.set(
            yscale="log", xlabel="Draws from the prior", ylabel="Difference from quadrature (rms)"
        )
    write_figure(path, figure)
