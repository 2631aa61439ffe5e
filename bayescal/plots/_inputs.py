"""Checks that several figures share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import as_numpy, check_finite, check_names
from bayescal.data.fitted import is_fitted, predictions
from bayescal.data.label_names import Classes, label_name
from bayescal.data.predictions import Predictions, Reading, read_arrays

#: One array, or several by name.
Arrays = ArrayLike | Mapping[str, ArrayLike]
#: Predictions or a fitted classifier, or several of them by name.
Models = Any
Inputs = Literal["probs", "logits"]


class Model(NamedTuple):
    """Predictions that are drawn: of cases with positive weight, the labels as codes."""

    name: str | None
    data: Predictions
    #: Whether a classifier predicted them.
    fitted: bool

    @property
    def second_of_fitted(self) -> Predictions:
        """Predictions, of a classifier of two classes those of the second alone."""
        if self.fitted and self.data.columns == 2:
            return self.data._replace(probs=self.data.probs[:, 1])
        return self.data


def read_models(
    probs: Models,
    data: tuple[Any, ...],
    called: str,
    *,
    y: ArrayLike | None,
    label: str | None = None,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> list[Model]:
    """Return the checked predictions of one model, or of the models in a mapping.

    ``data`` and ``y`` are what the user gave to the function ``called`` beside them.
    """
    several = isinstance(probs, Mapping)
    if several and label is not None:
        raise ValueError("label must be left out where probs is a mapping: its keys are the labels")
    if several and not probs:
        raise ValueError("probs must not be an empty mapping")
    if several:
        check_names(probs, "probs")
    given: Mapping[Any, Any] = probs if several else {label: probs}
    arrays, labels, classes = predictions(given, data, y, cast("Any", classes), called)
    if labels is None:
        raise TypeError(f"y must be given: {called}(probs, y) or {called}(model, X, y)")
    check_names(arrays, "probs")
    models = []
    for name, array in arrays.items():
        fitted = is_fitted(given[name])
        reading = Reading(classes, "probs" if fitted else inputs)
        known = read_arrays(array, labels, weights, reading)
        models.append(Model(str(name) if several else label, known, fitted))
    return models


def read_vector(value: ArrayLike, name: str, size: str = "n") -> np.ndarray:
    """Return a finite float64 vector; messages call its length ``size``."""
    array = as_numpy(value, name)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape ({size},) with {size} > 0, got {array.shape}")
    check_finite(array, name)
    return array.astype(np.float64)


def class_names(classes: Iterable[object]) -> list[str]:
    """Return what figures call classes: texts as they are, "class 0" what are numbers."""
    return [str(c) if isinstance(c, str) else f"class {label_name(c)}" for c in classes]
