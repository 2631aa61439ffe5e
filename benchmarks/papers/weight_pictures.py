"""Draw figures 1 to 3 of "Network calibration by weight scaling" for available networks.

    python -m benchmarks.papers.weight_pictures

The pictures are drawn from benchmarks/results/study_weight_scaling.json and written to
docs/papers/weight-scaling-figure-*.svg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayescal._core.numerics import softmax
from bayescal.plots.style import COLORS
from benchmarks.papers._common import ROOT, read
from benchmarks.studies.store import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = ROOT / "docs" / "papers"
#: Networks that are drawn, with 10 and with 100 classes.
DRAWN = {
    "kull_densenet40_c10": "DenseNet-40, CIFAR-10",
    "cy_cifar100_vgg16_bn": "VGG-16, CIFAR-100",
}
#: Start of the paths in figure 1.
START = np.array([0.6, 0.3, 0.1])


def paths(start: np.ndarray, steps: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Scale ``start`` to equal probabilities: paths (steps, k) of weights and of temperatures."""
    weight = np.linspace(1, 0, steps)[:, None]
    return weight * start + (1 - weight) / len(start), softmax(weight * np.log(start))


def figure_1() -> Figure:
    """Draw the paths of probabilities by weights and by temperatures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 3), layout="constrained")
    ax = figure.subplots()
    for path, name, color in zip(paths(START), ("weights", "temperatures"), COLORS, strict=False):
        ax.plot(path[:, 0], path[:, 1], color=color, label=name)
    ax.set(xlabel="probability of class 1", ylabel="probability of class 2", ylim=(0.295, 0.35))
    _finish(ax)
    return figure


def figure_2(networks: dict[str, Any]) -> Figure:
    """Draw weights, reciprocal temperatures and confidence gaps by bin."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots(2, len(DRAWN), sharex=True)
    for (upper, lower), (name, title) in zip(axes.T, DRAWN.items(), strict=True):
        bins = {key: np.array(values) for key, values in networks[name]["bins"].items()}
        position = np.arange(len(bins["weight"]))
        upper.bar(position - 0.2, bins["weight"], 0.4, color=COLORS[0], label="weight")
        inverse = bins["inverse_temperature"]
        upper.bar(position + 0.2, inverse, 0.4, color=COLORS[1], label="1 / temperature")
        upper.set(title=title, ylim=(0, 1.25), yticks=np.arange(0, 1.1, 0.25))
        lower.bar(position, bins["confidence"] - bins["accuracy"], color=COLORS[2])
        lower.set(xlabel="bin", ylabel="confidence less accuracy", xticks=position[::2])
        _finish(upper)
        _finish(lower, legend=False)
    return figure


def figure_3(networks: dict[str, Any]) -> Figure:
    """Draw reliability before calibration and after both methods."""
    from matplotlib.figure import Figure

    name = list(DRAWN)[1]
    figure = Figure(figsize=(8, 3), layout="constrained")
    curves = networks[name]["reliability"]
    for ax, (title, curve) in zip(figure.subplots(1, 3, sharey=True), curves.items(), strict=True):
        width = 1 / len(networks[name]["bins"]["weight"])
        left = (np.ceil(np.array(curve["predicted"]) / width) - 1) * width
        ax.bar(left, curve["observed"], width, align="edge", color=COLORS[0], edgecolor="white")
        ax.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1)
        ax.set(title=title, xlabel="confidence", xlim=(0, 1), ylim=(0, 1))
        _finish(ax, legend=False)
    figure.axes[0].set_ylabel("accuracy")
    return figure


def _finish(ax: Axes, legend: bool = True) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        ax.legend(frameon=False, fontsize="small", loc="upper right", ncols=2)


def main() -> None:
    """Draw and write all pictures."""
    networks = read("weight_scaling")["networks"]
    figures = figure_1(), figure_2(networks), figure_3(networks)
    for number, figure in enumerate(figures, 1):
        write_figure(FOLDER / f"weight-scaling-figure-{number}.svg", figure)


if __name__ == "__main__":
    main()
