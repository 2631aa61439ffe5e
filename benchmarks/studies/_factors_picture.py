"""Draw the picture of the best smoothing factors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayescal.plots import by_size
from benchmarks.studies.store import write_figure


def draw_figure(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Draw the best and the instance-based factors, and the excess losses of Platt's and these."""
    from matplotlib.figure import Figure

    sizes = sorted({row["n_train"] for row in rows})
    separations = sorted({row["separation"] for row in rows})
    cell = {(row["n_train"], row["separation"]): row for row in rows}

    def columns(value: Any) -> dict[str, list[float]]:
        return {f"m = {m:g}": [value(cell[n, m]) for n in sizes] for m in separations}

    figure = Figure(figsize=(11.5, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    parts = (
        ("Best constant factor", lambda row: row["best"]),
        ("Instance-based: mean factor", lambda row: row["instance"]),
        ("Platt's factor: loss above the best", lambda row: row["loss_platt"] - row["loss_best"]),
        ("Instance-based: loss above the best", lambda r: r["loss_instance"] - r["loss_best"]),
    )
    for ax, (title, value) in zip(axes.ravel(), parts, strict=True):
        table = columns(value)
        if "loss" in title:
            by_size(sizes, table, ax=ax)
            ax.axhline(0, color="0.4", linewidth=0.9)
        else:
            table["Platt"] = [cell[n, separations[0]]["platt"] for n in sizes]
            by_size(sizes, table, ax=ax)
            ax.set_yscale("log")
        ax.set(title=title, xlabel="Training cases", ylabel="Nats" if "loss" in title else "Factor")
        ax.set_xticks(np.array(sizes), [str(n) for n in sizes])
        ax.minorticks_off()
    write_figure(path, figure)
