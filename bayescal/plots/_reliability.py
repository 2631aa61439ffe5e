"""Reliability diagrams: predicted against observed frequency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import check_choice
from bayescal.data.label_names import Classes
from bayescal.metrics import ReliabilityCurve, ece
from bayescal.plots._inputs import Inputs, Models, read_models
from bayescal.plots._reliability_curves import Estimate, Options, estimate, read_events
from bayescal.plots.style import (
    Style,
    draw_legend,
    faded,
    fill_legend,
    grey,
    legend_entries,
    new_axes,
    next_style,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRIP = "bayescal-histogram"
_DIAGONAL = "bayescal-diagonal"
_STRIP_BINS = 20
_MARGIN = 0.02
# Bottom and height of the strip, in the units of the vertical axis, of which it is a part: so it
# needs no room outside the axes, whatever their layout.
_STRIP_BOTTOM, _STRIP_HEIGHT = 1.05, 0.15
#: So many names find room within the axes, up to this share of their width; others stand beside
#: them on a new figure. Widths in inches, of the figure and of a column of the legend.
_MOST_WITHIN, _WITHIN = 3, 0.75
_WIDTH, _WIDEST, _PAD = 3.6, 2.6, 0.15
#: What legends have beside names.
_PARTS = "ece", "n"
_LABELS = {
    "binary": ("predicted probability", "Observed frequency"),
    "confidence": ("confidence", "Accuracy"),
}


def reliability(
    probs: Models,
    *data: Any,
    y: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    weights: ArrayLike | None = None,
    bins: int = 10,
    binning: Literal["equal_width", "equal_mass"] = "equal_width",
    kind: str | None = None,
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

    Call it with predictions and labels, ``reliability(probs, y)``, or with what predicts, what it
    predicts from, and labels: ``reliability(calibrator, scores, y)``, ``reliability(model, X, y)``.

    The frequency is estimated by one of three methods:

    - "binned": a marker stands at the mean prediction and the observed frequency of each bin.
    - "corp": isotonic regression of the outcomes on the predictions, by pooling adjacent
      violators: nothing is to be chosen, and the line never falls.
    - "smooth": kernel regression,
      :math:`\sum_i y_i K_\sigma(t, p_i) / \sum_i K_\sigma(t, p_i)` with Gaussian kernels,
      reflected at 0 and 1. The line ends where the kernels add up to less than one case.

    The band tells what chance does, at each prediction by itself, with probability ``level``:

    - "consistency", pale, around the diagonal: where the estimate falls if the model is perfectly
      calibrated. Binomial quantiles for bins; for curves the quantiles of 200 data sets, with
      labels drawn from the predictions.
    - "confidence", around the estimate: Wilson's intervals for bins; for curves the quantiles of
      200 bootstrap samples of the cases. Where an isotonic curve is at 0 or 1 it is too narrow.

    The strip on top shows where the predictions lie, in 20 bins of equal width.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), fitted model, or mapping from names to such
        P(y = 1) for two classes, or one row of class probabilities per case. What has
        ``predict_proba`` is a model: a calibrator or a classifier; of two classes its probability
        of the second is drawn, as shape (n,). A mapping draws several models of the same cases.
    *data
        The labels y, array of shape (n,); before them, where there is a model, what it predicts
        from. Labels are 0, ..., k - 1, or any others (``classes``).
    y : array of shape (n,), optional
        The labels, by their name.
    classes, inputs : optional
        What labels and ``probs`` stand for, as in :func:`bayescal.metrics.log_loss`; classes are
        by default those of the model.
    weights : array of shape (n,), optional
        Non-negative case weights. Whole ones are counts, the same as repeating cases. Others are
        worth as many cases as the effective sample size says; so many are drawn.
    bins : int, default 10
        Number of bins, for the method "binned".
    binning : {"equal_width", "equal_mass"}
        How the bins are laid out, see :func:`bayescal.metrics.reliability_curve`. Equal
        predictions stay in one bin.
    kind : {"binary", "confidence"}, optional
        What is predicted: P(y = 1), or the largest probability. By default "binary" for shape
        (n,) and "confidence" for shape (n, k).
    method : {"binned", "corp", "smooth"}
    band : {"consistency", "confidence"}
    level : float or None, default 0.9
        Probability of the band, in (0, 1); None leaves it out.
    bandwidth : float, optional
        Standard deviation of the kernel of the method "smooth". By default that which equals the
        mean absolute residual smoothed by it, the smooth calibration error, but at least 0.001.
    seed : int, default 0
        For the data sets that are drawn for the bands of curves.
    histogram : bool, default True
        Whether to draw the strip on top.
    legend : {"ece", "n"} or sequence of them, default ()
        What the legend has beside the names: :func:`bayescal.metrics.ece` with these ``bins``,
        ``binning`` and ``kind``, whatever the method; the number of cases, of weights that are
        not whole the effective sample size.
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure. Drawing on the same axes again goes on with the
        next colour, marker and line.
    label : str, optional
        Name of the model in the legend; with a mapping its keys are the names.

    Returns
    -------
    matplotlib Axes
        ``ax``, or the axes of the new figure.

    Raises
    ------
    TypeError, ValueError
        As :func:`bayescal.metrics.ece`; for unknown methods, bands or parts of the legend, or a
        bandwidth that is not positive; if there are more or fewer data than the call needs; if
        ``label`` comes with a mapping, or the mapping is empty or mixes kinds.

    Notes
    -----
    For the method "smooth" predictions are rounded to multiples of 1 / 2000. The bands of "corp"
    pool neighbours where there are more than 4096 distinct predictions. Kernels flatten a line near
    0 and 1, also that of a calibrated model: so the band of consistency leaves the diagonal there.

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
    reading: Any = {"y": y, "weights": weights, "classes": classes, "inputs": inputs}
    models = read_models(probs, data, "reliability", label=label, **reading)
    cases = [own.second_of_fitted for own in models]
    if kind is None and {own.columns for own in cases} == {None, 2}:
        cases = [c if c.columns is None else c._replace(probs=c.probs[:, 1]) for c in cases]
    kinds = {kind or ("binary" if own.columns is None else "confidence") for own in cases}
    if len(kinds) > 1:
        raise ValueError("probs must be all of shape (n,) or all of shape (n, k), got both")
    # All curves before any drawing: bad input leaves the axes as they were.
    (kind,) = kinds
    events = [read_events(own, kind) for own in cases]
    curves = [estimate(own, options) for own in events]
    strips = [own.curve(_STRIP_BINS, "equal_width") for own in events]
    names = [own.name for own in models]
    if parts:
        how: Any = {"bins": bins, "binning": binning, "kind": kind}
        for place, (case, own) in enumerate(zip(cases, events, strict=True)):
            error = ece(case.probs, case.y, weights=case.weights, **how)
            found = {"ece": f"ECE {error:.3f}", "n": f"n = {own.counts.sum():,.0f}"}
            said = ", ".join(found[part] for part in parts)
            apart = ", " if len(parts) == 1 else "\n"
            names[place] = said if names[place] is None else f"{names[place]}{apart}{said}"
    own = ax is None
    if ax is None:
        ax = new_axes(_WIDTH, 4.1 if histogram else 3.6)
    _frame(ax, kind, method)
    if histogram:
        _make_room(ax)
    for name, curve, strip in zip(names, curves, strips, strict=True):
        style = next_style(ax)
        if level is not None:
            (_draw_bars if method == "binned" else _draw_band)(ax, curve, band, style)
        look: dict[str, Any] = {"linewidth": 1.6}
        if method == "binned":
            look = {"linewidth": 1.3, "markersize": 5.5, "clip_on": False, **style.markers}
        style.draw(ax, curve.x, curve.y, label=name, **look)
        if histogram:
            _draw_strip(ax, strip, style)
    if any(name is not None for name in names):
        _draw_legend(ax, own)
    return ax


def _draw_legend(ax: Axes, own: bool) -> None:
    """Draw the legend below the strip; on a figure of one's own beside the axes where it is big."""
    look: dict[str, Any] = {"fontsize": "small", "borderaxespad": 0.2}
    within = {"bbox_to_anchor": (0, 0, 1, 1 + _MARGIN), "bbox_transform": ax.transData}
    legend = draw_legend(ax, np.inf if own else None, 0.8, **look, **within)
    if not own:
        return
    figure: Any = ax.figure
    names = legend_entries(ax)[1]
    small = legend.get_window_extent().width < _WITHIN * ax.get_window_extent().width
    if small and len(names) <= _MOST_WITHIN:
        return
    beside: dict[str, Any] = {"bbox_to_anchor": (1.02, 1), "loc": "upper left"}
    ax.set_anchor("W")
    inch = figure.dpi
    legend = draw_legend(ax, _WIDEST * inch, np.inf, **look, **beside)
    high = legend.get_window_extent().height / ((figure.get_figheight() - 0.3) * inch)
    if high > 1:
        legend = draw_legend(ax, np.inf, np.inf, ncols=int(np.ceil(high)), **look, **beside)
        fill_legend(legend, names, _WIDEST * inch)
    figure.set_figwidth(_WIDTH + legend.get_window_extent().width / inch + _PAD)


def _frame(ax: Axes, kind: str, method: str) -> None:
    """Draw what all models share, once."""
    if any(line.get_gid() == _DIAGONAL for line in ax.lines):
        return
    ax.plot([0, 1], [0, 1], color=grey(ax, 0.55), linewidth=0.9, zorder=1, gid=_DIAGONAL)
    ends = (-_MARGIN, 1 + _MARGIN)
    ax.set(xlim=ends, ylim=ends, aspect="equal")
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    x_label, y_label = _LABELS[kind]
    ax.set_xlabel(f"Mean {x_label}" if method == "binned" else x_label.capitalize())
    ax.set_ylabel(y_label)
    tidy(ax)


def _make_room(ax: Axes) -> None:
    """Lengthen the vertical axis for the strip; its scale still ends at 1."""
    ends = (-_MARGIN, 1 + _MARGIN)
    top = _STRIP_BOTTOM + _STRIP_HEIGHT
    ax.set_ylim(ends[0], top)
    ax.spines["left"].set_bounds(*ends)
    ax.set_ylabel(ax.get_ylabel(), y=0.5 * (ends[1] - ends[0]) / (top - ends[0]))


def _draw_bars(ax: Axes, curve: Estimate, band: str, style: Style) -> None:
    """Draw a bar for each bin: pale and broad around the diagonal, thin around the marker."""
    alpha, width = (faded(ax, 0.25), 5) if band == "consistency" else (None, 1.1)
    bars = ax.vlines(curve.at, curve.lower, curve.upper, color=style.color, zorder=2)
    bars.set(alpha=alpha, linewidth=width, capstyle="butt")


def _draw_band(ax: Axes, curve: Estimate, band: str, style: Style) -> None:
    """Draw the band of a curve, with an edge where it belongs to the curve."""
    ax.fill_between(
        curve.at,
        curve.lower,
        curve.upper,
        facecolor=(style.color, faded(ax, 0.2)),
        edgecolor=(style.color, 0.6),
        linewidth=0 if band == "consistency" else 0.5,
        zorder=2,
    )


def _draw_strip(ax: Axes, strip: ReliabilityCurve, style: Style) -> None:
    """Draw the distribution of the predictions on top."""
    place = np.clip(np.ceil(strip.predicted * _STRIP_BINS) - 1, 0, _STRIP_BINS - 1)
    counts = np.bincount(place.astype(int), strip.weight, _STRIP_BINS)
    top: Any = next((child for child in ax.child_axes if child.get_label() == _STRIP), None)
    if top is None:
        bounds = (-_MARGIN, _STRIP_BOTTOM, 1 + 2 * _MARGIN, _STRIP_HEIGHT)
        top = ax.inset_axes(bounds, transform=ax.transData, sharex=ax, label=_STRIP)
        top.tick_params(bottom=False, labelbottom=False, left=False, labelleft=False)
        top.spines[["top", "left", "right"]].set_visible(False)
        top.set_ylabel("cases", rotation=0, ha="right", va="center", color=grey(ax, 0.35))
        top.patch.set_visible(False)
    edges = np.arange(_STRIP_BINS + 1) / _STRIP_BINS
    share = counts / counts.sum()
    top.stairs(share, edges, fill=True, color=style.color, alpha=faded(ax, 0.25))
    top.stairs(share, edges, color=style.color, linestyle=style.linestyle, linewidth=1)
    top.set_ylim(0, max(top.get_ylim()[1] if len(top.patches) > 2 else 0, 1.05 * share.max()))
