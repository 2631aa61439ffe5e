"""Expected costs of decisions based on probabilities, over the ratio of costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.binning import threshold_slack
from bayescal.data.label_names import Classes
from bayescal.data.predictions import Predictions
from bayescal.plots._inputs import Inputs, Models, read_models, read_vector
from bayescal.plots.style import (
    draw_legend,
    gray,
    label_axes,
    legend_entries,
    new_axes,
    next_style,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DEFAULTS = "bayescal-always-or-never"
_POINTS = 501
#: Largest fraction of the height of the axes for the legend.
_MAX_LEGEND = 0.6


def decision_cost(
    probs: Models,
    *data: object,
    y: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    weights: ArrayLike | None = None,
    ratios: ArrayLike | None = None,
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    r"""Draw the expected cost of decisions over the ratio of the costs of both errors.

    Use it to see at which cost ratios a model's probabilities are useful. Acting on a row of class
    0 costs 2 t, and not acting on a row of class 1 costs 2 (1 - t). With calibrated probabilities
    it is best to act if p > t; then the expected cost is

    .. math:: \frac{2}{n} \sum_i t\,(1 - y_i)\,[p_i > t] + (1 - t)\,y_i\,[p_i \le t]

    and its integral over t in [0, 1], the area under the line, is the Brier score
    :math:`\frac1n \sum_i (p_i - y_i)^2`, which the legend shows beside the name. The dashed line is
    the lower cost of always and never acting: where a model is above it, its probabilities do harm.

    Parameters
    ----------
    probs : array of shape (n,) or (n, 2), fitted model, or mapping from names to them
        P(y = 1), or class probabilities in rows; or a calibrator or classifier with
        ``predict_proba``. A mapping draws several models of the same rows.
    *data
        The labels y of two classes, array of shape (n,), preceded for models by the data that they
        predict from: ``decision_cost(probs, y)``, ``decision_cost(model, X, y)``.
    y : array of shape (n,), optional
        The labels, passed by keyword.
    classes, inputs : optional
        The labels in column order, and what ``probs`` contain, as in
        :func:`bayescal.metrics.log_loss`.
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    ratios : array of shape (m,), optional
        Values of t in [0, 1], in any order; by default 501 between 0 and 1.
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
        If :func:`bayescal.metrics.brier_score` would raise; for ratios outside [0, 1], more than
        two classes, an empty mapping, or a label with a mapping.

    See Also
    --------
    reliability : The calibration of the probabilities.

    Notes
    -----
    Time O(n log n + m).

    References
    ----------
    J. Hernández-Orallo, P. Flach and C. Ferri (2011), Brier curves: a new cost-based visualisation
    of classifier performance.

    Examples
    --------
    >>> ax = decision_cost([0.2, 0.4, 0.9], [0, 1, 1], ratios=[0.3, 0.5], label="raw")
    >>> ax.lines[-1].get_ydata()
    array([0.  , 0.333])
    """
    given = read_models(probs, data, "decision_cost", y, weights, classes, inputs, label)
    models = [(model.name, _probabilities(model.data)) for model in given]
    cases = given[0].data
    happened, row_weights = cases.y == 1, cases.weights / cases.weights.sum()
    t = np.linspace(0, 1, _POINTS) if ratios is None else read_vector(ratios, "ratios", "m")
    t = np.sort(t)
    if t[0] < 0 or t[-1] > 1:
        raise ValueError(f"ratios must lie in [0, 1], got {t[0]:g} to {t[-1]:g}")
    costs = [
        _cost(p, happened, row_weights, t, model.data.precision)
        for model, (_, p) in zip(given, models, strict=True)
    ]
    if ax is None:
        ax = new_axes(4.2, 3.2)
        ax.set_xlim(0, 1)
        tidy(ax)
    label_axes(ax, "Cost ratio t: act where p > t", "Expected cost")
    if not any(line.get_gid() == _DEFAULTS for line in ax.lines):
        # The cost of always acting, or never, by the frequency of class 1.
        frequency = float(row_weights @ happened)
        ax.plot(
            [0, frequency, 1], [0, 2 * frequency * (1 - frequency), 0], color=gray(ax, 0.45),
            linewidth=1, linestyle=(0, (4, 3)), zorder=2, label="always or never", gid=_DEFAULTS,
        )  # fmt: skip
    for (name, p), cost in zip(models, costs, strict=True):
        score = row_weights @ (p - happened) ** 2
        shown = None if name is None else f"{name}  {score:.3f}"
        next_style(ax).draw(ax, t, cost, linewidth=1.5, label=shown)
    _make_room(ax)
    return ax


def _probabilities(data: Predictions) -> np.ndarray:
    """Return P(y = 1) of shape (n,)."""
    if data.columns not in (None, 2):
        raise ValueError(f"probs must be of two classes, got shape {data.probs.shape}")
    return data.probs if data.columns is None else data.probs[:, 1]


def _cost(
    p: np.ndarray, happened: np.ndarray, weights: np.ndarray, t: np.ndarray, precision: float
) -> np.ndarray:
    """Compute the expected costs (m,) at thresholds t, on which rounded probabilities may lie."""
    ends = t + threshold_slack(t, precision)

    def below(rows: np.ndarray) -> np.ndarray:
        order = np.argsort(p[rows])
        sums = np.append(0.0, np.cumsum(weights[rows][order]))
        return sums[np.searchsorted(p[rows][order], ends, side="right")]

    false_alarms = weights[~happened].sum() - below(~happened)
    return 2 * (t * false_alarms + (1 - t) * below(happened))


def _make_room(ax: Axes) -> None:
    """Draw the legend above all lines, inside the axes."""
    count = len(legend_entries(ax)[1])
    top = max(float(np.max(np.asarray(line.get_ydata()))) for line in ax.lines)
    # The models come first, then what they are compared with.
    legend = draw_legend(
        ax,
        height=_MAX_LEGEND,
        order=[*range(1, count), 0] if count > 1 else [0],
        title="area under the line = Brier score" if count > 1 else None,
        title_fontsize="small",
        fontsize="small",
        loc="upper left",
        alignment="left",
        frameon=False,
        borderaxespad=0.1,
    )
    room = min(legend.get_window_extent().height / ax.get_window_extent().height, _MAX_LEGEND)
    ax.set_ylim(0, max(top, 1e-3) / (1 - room))
