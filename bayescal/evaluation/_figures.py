"""The figures of the HTML page, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayescal import plots
from bayescal._core.binning import equal_width_cell
from bayescal.data.predictions import as_given
from bayescal.evaluation._events import STRIPS, Cases, ModelEvents
from bayescal.evaluation._measured import Measured
from bayescal.evaluation._svg import to_svg
from bayescal.metrics import reliability_curve
from bayescal.plots.style import label_axes, next_style, style_of, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Sizes in inches.
_DIAGRAM, _PANEL, _WIDE = (3.4, 3.9), (2.0, 2.0), (3.4, 2.8)
#: Largest number of classes whose diagrams are drawn.
MAX_CLASSES = 12


class Picture(NamedTuple):
    """A figure as SVG, a heading and a caption, both plain text."""

    svg: str
    heading: str
    caption: str


def overview(evaluation: Measured) -> Picture:
    """Draw the reliability diagram of all models together."""
    figure, ax = _new(_DIAGRAM)
    level = _level_of_bands(evaluation)
    for events in evaluation.events.values():
        probs, happened, weights = _as_given(events)
        how = {"bins": evaluation.bins, "level": level}
        plots.reliability(probs, happened, weights=weights, ax=ax, **how)
        _name_axes(ax, events, "Mean confidence")
    names = ", ".join(f"{name}, {finding.verdict}" for name, finding in evaluation.findings.items())
    described = f"Reliability diagram in {evaluation.bins} bins: {names}."
    caption = f"In {evaluation.bins} bins; calibrated predictions lie on the diagonal."
    if level is not None:
        caption += f" Pale: where {level:.0%} of them fall by chance."
    return Picture(to_svg(figure, described, "all"), "", caption)


def _level_of_bands(evaluation: Measured, models: int | None = None) -> float | None:
    """Return the level of bands; none are drawn for several models, or for dependent rows."""
    single = (models or len(evaluation.events)) == 1 and evaluation.report.clusters is None
    return evaluation.report.level if single else None


def _as_given(events: ModelEvents) -> Cases:
    """Return the drawn events, with probabilities of the type that the user gave."""
    predicted = as_given(events.drawn.predicted, events.precision)
    return events.drawn._replace(predicted=predicted)


def _name_axes(ax: Axes, events: ModelEvents, across: str) -> None:
    """Label the axes if the event is that the most probable class happened."""
    if events.classes is not None:
        ax.set_xlabel(across)
        ax.set_ylabel("Accuracy", y=ax.yaxis.label.get_position()[1])


def diagrams(evaluation: Measured, name: str, index: int) -> list[Picture]:
    """Draw reliability diagrams and the distribution of the confidence of one model."""
    events, facts = evaluation.events[name], evaluation.findings[name]
    probs, happened, weights = _as_given(events)
    binary = events.classes is None
    curve = reliability_curve(probs, happened, bins=evaluation.bins, weights=weights)
    trend = (
        f"in the lowest of {len(curve.weight)} bins that hold cases {curve.predicted[0]:.2f} was "
        f"predicted and {curve.observed[0]:.2f} observed, in the highest {curve.predicted[-1]:.2f} "
        f"and {curve.observed[-1]:.2f}"
    )
    level = _level_of_bands(evaluation, models=1)
    pictures = []
    headings = {"binned": f"In {evaluation.bins} bins", "corp": "By isotonic regression"}
    how = {"bins": evaluation.bins, "level": level, "seed": evaluation.seed}
    for method, heading in headings.items():
        figure, ax = _new(_DIAGRAM)
        plots.reliability(probs, happened, weights=weights, method=method, ax=ax, **how)
        _name_axes(ax, events, "Mean confidence" if method == "binned" else "Confidence")
        described = f"Reliability diagram of {name}, {heading.lower()}; {trend}."
        svg = to_svg(figure, described, f"d{index}{method[0]}", index)
        caption = ""
        if level is not None:
            caption = f"Pale: where {level:.0%} of estimates fall if {name} is calibrated."
        pictures.append(Picture(svg, heading, caption))
    figure, ax = _new(_DIAGRAM)
    probs, _, weights = events.cases
    confidence = np.maximum(probs, 1 - probs) if binary else probs
    strip = equal_width_cell(confidence, STRIPS, np, events.precision)
    _histogram(ax, strip, weights, facts.confidence, facts.accuracy)
    above = np.average(confidence > 0.95, weights=weights)
    described = (
        f"Histogram of the confidence of {name}: mean {facts.confidence:.3f}, accuracy "
        f"{facts.accuracy:.3f}, {above:.0%} of cases above 0.95."
    )
    caption = (
        f"Solid line: mean confidence {facts.confidence:.3f}; dashed: accuracy "
        f"{facts.accuracy:.3f}."
    )
    pictures.append(Picture(to_svg(figure, described, f"h{index}", index), "Confidence", caption))
    return pictures


def _histogram(
    ax: Axes, bars: np.ndarray, weights: np.ndarray | None, mean: float, accuracy: float
) -> None:
    """Draw the distribution of the confidence, given by bars (n,), its mean, and the accuracy."""
    edges = np.arange(STRIPS + 1) / STRIPS
    proportions = np.bincount(bars, weights, STRIPS)
    proportions = proportions / proportions.sum()
    color = style_of(0).color
    ax.stairs(proportions, edges, fill=True, color=color, alpha=0.25)
    ax.stairs(proportions, edges, color=color, linewidth=1.1)
    for at, line in ((mean, "-"), (accuracy, (0, (4, 2)))):
        ax.axvline(at, color="black", linewidth=1.3, linestyle=line)
    ax.set(xlim=(edges[bars.min()], 1.01), ylim=(0, 1.05 * proportions.max()))
    label_axes(ax, "Confidence", "Share of cases")
    tidy(ax)


def classwise(evaluation: Measured) -> list[Picture]:
    """Draw small reliability diagrams of single classes, those with the largest error first."""
    k, models = len(evaluation.classes), evaluation.events.values()
    errors = np.stack([events.class_errors() for events in models], axis=1)
    shown = np.arange(k)
    if k > MAX_CLASSES:
        shown = np.argsort(-errors.mean(axis=1), kind="stable")[:MAX_CLASSES]
    pictures = []
    for index, label in enumerate(shown):
        cases = [events.of_class(int(label)) for events in models]
        figure = _panel(evaluation, cases, ("Predicted", "Observed"))
        heading = evaluation.classes[label]
        error = "ECE " + " / ".join(f"{value:.3f}" for value in errors[label])
        described = f"Reliability diagram of class {heading}: {error}."
        pictures.append(Picture(to_svg(figure, described, f"c{index}"), heading, error))
    return pictures


def subgroups(evaluation: Measured) -> list[Picture]:
    """Draw small reliability diagrams of subgroups, with all models in each."""
    binary = len(evaluation.classes) == 2
    axes = ("Predicted", "Observed") if binary else ("Confidence", "Accuracy")
    pictures = []
    for index, (name, part) in enumerate(evaluation.by.items()):
        figure = _panel(evaluation, [*map(_as_given, part.events.values())], axes)
        errors = (part.report.intervals[model]["ECE"].estimate for model in part.events)
        caption = f"{part.report.cases:,} cases; ECE above chance "
        caption += " / ".join(f"{error:.3f}" for error in errors)
        described = f"Reliability diagram of subgroup {name}: {caption}."
        pictures.append(Picture(to_svg(figure, described, f"g{index}"), name, caption))
    return pictures


def _panel(evaluation: Measured, cases: list[Cases], names: tuple[str, str]) -> Figure:
    """Draw a small reliability diagram of several models, with names of both axes."""
    figure, ax = _new(_PANEL)
    how = {"bins": evaluation.bins, "level": _level_of_bands(evaluation)}
    how |= {"histogram": False, "ax": ax}
    for probs, happened, weights in cases:
        plots.reliability(probs, happened, weights=weights, **how)
    for line in ax.lines:
        line.set_markersize(min(line.get_markersize(), 4))
    ax.set(xlabel=names[0], ylabel=names[1])
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize="small")
    return figure


def errors_by_class(evaluation: Measured) -> Picture:
    """Draw the distribution of the errors of very many classes."""
    figure, ax = _new(_WIDE)
    quantiles = []
    for name, events in evaluation.events.items():
        errors = np.sort(events.class_errors())
        next_style(ax).draw(ax, errors, np.arange(1, len(errors) + 1) / len(errors), linewidth=1.5)
        half, high = np.quantile(errors, [0.5, 0.9])
        quantiles.append(f"{name}: median {half:.2g}, 90% up to {high:.2g}, high {errors[-1]:.2g}")
    ax.set(xscale="log", ylim=(0, 1.02))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_minor_formatter(lambda value, _: "")
    label_axes(ax, "ECE of a class", "Share of classes")
    tidy(ax)
    text = "; ".join(quantiles)
    described = f"Distribution of the ECE over {len(evaluation.classes)} classes: {text}."
    return Picture(to_svg(figure, described, "errors"), "", f"{text}.")


def costs(evaluation: Measured) -> Picture:
    """Draw the expected costs of decisions, for two classes."""
    figure, ax = _new(_WIDE)
    for events in evaluation.events.values():
        probs, happened, weights = events.cases
        plots.decision_cost(probs, happened, weights=weights, ax=ax)
    ax.get_legend().remove()  # type: ignore[union-attr]
    top = max(float(np.max(line.get_ydata())) for line in ax.lines)
    ax.set(xlim=(0, 1), ylim=(0, 1.05 * max(top, 1e-3)))
    tidy(ax)
    names = ", ".join(evaluation.events)
    described = (
        f"Expected cost of decisions by {names}, over the ratio of the costs of both errors."
    )
    return Picture(to_svg(figure, described, "cost"), "", "")


def dashes(series: int) -> str:
    """Return the dashes, in SVG's notation, of a model's line in figures with several models."""
    line = style_of(series).linestyle
    return "none" if isinstance(line, str) else " ".join(f"{2 * part:g}" for part in line[1])


def _new(size: tuple[float, float]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()
