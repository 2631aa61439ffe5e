"""Expected costs of decisions by probabilities, over the ratio of costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.label_names import Classes
from bayescal.data.predictions import Predictions
from bayescal.plots._inputs import Inputs, Models, read_models, read_vector
from bayescal.plots.style import (
    draw_legend,
    grey,
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
#: Share of the height of the axes that the legend has at most.
_MOST_LEGEND = 0.6


def decision_cost(
    probs: Models,
    *data: Any,
    y: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    weights: ArrayLike | None = None,
    ratios: ArrayLike | None = None,
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    r"""Draw what decisions by the probabilities cost, over the ratio of the costs of both errors.

    To act on a case of class 0 costs 2 t, not to act on one of class 1 costs 2 (1 - t). With
    calibrated probabilities it is best to act where p > t; then the expected cost is

    .. math:: \frac{2}{n} \sum_i t\,(1 - y_i)\,[p_i > t] + (1 - t)\,y_i\,[p_i \le t]

    and its integral over t in [0, 1], the area under the line, is the Brier score
    :math:`\frac1n \sum_i (p_i - y_i)^2`, which the legend has beside the name. The dashed line is
    the cost of always or never acting, whichever is less: where a model lies above it, its
    probabilities do harm.

    Parameters
    ----------
    probs : array of shape (n,) or (n, 2), fitted model, or mapping from names to such
        P(y = 1), or one row of class probabilities per case; or what has ``predict_proba``, a
        calibrator or a classifier. A mapping draws several models of the same cases.
    *data
        The labels y, array of shape (n,), of two classes; before them, where there is a model,
        what it predicts from: ``decision_cost(probs, y)``, ``decision_cost(model, X, y)``.
    y : array of shape (n,), optional
        The labels, by their name.
    classes, inputs : optional
        What labels and ``probs`` stand for, as in :func:`bayescal.metrics.log_loss`.
    weights : array of shape (n,), optional
        Non-negative case weights; only their ratios matter.
    ratios : array of shape (m,), optional
        Values of t in [0, 1], in any order; by default 501 between 0 and 1.
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure. Drawing on the same axes again goes on with the
        next colour and line.
    label : str, optional
        Name of the model in the legend; with a mapping its keys are the names.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        As :func:`bayescal.metrics.brier_score`; for ratios outside [0, 1], more than two classes,
        an empty mapping, or a label that comes with a mapping.

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
    how: Any = {"y": y, "weights": weights, "classes": classes, "inputs": inputs}
    given = read_models(probs, data, "decision_cost", label=label, **how)
    models = [(own.name, _probabilities(own.data)) for own in given]
    cases = given[0].data
    happened, shares = cases.y == 1, cases.weights / cases.weights.sum()
    t = np.linspace(0, 1, _POINTS) if ratios is None else read_vector(ratios, "ratios", "m")
    t = np.sort(t)
    if t[0] < 0 or t[-1] > 1:
        raise ValueError(f"ratios must lie in [0, 1], got {t[0]:g} to {t[-1]:g}")
    costs = [_cost(p, happened, shares, t) for _, p in models]
    if ax is None:
        ax = new_axes(4.2, 3.2)
        ax.set_xlim(0, 1)
        tidy(ax)
    label_axes(ax, "Cost ratio t: act where p > t", "Expected cost")
    _draw_defaults(ax, float(shares @ happened))
    for (name, p), cost in zip(models, costs, strict=True):
        score = shares @ (p - happened) ** 2
        shown = None if name is None else f"{name}  {score:.3f}"
        next_style(ax).draw(ax, t, cost, linewidth=1.5, label=shown)
    _make_room(ax)
    return ax


def _probabilities(data: Predictions) -> np.ndarray:
    """Return P(y = 1) of shape (n,)."""
    if data.columns not in (None, 2):
        raise ValueError(f"probs must be of two classes, got shape {data.probs.shape}")
    return data.probs if data.columns is None else data.probs[:, 1]


def _cost(p: np.ndarray, happened: np.ndarray, shares: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return the expected costs (m,) at thresholds t."""

    def below(rows: np.ndarray) -> np.ndarray:
        order = np.argsort(p[rows])
        sums = np.append(0.0, np.cumsum(shares[rows][order]))
        return sums[np.searchsorted(p[rows][order], t, side="right")]

    false_alarms = shares[~happened].sum() - below(~happened)
    return 2 * (t * false_alarms + (1 - t) * below(happened))


def _draw_defaults(ax: Axes, share: float) -> None:
    """Draw the cost of always acting, or never, for the share of class 1; once."""
    if any(line.get_gid() == _DEFAULTS for line in ax.lines):
        return
    top = 2 * share * (1 - share)
    ax.plot(
        [0, share, 1], [0, top, 0], color=grey(ax, 0.45), linewidth=1, linestyle=(0, (4, 3)),
        zorder=2, label="always or never", gid=_DEFAULTS,
    )  # fmt: skip


def _make_room(ax: Axes) -> None:
    """Draw the legend above all lines, within the axes."""
    count = len(legend_entries(ax)[1])
    top = max(float(np.max(np.asarray(line.get_ydata()))) for line in ax.lines)
    # The models first, then what they are compared with.
    legend = draw_legend(
        ax,
        height=_MOST_LEGEND,
        order=[*range(1, count), 0] if count > 1 else [0],
        title="area under the line = Brier score" if count > 1 else None,
        title_fontsize="small",
        fontsize="small",
        loc="upper left",
        alignment="left",
        frameon=False,
        borderaxespad=0.1,
    )
    room = min(legend.get_window_extent().height / ax.get_window_extent().height, _MOST_LEGEND)
    ax.set_ylim(0, max(top, 1e-3) / (1 - room))
