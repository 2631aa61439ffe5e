"""Reliability diagrams of the classes, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import check_count
from bayescal.data.fitted import is_fitted
from bayescal.data.label_names import Classes
from bayescal.metrics import ece
from bayescal.plots._inputs import Inputs, Models, class_names, read_models
from bayescal.plots._panels import Panel, draw_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIXED = "kind", "label", "legend", "ax"


def classwise(
    probs: Models,
    *data: Any,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
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
    probs : array of shape (n, k), fitted model, or mapping from names to such
        One row of class probabilities per case, or what has ``predict_proba``: a calibrator or a
        classifier. A mapping draws several models of the same cases, with their errors in its
        order; classes are chosen by the mean error.
    *data
        The labels y, array of shape (n,); before them, where there is a model, what it predicts
        from: ``classwise(probs, y)``, ``classwise(model, X, y)``.
    y : array of shape (n,), optional
        The labels, by their name.
    weights : array of shape (n,), optional
        Non-negative case weights, see :func:`reliability`.
    classes : sequence of k labels or names, optional
        As :func:`bayescal.metrics.log_loss` reads them: labels in the order of the columns, or
        names of codes. By default those of the model, or those found; numbers are called
        "class 0", "class 1", ...
    inputs : {"probs", "logits"}
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
    reading: Any = {"y": y, "weights": weights, "classes": classes, "inputs": inputs}
    for own in probs.values() if isinstance(probs, Mapping) else [probs]:
        if not is_fitted(own) and np.ndim(own) != 2:
            raise ValueError(f"probs must have shape (n, k), got {np.shape(own)}")
    models = read_models(probs, data, "classwise", **reading)
    sizes = {own.data.probs.shape[1] for own in models}
    if len(sizes) != 1:
        raise ValueError(f"probs must have one number of classes, got {sorted(sizes)}")
    (k,) = sizes
    first = models[0].data
    names = class_names(first.classes)
    labels, weights = first.y, first.weights
    arrays = {own.name: own.data.probs for own in models}
    how: Any = {"bins": options.get("bins", 10), "binning": options.get("binning", "equal_width")}
    how["weights"] = weights
    errors = np.array(
        [[ece(p[:, j], labels == j, **how) for p in arrays.values()] for j in range(k)]
    )
    shown = np.arange(k)
    if k > most:
        shown = np.argsort(-errors.mean(axis=1), kind="stable")[:most]
    panels = []
    for j in shown:
        given: Any = {name: array[:, j] for name, array in arrays.items()}
        shares = " / ".join(f"{error:.3f}" for error in errors[j])
        title = f"{names[j]}\nECE {shares}"
        panels.append(Panel(given if None not in given else given[None], labels == j, title))
    few = f"\n({len(shown)} of {k} classes, those with the largest error)"
    note = few if len(shown) < k else ""
    return draw_panels(panels, axes, columns, {**options, "weights": weights}, note)
