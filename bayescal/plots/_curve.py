"""Calibration curves with credible bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.plots._inputs import read_vector
from bayescal.plots.style import label_axes, new_axes, next_style, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def curve(
    x: ArrayLike,
    mean: ArrayLike,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    *,
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    """Draw a calibration curve, with a credible band around it if one is given.

    Parameters
    ----------
    x : array of shape (n,)
        Scores, in any order.
    mean : array of shape (n,)
        Probability at each score.
    lower, upper : array of shape (n,), optional
        Ends of the credible interval at each score, both or neither.
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure. Drawing on the same axes again goes on with the
        next colour and line.
    label : str, optional
        Name in the legend.

    Returns
    -------
    matplotlib Axes
        ``ax``, or the axes of the new figure.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a value is not finite, one end of the band is missing, or ``lower`` lies
        above ``upper``.

    Examples
    --------
    >>> ax = curve([2.0, 0.0, 1.0], [0.9, 0.2, 0.6], [0.8, 0.1, 0.4], [1.0, 0.4, 0.7])
    >>> ax.lines[0].get_xdata().tolist()
    [0.0, 1.0, 2.0]
    """
    if (lower is None) != (upper is None):
        raise ValueError("lower and upper must be given together")
    given = {"x": x, "mean": mean, "lower": lower, "upper": upper}
    arrays = {name: read_vector(each, name) for name, each in given.items() if each is not None}
    n = len(arrays["x"])
    for name, array in arrays.items():
        if len(array) != n:
            raise ValueError(f"{name} must have shape ({n},) to match x, got {array.shape}")
    if lower is not None and (arrays["lower"] > arrays["upper"]).any():
        raise ValueError("lower must not exceed upper")
    order = np.argsort(arrays["x"], kind="stable")
    at, middle, *band = (array[order] for array in arrays.values())
    if ax is None:
        ax = new_axes(4.2, 3.0)
        ax.set_ylim(-0.02, 1.02)
        tidy(ax)
    label_axes(ax, "Score", "Probability of class 1")
    style = next_style(ax)
    if band:
        style.fill(ax, at, *band, alpha=0.2)
    style.draw(ax, at, middle, linewidth=1.6, label=label)
    if label is not None:
        ax.legend(frameon=False, handlelength=2.6)
    return ax
