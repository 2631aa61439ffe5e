"""Reliability diagrams of the classes, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.checks import as_numpy, check_count
from bayescal.metrics import ece, log_loss
from bayescal.plots._inputs import Arrays
from bayescal.plots._reliability import reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Sizes of one diagram and of the labels around all, in inches.
_PANEL, _LABELS = 1.6, 0.35
_FIXED = "kind", "label", "ax"


def classwise(
    probs: Arrays,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    classes: Sequence[object] | None = None,
    columns: int | None = None,
    max_classes: int = 12,
    axes: Axes | Sequence[Axes] | np.ndarray | None = None,
    **options: Any,
) -> np.ndarray:
    r"""Draw one small reliability diagram for each class: its probability against its frequency.

    The title of each has the class's name and its expected calibration error, that of
    :math:`p_{ij}` and :math:`[y_i = j]` over all cases. Of more than ``max_classes`` classes those
    with the largest error are drawn, the largest first; as errors are averages over all cases,
    these are classes that are both frequent and badly calibrated.

    Parameters
    ----------
    probs : array of shape (n, k), or mapping from names to such arrays
        One row of class probabilities per case; a mapping draws several models of the same cases,
        with their errors in its order. Classes are chosen by the mean error.
    y : array of shape (n,)
        Class codes in {0, ..., k - 1}.
    weights : array of shape (n,), optional
        Non-negative case weights, see :func:`reliability`.
    classes : sequence of k names, optional
        By default "class 0", "class 1", ...
    columns : int, optional
        Diagrams side by side, by default at most three.
    max_classes : int, default 12
        How many classes are drawn at most.
    axes : array of matplotlib Axes, optional
        Where to draw, in order, as many as there are diagrams or more. By default on a new figure.
    **options
        As :func:`reliability`: ``bins``, ``binning``, ``method``, ``band``, ``level``,
        ``bandwidth``, ``seed``, and ``histogram``, here False by default. The errors in the titles
        have the same bins.

    Returns
    -------
    array of matplotlib Axes, shape (drawn,)

    Raises
    ------
    TypeError, ValueError
        As :func:`reliability`; if probabilities have shape (n,), models differ in their number of
        classes, or there are not k names or too few axes.

    References
    ----------
    M. Kull et al. (2019), Beyond temperature scaling: obtaining well-calibrated multi-class
    probabilities with Dirichlet calibration.

    Examples
    --------
    >>> probs = [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [0.25, 0.0, 0.75]]
    >>> axes = classwise(probs, [0, 1, 2, 2], classes=["ash", "birch", "cedar"], bins=1)
    >>> [ax.get_title() for ax in axes]
    ['ash\nECE 0.125', 'birch\nECE 0.000', 'cedar\nECE 0.125']
    """
    for name in _FIXED:
        if name in options:
            raise TypeError(f"{name} is not an option of classwise")
    most = check_count(max_classes, "max_classes")
    models = probs if isinstance(probs, Mapping) else {None: probs}
    if not models:
        raise ValueError("probs must not be an empty mapping")
    arrays = {name: _rows(array, y, weights) for name, array in models.items()}
    sizes = {array.shape[1] for array in arrays.values()}
    if len(sizes) != 1:
        raise ValueError(f"probs must have one number of classes, got {sorted(sizes)}")
    (k,) = sizes
    names = [f"class {j}" for j in range(k)] if classes is None else [str(c) for c in classes]
    if len(names) != k:
        raise ValueError(f"classes must be {k} names, got {len(names)}")
    labels = as_numpy(y, "y")
    how: Any = {"bins": options.get("bins", 10), "binning": options.get("binning", "equal_width")}
    how["weights"] = options["weights"] = weights
    errors = np.array(
        [[ece(p[:, j], labels == j, **how) for p in arrays.values()] for j in range(k)]
    )
    shown = np.arange(k)
    if k > most:
        shown = np.argsort(-errors.mean(axis=1), kind="stable")[:most]
    places = _places(axes, len(shown), columns, options.get("histogram", False))
    try:
        for ax, j in zip(places, shown, strict=True):
            given: Any = {name: array[:, j] for name, array in arrays.items()}
            if not isinstance(probs, Mapping):
                given = given[None]
            reliability(given, labels == j, ax=ax, **{"histogram": False, **options})
    except Exception:
        if axes is None:
            import matplotlib.pyplot as plt

            plt.close(places[0].figure)
        raise
    for place, (ax, j) in enumerate(zip(places, shown, strict=True)):
        shares = " / ".join(f"{error:.3f}" for error in errors[j])
        _simplify(ax, f"{names[j]}\nECE {shares}", first=place == 0)
        if axes is None:
            ax.set(xlabel="", ylabel="")
            ax.label_outer()
    if axes is None:
        # What the axes are is said once for all.
        binned = options.get("method", "binned") == "binned"
        x_label = "Mean predicted probability" if binned else "Predicted probability"
        if len(shown) < k:
            x_label += f"\n({len(shown)} of {k} classes, those with the largest error)"
        places[0].figure.supxlabel(x_label, fontsize="medium")
        places[0].figure.supylabel("Observed frequency", fontsize="medium")
    return places


def _rows(array: ArrayLike, y: ArrayLike, weights: ArrayLike | None) -> np.ndarray:
    """Return probabilities (n, k), checked with the labels."""
    rows = as_numpy(array, "probs")
    if rows.ndim != 2:
        raise ValueError(f"probs must have shape (n, k), got {rows.shape}")
    log_loss(rows, y, weights=weights)
    return np.clip(rows.astype(np.float64), 0, 1)


def _places(
    axes: Axes | Sequence[Axes] | np.ndarray | None,
    count: int,
    columns: int | None,
    histogram: bool,
) -> np.ndarray:
    """Return the axes (count,), of a new figure if none are given."""
    if axes is not None:
        flat = np.asarray(axes, dtype=object).ravel()
        if len(flat) < count:
            raise ValueError(f"axes must be at least {count}, got {len(flat)}")
        return flat[:count]
    import matplotlib.pyplot as plt

    across = (2 if count == 4 else 3) if columns is None else check_count(columns, "columns")
    across = min(across, count)
    down = -(-count // across)
    panel = _PANEL * (1.4 if histogram else 1.25)
    figure, grid = plt.subplots(
        down,
        across,
        figsize=(_PANEL * across + _LABELS, panel * down + _LABELS),
        layout="compressed",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    flat = grid.ravel()
    for ax in flat[count:]:
        figure.delaxes(ax)
    return flat[:count]


def _simplify(ax: Axes, title: str, first: bool) -> None:
    """Make a diagram fit for a small place; the first alone says what holds for all."""
    ax.set_title(title, fontsize="small")
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.tick_params(labelsize="small")
    for line in ax.lines:
        line.set_markersize(min(line.get_markersize(), 4))
    if first:
        return
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
    for strip in ax.child_axes:
        strip.set_ylabel("")
