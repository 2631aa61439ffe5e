"""Reliability diagrams: observed frequency against predicted probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.keywords import other_words
from bayescal.data.checks import check_choice
from bayescal.data.label_names import Classes
from bayescal.plots._inputs import Inputs, Models, error_of, read_models
from bayescal.plots._reliability.curves import Estimate, Options, estimate, read_events
from bayescal.plots.style import (
    Style,
    draw_legend,
    faded,
    fill_legend,
    gray,
    label_axes,
    legend_entries,
    new_axes,
    next_style,
    root_figure,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRIP = "bayescal-histogram"
_DIAGONAL = "bayescal-diagonal"
_STRIP_BINS = 20
_MARGIN = 0.02
# Bottom and height of the strip in units of the vertical axis, of which it is a part. Thus it needs
# no space outside the axes, whatever their layout.
_STRIP_BOTTOM, _STRIP_HEIGHT = 1.05, 0.15
#: Largest number of names, and their largest fraction of the axes' width, for a legend inside the
#: axes; otherwise it is beside them on a new figure.
_MAX_NAMES_INSIDE, _MAX_WIDTH_INSIDE = 3, 0.75
#: Widths in inches, of the figure and of a column of the legend.
_WIDTH, _WIDEST, _PAD = 3.6, 2.6, 0.15
#: What the legend can show beside names.
_PARTS = "ece", "n"
_LABELS = {
    "binary": ("predicted probability", "Observed frequency"),
    "confidence": ("confidence", "Accuracy"),
}


@other_words
def reliability(
    probs: Models,
    *data: object,
    y: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    weights: ArrayLike | None = None,
    bins: int = 10,
    binning: Literal["equal_width", "equal_mass"] = "equal_width",
    kind: Literal["binary", "confidence"] | None = None,
    method: str = "binned",
    band: str = "consistency",
    level: float | None = 0.9,
    bandwidth: float | None = None,
    seed: int = 0,
    histogram: bool = True,
    legend: str | Sequence[str] = (),
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    r"""Draw a reliability diagram: the observed frequency against the prediction.

    Call it with predictions and labels, ``reliability(probs, y)``, or with a model, the data that
    it predicts from, and labels: ``reliability(calibrator, scores, y)``,
    ``reliability(model, X, y)``.

    The frequency is estimated by one of three methods:

    - "binned": a marker at the mean prediction and the observed frequency of each bin.
    - "corp": isotonic regression of the outcomes on the predictions, by pooling adjacent
      violators. It needs no choices, and the line never decreases.
    - "smooth": kernel regression,
      :math:`\sum_i y_i K_\sigma(t, p_i) / \sum_i K_\sigma(t, p_i)` with Gaussian kernels,
      reflected at 0 and 1. The line ends where the kernels add up to less than one row.

    The band shows the effect of chance, at each prediction separately, with probability ``level``:

    - "consistency", pale, around the diagonal: where the estimate falls if the model is perfectly
      calibrated. Binomial quantiles for bins; for curves the quantiles of 200 data sets with labels
      drawn from the predictions.
    - "confidence", of the frequency: Wilson's intervals for bins; credible intervals of
      :class:`~bayescal.Isotonic` for "corp"; for "smooth" Wilson's intervals of the smoothed
      frequency, with the effective number of rows under the kernel.

    The strip on top shows the distribution of the predictions in 20 bins of equal width.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), fitted model, or mapping from names to them
        P(y = 1) for two classes, or class probabilities in rows. A model is a calibrator or
        classifier with ``predict_proba``; for two classes its probability of the second class is
        drawn. A mapping draws several models of the same rows.
    *data
        The labels y, array of shape (n,), preceded for models by the data that they predict from.
        Labels are 0, ..., k - 1, or any others (``classes``).
    y : array of shape (n,), optional
        The labels, passed by keyword.
    classes, inputs : optional
        The labels in column order, by default those of the model, and what ``probs`` contain, as in
        :func:`bayescal.metrics.log_loss`.
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, equal to repeating rows. With other
        weights, frequencies are weighted averages, and bands are those of as many rows as the
        effective sample size.
    bins : int, default 10
        Number of bins for the method "binned".
    binning : {"equal_width", "equal_mass"}
        Layout of the bins, see :func:`bayescal.metrics.reliability_curve`. Equal predictions stay
        in one bin.
    kind : {"binary", "confidence"}, optional
        What is predicted: P(y = 1), or the largest probability. By default "binary" for two
        classes and "confidence" for more.
    method : {"binned", "corp", "smooth"}
        Estimate of the frequency, see above.
    band : {"consistency", "confidence"}
        Meaning of the band, see above.
    level : float or None, default 0.9
        Probability of the band, in (0, 1); None omits it.
    bandwidth : float, optional
        Standard deviation of the kernel of the method "smooth". By default the one that equals the
        mean absolute residual smoothed by it, the smooth calibration error, and at least 0.001.
    seed : int, default 0
        Seed of the labels drawn for bands of consistency of curves.
    histogram : bool, default True
        Whether to draw the strip on top.
    legend : {"ece", "n"} or sequence of them, default ()
        What the legend shows beside the names: :func:`bayescal.metrics.ece` with these ``bins``,
        ``binning`` and ``kind``, whatever the method; the number of rows, or their effective sample
        size if weights are not integers.
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure. Drawing on the same axes again continues with the
        next color, marker and line.
    label : str, optional
        Name of the model in the legend; for a mapping its keys are the names.

    Returns
    -------
    matplotlib Axes
        ``ax``, or the axes of the new figure.

    Raises
    ------
    TypeError, ValueError
        If :func:`bayescal.metrics.ece` would raise; for unknown methods, bands or parts of the
        legend, or a bandwidth that is not positive; if there are more or fewer data than the call
        needs; if ``label`` comes with a mapping, or the mapping is empty or mixes kinds.

    See Also
    --------
    by_model, classwise : Several small diagrams, for models or for classes.
    curve : A calibrator's map.
    ReliabilityDisplay : The interface of scikit-learn.
    bayescal.metrics.reliability_curve : The numbers of the binned diagram.

    Notes
    -----
    For the method "smooth", predictions are rounded to multiples of 1 / 2000. Bands of consistency
    of "corp" pool neighbors if there are more than 4096 distinct predictions. Kernels flatten a
    line near 0 and 1 even for a calibrated model, so bands of consistency leave the diagonal there.

    In simulations of 30 to 1,000 rows, also of rare events, bands of confidence of level 0.9 held
    83 to 100 % of true frequencies for "corp", and 86 to 95 % of smoothed ones for "smooth".

    References
    ----------
    J. Bröcker and L. A. Smith (2007), Increasing the reliability of reliability diagrams.
    T. Dimitriadis, T. Gneiting and A. I. Jordan (2021), Stable reliability diagrams for
    probabilistic classifiers. J. Błasiok and P. Nakkiran (2023), Smooth ECE: principled
    reliability diagrams via kernel smoothing.

    Examples
    --------
    >>> ax = reliability({"raw": [0.1, 0.3, 0.9, 0.7], "flat": [0.75] * 4}, [0, 1, 1, 1], bins=2)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['raw', 'flat']
    >>> ax = reliability([0.1, 0.4, 0.2, 0.9], [0, 0, 1, 1], method="corp", level=None)
    >>> ax.lines[1].get_xydata().tolist()
    [[0.1, 0.0], [0.2, 0.5], [0.4, 0.5], [0.9, 1.0]]

    A calibrator, with labels of any kind:

    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], ["no", "no", "yes", "no", "yes", "yes"]
    >>> ax = reliability(bc.Temperature().fit(p, y), p, y, legend=("ece", "n"), label="scaled")
    >>> ax.get_legend().get_texts()[0].get_text()
    'scaled\nECE 0.284, n = 6'
    """
    parts = (legend,) if isinstance(legend, str) else tuple(legend)
    for part in parts:
        check_choice(part, "legend", _PARTS)
    options = Options(method, band, level, bins, binning, bandwidth, seed)
    models = read_models(probs, data, "reliability", y, weights, classes, inputs, label)
    rows = [model.data for model in models]
    kinds: set[Literal["binary", "confidence"]] = {
        kind or ("binary" if row.columns is None else "confidence") for row in rows
    }
    if len(kinds) > 1:
        raise ValueError("probs must be all of shape (n,) or all of shape (n, k), got both")
    # Compute all curves before drawing, so that bad input leaves the axes unchanged.
    (kind,) = kinds
    events = [read_events(row, kind) for row in rows]
    curves = [estimate(event, options) for event in events]
    strips = [event.histogram(_STRIP_BINS) for event in events]
    names = [model.name for model in models]
    if parts:
        for index, (row, event) in enumerate(zip(rows, events, strict=True)):
            error = error_of(row, bins=bins, binning=binning, kind=kind)
            texts = {"ece": f"ECE {error:.3f}", "n": f"n = {event.weights.sum():,.0f}"}
            text = ", ".join(texts[part] for part in parts)
            separator = ", " if len(parts) == 1 else "\n"
            names[index] = text if names[index] is None else f"{names[index]}{separator}{text}"
    new_figure = ax is None
    if ax is None:
        ax = new_axes(_WIDTH, 4.1 if histogram else 3.6)
    _frame(ax, kind, method)
    if histogram:
        _make_room(ax)
    for name, curve, strip in zip(names, curves, strips, strict=True):
        style = next_style(ax)
        if level is not None:
            _draw_band(ax, curve, band, style, bars=method == "binned")
        appearance = {"linewidth": 1.6}
        if method == "binned":
            appearance = {"linewidth": 1.3, "markersize": 5.5, "clip_on": False, **style.markers}
        style.draw(ax, curve.x, curve.y, label=name, **appearance)
        if histogram:
            _draw_strip(ax, strip, style)
    if any(name is not None for name in names):
        draw_names(ax, new_figure)
    return ax


def draw_names(ax: Axes, new_figure: bool) -> None:
    """Draw the legend below the strip, or on a new figure beside the axes if it is large."""
    appearance: dict[str, object] = {"fontsize": "small", "borderaxespad": 0.2}
    within = {"bbox_to_anchor": (0, 0, 1, 1 + _MARGIN), "bbox_transform": ax.transData}
    legend = draw_legend(ax, np.inf if new_figure else None, 0.8, **appearance, **within)
    if not new_figure:
        return
    figure = root_figure(ax)
    names = legend_entries(ax)[1]
    small = legend.get_window_extent().width < _MAX_WIDTH_INSIDE * ax.get_window_extent().width
    if small and len(names) <= _MAX_NAMES_INSIDE:
        return
    beside: dict[str, object] = {"bbox_to_anchor": (1.02, 1), "loc": "upper left"}
    ax.set_anchor("W")
    inch = figure.dpi
    legend = draw_legend(ax, _WIDEST * inch, np.inf, **appearance, **beside)
    high = legend.get_window_extent().height / ((figure.get_figheight() - 0.3) * inch)
    if high > 1:
        legend = draw_legend(ax, np.inf, np.inf, ncols=int(np.ceil(high)), **appearance, **beside)
        fill_legend(legend, names, _WIDEST * inch)
    figure.set_figwidth(_WIDTH + legend.get_window_extent().width / inch + _PAD)


def _frame(ax: Axes, kind: str, method: str) -> None:
    """Draw the parts that all models share, once."""
    if any(line.get_gid() == _DIAGONAL for line in ax.lines):
        return
    ax.plot([0, 1], [0, 1], color=gray(ax, 0.55), linewidth=0.9, zorder=1, gid=_DIAGONAL)
    ends = (-_MARGIN, 1 + _MARGIN)
    ax.set(xlim=ends, ylim=ends, aspect="equal")
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    x_label, y_label = _LABELS[kind]
    label_axes(ax, f"Mean {x_label}" if method == "binned" else x_label.capitalize(), y_label)
    tidy(ax)


def _make_room(ax: Axes) -> None:
    """Extend the vertical axis for the strip; its scale still ends at 1."""
    ends = (-_MARGIN, 1 + _MARGIN)
    top = _STRIP_BOTTOM + _STRIP_HEIGHT
    ax.set_ylim(ends[0], top)
    ax.spines["left"].set_bounds(*ends)
    ax.set_ylabel(ax.get_ylabel(), y=0.5 * (ends[1] - ends[0]) / (top - ends[0]))


def _draw_band(ax: Axes, curve: Estimate, band: str, style: Style, bars: bool) -> None:
    """Draw bars, pale and wide around the diagonal, or a band, with an edge around the curve."""
    x, lower, upper = curve[2:]
    around = band == "consistency"
    if bars:
        lines = ax.vlines(x, lower, upper, color=style.color, zorder=2)
        alpha, width = (faded(ax, 0.25), 5) if around else (None, 1.1)
        lines.set(alpha=alpha, linewidth=width, capstyle="butt")
    else:
        area = ax.fill_between(x, lower, upper, facecolor=(style.color, faded(ax, 0.2)), zorder=2)
        area.set(edgecolor=(style.color, 0.6), linewidth=0 if around else 0.5)


def _draw_strip(ax: Axes, proportions: np.ndarray, style: Style) -> None:
    """Draw the distribution of the predictions on top."""
    top: Any = next((child for child in ax.child_axes if child.get_label() == _STRIP), None)
    if top is None:
        bounds = (-_MARGIN, _STRIP_BOTTOM, 1 + 2 * _MARGIN, _STRIP_HEIGHT)
        top = ax.inset_axes(bounds, transform=ax.transData, sharex=ax, label=_STRIP)
        top.tick_params(bottom=False, labelbottom=False, left=False, labelleft=False)
        top.spines[["top", "left", "right"]].set_visible(False)
        top.set_ylabel("cases", rotation=0, ha="right", va="center", color=gray(ax, 0.35))
        top.patch.set_visible(False)
    edges = np.arange(_STRIP_BINS + 1) / _STRIP_BINS
    top.stairs(proportions, edges, fill=True, color=style.color, alpha=faded(ax, 0.25))
    top.stairs(proportions, edges, color=style.color, linestyle=style.linestyle, linewidth=1)
    top.set_ylim(0, max(top.get_ylim()[1] if len(top.patches) > 2 else 0, 1.05 * proportions.max()))
