"""Draw pictures of logits in two dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.studies.store import write_figure

Projection = Literal["tsne", "pca"]
_MAX_POINTS = 2000
_TITLES = {
    "none": "Without smoothing",
    "constant": "Constant smoothing",
    "instance": "Instance-based smoothing",
}


def project(logits: np.ndarray, kind: Projection, seed: int = 0) -> np.ndarray:
    """Project logits (n, k) to two coordinates (n, 2)."""
    if kind == "pca":
        from sklearn.decomposition import PCA

        return PCA(2, random_state=seed).fit_transform(logits)
    from sklearn.manifold import TSNE

    # Starting from the principal components, scaled as t-SNE expects, preserves large distances.
    perplexity = min(30, (len(logits) - 1) / 3)
    return TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(logits)


def draw_logits(
    path: Path,
    logits: Mapping[str, np.ndarray],
    labels: np.ndarray,
    names: Sequence[str],
    kind: Projection,
    classes: Sequence[int] | None = None,
) -> None:
    """Draw the logits of each method side by side, for all classes or for some."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    drawn = range(len(names)) if classes is None else classes
    rows = np.flatnonzero(np.isin(labels, list(drawn)))
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:_MAX_POINTS])
    figure = Figure(figsize=(4 * len(logits), 4.4), layout="constrained")
    many = len(names) > 10
    colors = colormaps["turbo" if many else "tab10"]
    axes = figure.subplots(1, len(logits), squeeze=False)[0]
    for ax, (method, values) in zip(axes, logits.items(), strict=True):
        points = project(values[rows], kind)
        for label in drawn:
            of_class = labels[rows] == label
            color = colors(label / (len(names) - 1) if many else label)
            ax.scatter(*points[of_class].T, s=7, color=color, linewidths=0, label=names[label])
        ax.set(title=_TITLES[method], xticks=[], yticks=[])
    if len(drawn) <= 20:
        handles, texts = axes[0].get_legend_handles_labels()
        legend = figure.legend(
            handles, texts, loc="outside lower center", ncols=10, frameon=False, markerscale=2
        )
        legend.set_in_layout(True)
    write_figure(path, figure)
