"""The figures of the page, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayescal import plots
from bayescal.evaluation._measured import Measured
from bayescal.evaluation._svg import to_svg
from bayescal.metrics import reliability_curve
from bayescal.plots.style import label_axes, style_of, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Sizes in inches.
_DIAGRAM, _PANEL, _WIDE = (3.4, 3.9), (2.0, 2.0), (4.6, 3.3)
_STRIP_BINS = 20
#: Cases that are drawn at most where weights are counts.
_MOST_CASES = 2_000_000
#: Classes whose diagrams are drawn at most.
MOST_CLASSES = 12


class Picture(NamedTuple):
    """A figure as SVG, a heading and a caption, both plain text."""

    svg: str
    heading: str
    caption: str


class Cases(NamedTuple):
    """What is drawn: probabilities by model, and labels; weights are turned into repetitions."""

    models: dict[str, np.ndarray]
    labels: np.ndarray
    note: str


def expand(found: Measured) -> Cases:
    """Return the cases to draw: each as often as its weight says.

    Weights that are no counts become as many rows as the weights are worth, chosen evenly over
    rows in the order of label and prediction, so that bands have about the right width.
    """
    weights = found.weights
    if weights is None:
        return Cases(found.models, found.labels, "")
    total = weights.sum()
    if (weights == np.floor(weights)).all() and total <= _MOST_CASES:
        rows = np.repeat(np.arange(len(weights)), weights.astype(int))
        note = f"Weights are counts: {len(rows):,} cases are drawn."
    else:
        size = int(np.clip(np.rint(total**2 / (weights**2).sum()), 1, _MOST_CASES))
        first = next(iter(found.models.values()))
        order = np.lexsort((first if first.ndim == 1 else first.max(axis=1), found.labels))
        places = (np.arange(size) + 0.5) / size * total
        rows = order[np.minimum(np.searchsorted(np.cumsum(weights[order]), places), len(order) - 1)]
        note = (
            f"The weights are worth {size:,} cases of equal weight (the effective sample size); "
            "that many are drawn, in proportion to the weights. Tables use the weights themselves."
        )
    models = {name: own[rows] for name, own in found.models.items()}
    return Cases(models, found.labels[rows], note)


def diagrams(found: Measured, cases: Cases, name: str, place: int) -> list[Picture]:
    """Return reliability diagrams and the distribution of the confidence of one model."""
    probs, facts = cases.models[name], found.findings[name]
    binary = probs.ndim == 1
    curve = reliability_curve(probs, cases.labels, bins=found.bins)
    trend = (
        f"in the lowest of {len(curve.weight)} bins that hold cases {curve.predicted[0]:.2f} was "
        f"predicted and {curve.observed[0]:.2f} observed, in the highest {curve.predicted[-1]:.2f} "
        f"and {curve.observed[-1]:.2f}"
    )
    level = found.report.level
    pictures = []
    headings = {"binned": f"In {found.bins} bins", "corp": "By isotonic regression"}
    for method, heading in headings.items():
        figure, ax = _new(_DIAGRAM)
        plots.reliability(
            probs, cases.labels, bins=found.bins, method=method, level=level, seed=found.seed, ax=ax
        )
        described = f"Reliability diagram of {name}, {heading.lower()}; {trend}."
        svg = to_svg(figure, described, f"d{place}{method[0]}", place)
        caption = f"Pale: where {level:.0%} of estimates fall if {name} is calibrated."
        pictures.append(Picture(svg, heading, caption))
    figure, ax = _new(_DIAGRAM)
    confidence = np.maximum(probs, 1 - probs) if binary else probs.max(axis=1)
    _histogram(ax, confidence, facts.confidence, facts.accuracy)
    described = (
        f"Histogram of the confidence of {name}: mean {facts.confidence:.3f}, accuracy "
        f"{facts.accuracy:.3f}, {np.mean(confidence > 0.95):.0%} of cases above 0.95."
    )
    caption = (
        f"Solid line: mean confidence {facts.confidence:.3f}; dashed: accuracy "
        f"{facts.accuracy:.3f}."
    )
    pictures.append(Picture(to_svg(figure, described, f"h{place}", place), "Confidence", caption))
    return pictures


def _histogram(ax: Axes, values: np.ndarray, mean: float, accuracy: float) -> None:
    """Draw the shares of cases in bins of the confidence, its mean, and the accuracy."""
    edges = np.arange(_STRIP_BINS + 1) / _STRIP_BINS
    place = np.clip(np.ceil(values * _STRIP_BINS) - 1, 0, _STRIP_BINS - 1).astype(int)
    share = np.bincount(place, minlength=_STRIP_BINS) / len(values)
    color = style_of(0).color
    ax.stairs(share, edges, fill=True, color=color, alpha=0.25)
    ax.stairs(share, edges, color=color, linewidth=1.1)
    for at, line in ((mean, "-"), (accuracy, (0, (4, 2)))):
        ax.axvline(at, color="black", linewidth=1.3, linestyle=line)
    ax.set(xlim=(edges[place.min()], 1.01), ylim=(0, 1.05 * share.max()))
    label_axes(ax, "Confidence", "Share of cases")
    tidy(ax)


def classwise(found: Measured, cases: Cases) -> list[Picture]:
    """Return small reliability diagrams of single classes, those with the largest error first."""
    k = len(found.classes)
    new = [_new(_PANEL) for _ in range(min(k, MOST_CLASSES))]
    single = len(cases.models) == 1
    axes = plots.classwise(
        cases.models,
        cases.labels,
        classes=found.classes,
        max_classes=MOST_CLASSES,
        bins=found.bins,
        level=found.report.level if single else None,
        axes=[ax for _, ax in new],
    )
    pictures = []
    for place, ((figure, _), ax) in enumerate(zip(new, axes, strict=True)):
        heading, _, error = ax.get_title().rpartition("\n")
        ax.set_title("")
        if (legend := ax.get_legend()) is not None:
            legend.remove()
        ax.set(xlabel="Predicted", ylabel="Observed")
        described = f"Reliability diagram of class {heading}: {error}."
        pictures.append(Picture(to_svg(figure, described, f"c{place}"), heading, error))
    return pictures


def costs(cases: Cases) -> Picture:
    """Return the expected costs of decisions, of two classes."""
    figure, ax = _new(_WIDE)
    plots.decision_cost(cases.models, cases.labels, ax=ax)
    ax.get_legend().remove()  # type: ignore[union-attr]
    top = max(float(np.max(line.get_ydata())) for line in ax.lines)
    ax.set(xlim=(0, 1), ylim=(0, 1.05 * max(top, 1e-3)))
    tidy(ax)
    names = ", ".join(cases.models)
    described = (
        f"Expected cost of decisions by {names}, over the ratio of the costs of both errors."
    )
    return Picture(to_svg(figure, described, "cost"), "", "")


def dashes(series: int) -> str:
    """Return the dashes, as SVG writes them, of a model's line in figures that show several."""
    line = style_of(series).linestyle
    return "none" if isinstance(line, str) else " ".join(f"{2 * part:g}" for part in line[1])


def _new(size: tuple[float, float]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()
