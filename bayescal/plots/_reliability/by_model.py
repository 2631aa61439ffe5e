"""Reliability diagrams of several models, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Unpack

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.label_names import Classes
from bayescal.data.predictions import as_given
from bayescal.plots._inputs import Inputs, Models, ReliabilityOptions, error_of, read_models
from bayescal.plots._reliability.panels import Panel, draw_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIXED = "label", "legend", "ax"


def by_model(
    probs: Models,
    *data: object,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    kind: Literal["binary", "confidence"] | None = None,
    columns: int | None = None,
    axes: Axes | Sequence[Axes] | np.ndarray | None = None,
    **options: Unpack[ReliabilityOptions],
) -> np.ndarray:
    r"""Draw a small reliability diagram for every model, on the same scale.

    Use it if the lines of several models would cover one another in one :func:`reliability`
    diagram. The title of a diagram has the model's name and its expected calibration error.

    Parameters
    ----------
    probs : mapping from names to arrays of shape (n,) or (n, k), or to fitted models
        Predictions or models, see :func:`reliability`; a single one needs no name.
    *data
        The labels y, array of shape (n,), preceded for models by the data that they predict from:
        ``by_model(probs, y)``, ``by_model(models, X, y)``.
    y : array of shape (n,), optional
        The labels, passed by keyword.
    weights : array of shape (n,), optional
        Non-negative row weights.
    classes, inputs : optional
        The labels in column order, and what ``probs`` contain: {"probs", "logits"}.
    kind : {"binary", "confidence"}, optional
        What is predicted, see :func:`reliability`.
    columns : int, optional
        Number of diagrams side by side, by default at most three.
    axes : array of matplotlib Axes, optional
        Where to draw, in order; at least as many as models. By default on a new figure.
    **options
        Options of :func:`reliability`: ``bins``, ``binning``, ``method``, ``band``, ``level``,
        ``bandwidth``, ``seed``, and ``histogram``, here False by default. The errors in the titles
        use the same bins and kind.

    Returns
    -------
    array of matplotlib Axes, shape (models,)
        The axes of the diagrams.

    Raises
    ------
    TypeError, ValueError
        If :func:`reliability` would raise, or there are too few axes.

    See Also
    --------
    reliability : One diagram of several models.
    classwise : One diagram for every class.

    References
    ----------
    E. R. Tufte (1990), Envisioning Information: small multiples.

    Examples
    --------
    >>> axes = by_model({"raw": [0.1, 0.3, 0.9, 0.7], "flat": [0.75] * 4}, [0, 1, 1, 1], bins=2)
    >>> [ax.get_title() for ax in axes]
    ['raw\nECE 0.250', 'flat\nECE 0.000']
    """
    for name in _FIXED:
        if name in options:
            raise TypeError(f"{name} is not an option of by_model")
    models = read_models(probs, data, "by_model", y, weights, classes, inputs)
    bins, binning = options.get("bins", 10), options.get("binning", "equal_width")
    panels = []
    for model in models:
        rows = model.data
        error = error_of(rows, bins=bins, binning=binning, kind=kind)
        title = f"ECE {error:.3f}" if model.name is None else f"{model.name}\nECE {error:.3f}"
        panels.append(Panel(as_given(rows.probs, rows.precision), rows.y, title))
    drawn = {**options, "kind": kind, "weights": models[0].data.weights}
    return draw_panels(panels, axes, columns, drawn)
