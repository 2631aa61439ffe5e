"""Calibration maps with credible bands, as curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal.data.checks import check_level
from bayescal.data.fitted import is_fitted
from bayescal.inference.prediction import Prediction
from bayescal.plots._inputs import Predictor, by_label, read_vector
from bayescal.plots._maps import BinaryMap, common_scores
from bayescal.plots.style import draw_legend, gray, label_axes, literal, new_axes, next_style, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_X_LABELS = {"probs": "Predicted probability", "logits": "Log odds", "scores": "Score"}
_IDENTITY = "bayescal-identity"


def curve(
    x: Predictor | Mapping[str, Predictor] | Prediction | ArrayLike,
    mean: ArrayLike | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    *,
    scores: ArrayLike | None = None,
    level: float | None = 0.9,
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    """Draw the map of a binary calibrator, or a given curve, with its credible band.

    ``curve(calibrator)`` draws the calibrated probability of the second class over the calibrator's
    input: probabilities of the second class, their log odds, or scores, depending on ``inputs``.
    The band shows intervals by ``predict_interval``. The thin line is the identity. ``curve(x,
    mean, lower, upper)`` draws numbers.

    Parameters
    ----------
    x : fitted calibrator, mapping from names to calibrators, Prediction, or array of shape (n,)
        A calibrator, or a classifier of one feature, with ``predict_proba``. A mapping draws
        several with the same ``inputs``. A Prediction is drawn as by ``Prediction.plot``. An array
        contains scores in any order.
    mean : array of shape (n,), for an array only
        Probability at each score.
    lower, upper : array of shape (n,), optional, for an array only
        Ends of the credible interval at each score, both or neither.
    scores : array of shape (m,), optional, for calibrators only
        Where to draw the map. By default the interval [0, 1] of probabilities; for log odds and
        scores, the interval with 99 % of the map's change, and a little more.
    level : float or None, default 0.9
        Posterior probability of the bands of calibrators, in (0, 1); None omits them. Calibrators
        without a posterior have no band. For ``VennAbers`` the band is its pair of probabilities.
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure. Drawing on the same axes again continues with the
        next color and line.
    label : str, optional
        Name in the legend.

    Returns
    -------
    matplotlib Axes
        ``ax``, or the axes of the new figure.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a value is not finite, one end of the band is missing, or ``lower`` is
        above ``upper``; if a calibrator has more than two classes or several features, ``inputs``
        differ, or the mapping is empty; if a mapping comes with a label, or a calibrator with
        arguments for arrays.

    See Also
    --------
    reliability : Observed frequencies instead of the map.
    simplex : The map of three classes.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 0, 1, 0, 1, 1]
    >>> ax = curve({"Platt": bc.Logistic().fit(p, y), "isotonic": bc.Isotonic().fit(p, y)})
    >>> ax.get_xlabel(), [text.get_text() for text in ax.get_legend().get_texts()]
    ('Predicted probability', ['Platt', 'isotonic'])

    Numbers:

    >>> ax = curve([2.0, 0.0, 1.0], [0.9, 0.2, 0.6], [0.8, 0.1, 0.4], [1.0, 0.4, 0.7])
    >>> ax.lines[0].get_xdata().tolist()
    [0.0, 1.0, 2.0]
    """
    if isinstance(x, Prediction):
        if any(part is not None for part in (mean, lower, upper, scores)):
            raise ValueError("mean, lower, upper and scores must be left out for a Prediction")
        return x.plot(level=level, ax=ax, label=label)
    if is_fitted(x) or isinstance(x, Mapping):
        if not (mean is None and lower is None and upper is None):
            raise ValueError("mean, lower and upper must be left out where x is a calibrator")
        return _draw_maps(x, scores, level, ax, label)
    if scores is not None:
        raise ValueError("scores must be left out where x is an array: x are the scores")
    if mean is None:
        raise TypeError("mean must be given where x is an array")
    if (lower is None) != (upper is None):
        raise ValueError("lower and upper must be given together")
    given = {"x": x, "mean": mean, "lower": lower, "upper": upper}
    arrays = {name: read_vector(part, name) for name, part in given.items() if part is not None}
    n = len(arrays["x"])
    for name, array in arrays.items():
        if len(array) != n:
            raise ValueError(f"{name} must have shape ({n},) to match x, got {array.shape}")
    if lower is not None and (arrays["lower"] > arrays["upper"]).any():
        raise ValueError("lower must not exceed upper")
    order = np.argsort(arrays["x"], kind="stable")
    ax = _axes(ax)
    label_axes(ax, "Score", "Probability of class 1")
    _draw(ax, [array[order] for array in arrays.values()], label)
    return ax


def _draw_maps(
    given: UserData,
    scores: ArrayLike | None,
    level: float | None,
    ax: Axes | None,
    label: str | None,
) -> Axes:
    """Draw the maps of calibrators."""
    calibrators = by_label(given, "x", label)
    if level is not None:
        level = check_level(level)
    maps = {name: BinaryMap(calibrator) for name, calibrator in calibrators.items()}
    kinds = {map_.inputs for map_ in maps.values()}
    if len(kinds) > 1:
        raise ValueError(f"x must be calibrators with the same inputs, got {sorted(kinds)}")
    (inputs,) = kinds
    if scores is None:
        at = common_scores(list(maps.values()))
    else:
        at = np.sort(read_vector(scores, "scores", "m"))
    # Compute everything before drawing, so that errors leave the axes unchanged.
    drawn = [(name, [at, map_(at), *map_.ends(at, level)]) for name, map_ in maps.items()]
    ax = _axes(ax)
    label_axes(ax, _X_LABELS[inputs], f"Probability of {next(iter(maps.values())).event}")
    literal(ax.yaxis.label, ax.get_ylabel())
    if inputs != "scores" and not any(line.get_gid() == _IDENTITY for line in ax.lines):
        identity = at if inputs == "probs" else 1 / (1 + np.exp(-at))
        ax.plot(at, identity, color=gray(ax, 0.55), linewidth=0.9, zorder=1, gid=_IDENTITY)
    for name, arrays in drawn:
        _draw(ax, arrays, None if name is None else str(name))
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    ax = new_axes(4.2, 3.0)
    ax.set_ylim(-0.02, 1.02)
    tidy(ax)
    return ax


def _draw(ax: Axes, arrays: list[np.ndarray], label: str | None) -> None:
    """Draw a line at ascending positions, and the band if its ends are given."""
    at, middle, *band = arrays
    style = next_style(ax)
    if band:
        lower, upper = band
        style.fill(ax, at, lower, upper, alpha=0.2)
    style.draw(ax, at, middle, linewidth=1.6, label=label)
    if label is not None:
        draw_legend(ax)
