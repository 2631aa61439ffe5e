"""Reliability diagrams of the classes, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import check_count
from bayescal.data.fitted import is_fitted
from bayescal.data.label_names import Classes
from bayescal.data.predictions import Predictions, as_given
from bayescal.plots._inputs import (
    Inputs,
    Models,
    ReliabilityOptions,
    class_names,
    error_of,
    read_models,
)
from bayescal.plots._reliability.panels import Panel, draw_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIXED = "kind", "label", "legend", "ax"


def classwise(
    probs: Models,
    *data: object,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    columns: int | None = None,
    max_classes: int = 12,
    axes: Axes | Sequence[Axes] | np.ndarray | None = None,
    **options: Unpack[ReliabilityOptions],
) -> np.ndarray:
    r"""Draw a small reliability diagram for every class: its probability against its frequency.

    Use it to see which classes are badly calibrated. The title of a diagram has the class's name
    and its expected calibration error, of :math:`p_{ij}` and :math:`[y_i = j]` over all rows.
    If there are more than ``max_classes`` classes, those with the largest errors are drawn, in
    descending order. Since errors are averages over all rows, these classes are both frequent and
    badly calibrated.

    Parameters
    ----------
    probs : array of shape (n, k), fitted model, or mapping from names to them
        Class probabilities in rows, or an object with ``predict_proba``: a calibrator or a
        classifier. A mapping draws several models of the same rows, with their errors in its
        order; classes are chosen by the mean error.
    *data
        The labels y, array of shape (n,), preceded for models by the data that they predict from:
        ``classwise(probs, y)``, ``classwise(model, X, y)``.
    y : array of shape (n,), optional
        The labels, passed by keyword.
    weights : array of shape (n,), optional
        Non-negative row weights, see :func:`reliability`.
    classes : sequence of k labels or names, optional
        Labels in column order, or names of integer labels, as in
        :func:`bayescal.metrics.log_loss`. By default those of the model, or those in ``y``; numbers
        are called "class 0", "class 1", ...
    inputs : {"probs", "logits"}
        What ``probs`` contain.
    columns : int, optional
        Number of diagrams side by side, by default at most three.
    max_classes : int, default 12
        Largest number of classes to draw.
    axes : array of matplotlib Axes, optional
        Where to draw, in order; at least as many as diagrams. By default on a new figure.
    **options
        Options of :func:`reliability`: ``bins``, ``binning``, ``method``, ``band``, ``level``,
        ``bandwidth``, ``seed``, and ``histogram``, here False by default. The errors in the titles
        use the same bins.

    Returns
    -------
    array of matplotlib Axes, shape (drawn,)
        The axes of the diagrams.

    Raises
    ------
    TypeError, ValueError
        If :func:`reliability` would raise, probabilities have shape (n,), models differ in their
        number of classes, there are not k names, or there are too few axes.

    See Also
    --------
    reliability : One diagram of all classes, by their confidence.
    by_model : One diagram for every model.

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
    limit = check_count(max_classes, "max_classes")
    for model in probs.values() if isinstance(probs, Mapping) else [probs]:
        shape = None if is_fitted(model) else np.shape(cast("ArrayLike", model))
        if shape is not None and len(shape) != 2:
            raise ValueError(f"probs must have shape (n, k), got {shape}")
    models = read_models(probs, data, "classwise", y, weights, classes, inputs, second=False)
    sizes = {model.data.probs.shape[1] for model in models}
    if len(sizes) != 1:
        raise ValueError(f"probs must have one number of classes, got {sorted(sizes)}")
    (k,) = sizes
    first = models[0].data
    assert first.classes is not None
    names = class_names(first.classes)
    labels, weights = first.y, first.weights
    bins, binning = options.get("bins", 10), options.get("binning", "equal_width")

    def error(data: Predictions, j: int) -> float:
        binary = data._replace(probs=data.probs[:, j], y=(labels == j).astype(int))
        return error_of(binary, bins=bins, binning=binning)

    errors = np.array([[error(model.data, j) for model in models] for j in range(k)])
    shown = np.arange(k)
    if k > limit:
        shown = np.argsort(-errors.mean(axis=1), kind="stable")[:limit]
    panels = []
    for j in shown:
        given: Any = {
            model.name: as_given(model.data.probs[:, j], model.data.precision) for model in models
        }
        class_errors = " / ".join(f"{error:.3f}" for error in errors[j])
        title = f"{names[j]}\nECE {class_errors}"
        panels.append(Panel(given if None not in given else given[None], labels == j, title))
    few = f"\n({len(shown)} of {k} classes, those with the largest error)"
    note = few if len(shown) < k else ""
    return draw_panels(panels, axes, columns, {**options, "weights": weights}, note)
