"""Reliability diagrams of several models, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.label_names import Classes
from bayescal.metrics import ece
from bayescal.plots._inputs import Inputs, Models, read_models
from bayescal.plots._panels import Panel, draw_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIXED = "label", "legend", "ax"


def by_model(
    probs: Models,
    *data: Any,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    kind: str | None = None,
    columns: int | None = None,
    axes: Axes | Sequence[Axes] | np.ndarray | None = None,
    **options: Any,
) -> np.ndarray:
    r"""Draw one small reliability diagram for each model, on the same scale.

    Where lines of several models would cover each other in one :func:`reliability` diagram. The
    title of each has the model's name and its expected calibration error.

    Parameters
    ----------
    probs : mapping from names to arrays of shape (n,) or (n, k), or to fitted models
        As :func:`reliability`; also one of them without a name.
    *data
        The labels y, array of shape (n,); before them, where there is a model, what it predicts
        from: ``by_model(probs, y)``, ``by_model(models, X, y)``.
    y : array of shape (n,), optional
        The labels, by their name.
    weights, classes, inputs, kind : optional
        As :func:`reliability`.
    columns : int, optional
        Diagrams side by side, by default at most three.
    axes : array of matplotlib Axes, optional
        Where to draw, in order, as many as there are models or more. By default on a new figure.
    **options
        As :func:`reliability`: ``bins``, ``binning``, ``method``, ``band``, ``level``,
        ``bandwidth``, ``seed``, and ``histogram``, here False by default. The errors in the titles
        have the same bins and kind.

    Returns
    -------
    array of matplotlib Axes, shape (models,)

    Raises
    ------
    TypeError, ValueError
        As :func:`reliability`; if there are too few axes.

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
    reading: Any = {"y": y, "weights": weights, "classes": classes, "inputs": inputs}
    models = read_models(probs, data, "by_model", **reading)
    how: Any = {"bins": options.get("bins", 10), "binning": options.get("binning", "equal_width")}
    how["kind"] = kind
    panels = []
    for own in models:
        cases = own.second_of_fitted
        error = ece(cases.probs, cases.y, weights=cases.weights, **how)
        title = f"ECE {error:.3f}" if own.name is None else f"{own.name}\nECE {error:.3f}"
        panels.append(Panel(cases.probs, cases.y, title))
    drawn = {**options, "kind": kind, "weights": models[0].data.weights}
    return draw_panels(panels, axes, columns, drawn)
