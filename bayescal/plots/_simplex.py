"""Calibration maps of three classes, drawn on the simplex."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import as_numpy, check_count, check_finite
from bayescal.plots._inputs import Predictor, class_names
from bayescal.plots.style import gray, literal, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The first class is at the left, the second at the right, the third on top.
_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
_FINE = 60
#: Largest length of arrows as a fraction of the distance between neighbors.
_LONGEST = 0.9
#: Units of arrows, and sizes of their heads in widths of their shafts.
_ARROWS = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.005, "minlength": 0}
_ARROWS |= {"headwidth": 3.2, "headlength": 3.6, "headaxislength": 3.2}
_SUM_TOLERANCE = 1e-6


def simplex(
    calibration: Predictor | Callable[[np.ndarray], ArrayLike],
    *,
    arrows: int = 12,
    labels: Sequence[object] | None = None,
    limit: float | None = None,
    colorbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw where a calibration map of three classes moves predictions, and how far.

    An arrow starts at a prediction and points to its calibrated probabilities. It ends there or, if
    it would cross other arrows, at nine tenths of the distance to the next arrow. Colors show half
    the sum of absolute changes (the total variation distance), dark where it is large; colors at
    the sides are for predictions just inside.

    Parameters
    ----------
    calibration : fitted calibrator or callable
        A calibrator with ``inputs="probs"``, or a function from probabilities (m, 3) to
        probabilities (m, 3).
    arrows : int
        Number of arrows along each side; the fewer, the longer they may be.
    labels : sequence of three names, optional
        Names of the corners, by default those of the calibrator's classes; numbers are called
        "class 0", "class 1", ...
    limit : float, optional
        Change with the darkest color, by default the largest one; pass it to compare maps.
    colorbar : bool
        Whether to draw the scale of colors.
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure.

    Returns
    -------
    matplotlib Axes
        ``ax``, or the axes of the new figure.

    Raises
    ------
    TypeError
        If ``calibration`` is neither a calibrator nor a function.
    ValueError
        If it does not return probabilities of three classes, or takes other inputs.

    See Also
    --------
    curve : The map of two classes.

    Examples
    --------
    >>> ax = simplex(lambda p: 0.8 * p + 0.2 / 3, arrows=5)
    >>> len(ax.texts)
    3
    """
    apply = _function(calibration)
    count = check_count(arrows, "arrows")
    classes = getattr(calibration, "classes_", range(3))
    if len(classes) != 3:
        raise ValueError(f"calibration must be of three classes, got {len(classes)}")
    names = class_names(classes) if labels is None else [str(label) for label in labels]
    if len(names) != 3:
        raise ValueError(f"labels must be three names, got {len(names)}")
    if ax is None:
        ax = new_axes(4.6, 4.0)
    fine, inner = _lattice(_FINE) @ _CORNERS, _inner(_FINE + 1)
    moved = 0.5 * np.abs(_apply(apply, inner) - inner).sum(axis=1)
    highest = max(float(moved.max()) if limit is None else float(limit), 1e-9)
    x, y = fine.T
    shade = ax.tripcolor(x, y, moved, shading="gouraud", vmin=0, vmax=highest, cmap="cividis_r")
    shade.set(zorder=1, rasterized=True)
    if colorbar:
        bar = ax.figure.colorbar(shade, ax=ax, shrink=0.7, pad=0.02)
        bar.set_label("Total variation of the change")
    points = _inner(count)
    start, ends = points @ _CORNERS, _apply(apply, points)
    step, change = ends @ _CORNERS - start, 0.5 * np.abs(ends - points).sum(axis=1)
    length = np.maximum(np.hypot(*step.T), 1e-9)
    step *= np.minimum(1, _LONGEST / (count * length))[:, None]
    # Visible on the color below.
    colors = ["white" if far else "black" for far in change > 0.5 * highest]
    ax.quiver(*start.T, *step.T, color=colors, zorder=3, **_ARROWS)
    outline = np.vstack([_CORNERS, _CORNERS[:1]])
    ax.plot(outline[:, 0], outline[:, 1], color=gray(ax, 0), linewidth=1, zorder=2)
    alignments = (("right", "top"), ("left", "top"), ("center", "bottom"))
    for corner, name, (across, along) in zip(_CORNERS, names, alignments, strict=True):
        away = corner + 0.025 * (corner - _CORNERS.mean(axis=0))
        literal(ax.text(away[0], away[1], "", ha=across, va=along), name)
    ax.set(xlim=(-0.1, 1.1), ylim=(-0.1, 0.97), aspect="equal")
    ax.set_axis_off()
    return ax


def _lattice(steps: int) -> np.ndarray:
    """Return the points (m, 3) of the simplex whose coordinates are multiples of 1 / steps."""
    i, j = (part.ravel() for part in np.mgrid[: steps + 1, : steps + 1])
    inside = i + j <= steps
    i, j = i[inside], j[inside]
    return np.stack([i, j, steps - i - j], axis=1) / steps


def _inner(side: int) -> np.ndarray:
    """Return points (m, 3), ``side`` along each side, just inside the simplex.

    At a probability of exactly zero, maps of logarithms would only show the value that they
    substitute for zero.
    """
    return (_lattice(side - 1) * (side - 1) + 1 / 3) / side if side > 1 else np.full((1, 3), 1 / 3)


def _function(
    calibration: Predictor | Callable[[np.ndarray], ArrayLike],
) -> Callable[[np.ndarray], ArrayLike]:
    if hasattr(calibration, "predict_proba"):
        inputs = getattr(calibration, "inputs", "probs")
        if inputs != "probs":
            raise ValueError(f"calibration must take inputs='probs', got {inputs!r}")
        return cast("Predictor", calibration).predict_proba
    if not callable(calibration):
        raise TypeError(f"calibration must be a calibrator or a function, got {calibration!r}")
    return calibration


def _apply(apply: Callable[[np.ndarray], ArrayLike], points: np.ndarray) -> np.ndarray:
    mapped = as_numpy(apply(points.copy()), "calibration")
    if mapped.shape != points.shape:
        raise ValueError(
            f"calibration must return probabilities of shape {points.shape}, got {mapped.shape}"
        )
    check_finite(mapped, "calibration")
    if (mapped < -_SUM_TOLERANCE).any() or np.abs(mapped.sum(axis=1) - 1).max() > _SUM_TOLERANCE:
        raise ValueError("calibration must return rows of probabilities that sum to one")
    return mapped.astype(float)
