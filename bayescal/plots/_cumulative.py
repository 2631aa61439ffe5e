"""Cumulative differences of outcomes and predictions, over the proportion of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.display.tables import p_value
from bayescal._core.keywords import other_words
from bayescal.data.checks import check_choice, check_level
from bayescal.data.label_names import Classes
from bayescal.data.predictions import Predictions
from bayescal.metrics import ecce, ecce_test
from bayescal.metrics.calibration.ece import SINGLE, find_events, resolve_kind
from bayescal.metrics.uncertainty.cumulative_test import CumulativeSteps
from bayescal.plots._inputs import Inputs, Models, read_models
from bayescal.plots.style import draw_legend, gray, label_axes, new_axes, next_style, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ZERO = "bayescal-zero"
#: Number of points above which a line is thinned, and of sets of labels drawn for a band.
_MAX_POINTS, _RESAMPLES = 4000, 1000
#: Largest fraction of the height of a new figure's axes for the legend.
_MAX_LEGEND = 0.6
#: What the legend can show beside names.
_PARTS = "ecce", "p"


@other_words
def cumulative(
    probs: Models,
    *data: object,
    y: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    weights: ArrayLike | None = None,
    events: Literal["binary", "confidence"] | None = None,
    level: float | None = 0.9,
    seed: int = 0,
    legend: str | Sequence[str] = (),
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    r"""Draw the cumulative differences of outcomes and predictions, a diagram without bins.

    With the rows in ascending order of their predictions, the line has the height

    .. math:: C_j = \frac{\sum_{i \le j} w_i (y_i - p_i)}{\sum_i w_i}

    at the proportion :math:`\sum_{i \le j} w_i / \sum_i w_i` of rows. Its slope over any rows is
    their mean outcome minus their mean prediction: where the line rises, predictions are too low;
    where it falls, they are too high; where it is level, they are calibrated. Use it to see errors
    that bins blur, and which of them are due to chance.

    The line of calibrated predictions stays within the pale band everywhere with probability
    ``level``. It leaves the band where :func:`bayescal.metrics.ecce_test` rejects at 1 - ``level``.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), fitted model, or mapping from names to them
        P(y = 1) for two classes, or class probabilities in rows. A model is a calibrator or
        classifier with ``predict_proba``; for two classes its probability of the second class is
        drawn. A mapping draws several models of the same rows.
    *data
        The labels y, array of shape (n,), preceded for models by the data that they predict from:
        ``cumulative(probs, y)``, ``cumulative(model, X, y)``.
    y : array of shape (n,), optional
        The labels, passed by keyword.
    classes, inputs : optional
        The labels in column order, by default those of the model, and what ``probs`` contain, as in
        :func:`bayescal.metrics.log_loss`.
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, equal to repeating rows.
    events : {"binary", "confidence"}, optional
        What is predicted: P(y = 1), or the largest probability. By default "binary" for two
        classes and "confidence" for more.
    level : float or None, default 0.9
        Probability of the band, in (0, 1); None omits it.
    seed : int, default 0
        Seed of the labels drawn for the band, and of simulated p-values.
    legend : {"ecce", "p"} or sequence of them, default ()
        What the legend shows beside the names: :func:`bayescal.metrics.ecce`, and the p-value of
        :func:`bayescal.metrics.ecce_test`.
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure. Drawing on the same axes again continues with the
        next color and line.
    label : str, optional
        Name of the model in the legend; for a mapping its keys are the names.

    Returns
    -------
    matplotlib Axes
        ``ax``, or the axes of the new figure.

    Raises
    ------
    TypeError, ValueError
        If :func:`bayescal.metrics.ecce_test` would raise; for unknown parts of the legend; if
        ``label`` comes with a mapping, or the mapping is empty or mixes events.

    See Also
    --------
    reliability : The observed frequency against the prediction.
    bayescal.metrics.ecce : The greatest height of the line.

    Notes
    -----
    Rows with equal predictions are one straight piece of the line. If there are more than 4,000
    pieces, a selection is drawn, with the highest and the lowest point.

    References
    ----------
    I. Arrieta-Ibarra, P. Gujral, J. Tannen, M. Tygert and C. Xu (2022), Metrics of calibration for
    probabilistic predictions.

    Examples
    --------
    >>> ax = cumulative([0.2, 0.2, 0.6, 0.6], [1, 0, 0, 0], level=None, label="raw")
    >>> ax.lines[-1].get_xydata().round(2).tolist()
    [[0.0, 0.0], [0.5, 0.15], [1.0, -0.15]]
    """
    parts = (legend,) if isinstance(legend, str) else tuple(legend)
    for part in parts:
        check_choice(part, "legend", _PARTS)
    if events is not None:
        check_choice(events, "events", SINGLE)
    if level is not None:
        check_level(level)
    models = read_models(probs, data, "cumulative", y, weights, classes, inputs, label)
    rows = [model.data for model in models]
    kinds = {resolve_kind(events, None, row.columns, SINGLE)[0] for row in rows}
    if len(kinds) > 1:
        raise ValueError("probs must be all of shape (n,) or all of shape (n, k), got both")
    (of,) = kinds
    rows = [_of_events(row, of) for row in rows]
    # Compute all lines before drawing, so that bad input leaves the axes unchanged.
    lines = [_line(row, level, seed) for row in rows]
    names = [model.name for model in models]
    if parts:
        for index, row in enumerate(rows):
            text = ", ".join(_part(part, row, seed) for part in parts)
            names[index] = text if names[index] is None else f"{names[index]}, {text}"
    new_figure = ax is None
    if ax is None:
        ax = new_axes(4.2, 3.2)
        ax.set_xlim(0, 1)
        tidy(ax)
    what = "prediction" if of == "binary" else "confidence"
    label_axes(ax, f"Share of rows, by {what}", f"Cumulative outcome less {what}")
    if not any(line.get_gid() == _ZERO for line in ax.lines):
        ax.axhline(0, color=gray(ax, 0.55), linewidth=0.9, zorder=1, gid=_ZERO)
    for name, (x, heights, half) in zip(names, lines, strict=True):
        style = next_style(ax)
        if level is not None:
            ends = np.repeat(half, 2)
            style.fill(ax, np.array([0.0, 1.0]), -ends, ends, alpha=0.2)
        style.draw(ax, x, heights, linewidth=1.5, label=name)
    if any(name is not None for name in names):
        _draw_legend(ax, new_figure)
    return ax


def _draw_legend(ax: Axes, new_figure: bool) -> None:
    """Draw the legend, on a new figure above all lines."""
    if not new_figure:
        draw_legend(ax, fontsize="small")
        return
    legend = draw_legend(
        ax, height=_MAX_LEGEND, fontsize="small", loc="upper left", borderaxespad=0.1
    )
    room = legend.get_window_extent().height / ax.get_window_extent().height
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, bottom + (top - bottom) / (1 - min(room, _MAX_LEGEND)))


def _of_events(data: Predictions, of: str) -> Predictions:
    """Return the probability of the event of each row, and 1 where it happened."""
    events = find_events(data, of, 1, np)
    happened = events.happened.astype(int)
    return data._replace(probs=events.predicted, y=happened, classes=None, first=None)


def _part(part: str, data: Predictions, seed: int) -> str:
    """Return one part of the legend entry of a model."""
    if part == "ecce":
        return f"ECCE {ecce(data.probs, data.y, weights=data.weights):.3f}"
    test = ecce_test(data.probs, data.y, weights=data.weights, seed=seed)
    return f"p {p_value(test.p_value)}"


def _line(
    data: Predictions, level: float | None, seed: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Compute the points (m,) of a line, and half the height of its band."""
    steps = CumulativeSteps(data.probs, data.y.astype(float), data.weights, data.whole)
    total = steps.mass.sum()
    x = np.append(0.0, np.cumsum(steps.mass) / total)
    y = np.append(0.0, np.cumsum(steps.differences) / total)
    half = 0.0
    if level is not None:
        half = steps.quantile("max", level, _RESAMPLES, seed) * steps.spread / total
    if len(x) > _MAX_POINTS:
        kept = np.linspace(0, len(x) - 1, _MAX_POINTS).astype(int)
        kept = np.unique(np.append(kept, [y.argmax(), y.argmin()]))
        x, y = x[kept], y[kept]
    return x, y, half
