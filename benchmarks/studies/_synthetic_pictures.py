"""Critical-difference diagrams of the synthetic study, as in figures 22 to 24 of the thesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bayescal.plots import critical_difference
from benchmarks.studies._rankings import LEVEL
from benchmarks.studies._synthetic_cells import METRICS, Configuration
from benchmarks.studies._synthetic_statistics import RANKED, Values
from benchmarks.studies.store import write_figure

#: Numbers of the figures in the thesis, by question.
FIGURES = {1: 22, 2: 23, 3: 24}
_TITLES = {"log_loss": "log loss", "ece": "ECE"}
_SIZE = 5.6, 2.1


def draw_ranks(
    out: Path, question: int, selected: Sequence[Configuration], values: Mapping[str, Values]
) -> Path | None:
    """Draw a row of diagrams for each configuration, one for all, and one with "predictive".

    Return the path of the picture, or None if fewer than two methods can be ranked.
    """
    from matplotlib.figure import Figure

    of_question = [
        configuration for configuration in selected if configuration.question == question
    ]
    scopes = [
        (f"({configuration.letter}) {configuration.describe}", values[configuration.name], "ten")
        for configuration in of_question
    ]
    all_values = {
        m: np.concatenate([values[e.name][m] for e in of_question])
        for m in values[of_question[0].name]
    }
    scopes += [("all", all_values, "ten"), ("all, with predictive", all_values, "with_predictive")]
    rows = [
        (title, {m: by_method[m] for m in RANKED[name] if m in by_method})
        for title, by_method, name in scopes
    ]
    if len(rows[0][1]) < 2:
        return None
    figure = Figure(figsize=(2 * _SIZE[0], len(rows) * _SIZE[1]), layout="constrained")
    axes = figure.subplots(len(rows), len(METRICS), squeeze=False)
    for row_axes, (title, by_method) in zip(axes, rows, strict=True):
        for column, (ax, metric) in enumerate(zip(row_axes, METRICS, strict=True)):
            table = {method: scores[:, column] for method, scores in by_method.items()}
            critical_difference(table, level=LEVEL, ax=ax)
            ax.set_title(f"{title}: {_TITLES[metric]}", fontsize=9)
    path = out / f"figure_{FIGURES[question]}.svg"
    write_figure(path, figure)
    return path
