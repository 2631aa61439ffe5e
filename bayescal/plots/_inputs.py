"""Reading of the arguments that several figures share: predictions, models, labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypedDict

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal.data.checks import as_numpy, check_finite, check_names, naming
from bayescal.data.fitted import is_fitted, predictions
from bayescal.data.label_names import Classes, label_name
from bayescal.data.predictions import Predictions, Reading, read_arrays
from bayescal.metrics.calibration.ece import make_ece
from bayescal.metrics.sums import compute

#: One array, or several by name.
Arrays = ArrayLike | Mapping[str, ArrayLike]
Inputs = Literal["probs", "logits"]


class Predictor(Protocol):
    """A fitted classifier or calibrator."""

    def predict_proba(self, X: UserData, /) -> ArrayLike: ...


#: Predictions, a fitted classifier or calibrator, or a mapping from names to them.
Models: TypeAlias = ArrayLike | Predictor | Mapping[str, ArrayLike | Predictor]


class ReliabilityOptions(TypedDict, total=False):
    """Options of :func:`reliability` that small diagrams accept, too."""

    bins: int
    binning: Literal["equal_width", "equal_mass"]
    method: str
    band: str
    level: float | None
    bandwidth: float | None
    seed: int
    histogram: bool


class Model(NamedTuple):
    """Checked predictions of one model: rows with positive weight, labels as integer codes."""

    name: str | None
    data: Predictions


def by_label(given: UserData, argument: str, label: str | None) -> dict[object, UserData]:
    """Return the values of a mapping by their names, or any other value by its label."""
    if not isinstance(given, Mapping):
        return {label: given}
    if label is not None:
        raise ValueError(
            f"label must be left out where {argument} is a mapping: its keys are the labels"
        )
    if not given:
        raise ValueError(f"{argument} must not be an empty mapping")
    check_names(given, argument)
    return {**given}


def read_models(
    probs: Models,
    data: tuple[object, ...],
    called: str,
    y: ArrayLike | None,
    weights: ArrayLike | None,
    classes: Classes,
    inputs: Inputs,
    label: str | None = None,
    second: bool = True,
) -> list[Model]:
    """Check the predictions of one model, or of the models in a mapping.

    ``data`` and ``y`` are the further arguments of the public function ``called``; ``second`` tells
    whether two columns are read as P(second class).
    """
    several, given = isinstance(probs, Mapping), by_label(probs, "probs", label)
    arrays, labels, classes = predictions(given, data, y, classes, called)
    if labels is None:
        raise TypeError(f"y must be given: {called}(probs, y) or {called}(model, X, y)")
    check_names(arrays, "probs")
    models = []
    for name, array in arrays.items():
        fitted = is_fitted(given[name])
        reading = Reading(classes, "probs" if fitted else inputs, second=second)
        with naming(name if several else None):
            checked = read_arrays(array, labels, weights, reading)
        models.append(Model(str(name) if several else label, checked))
    return models


def error_of(data: Predictions, **options: Any) -> float:
    """Compute :func:`bayescal.metrics.ece` of checked predictions, with these options."""
    return compute(make_ece(data.columns, **options), data)


def read_vector(value: ArrayLike, name: str, size: str = "n") -> np.ndarray:
    """Check a finite vector and convert it to float64; messages call its length ``size``."""
    array = as_numpy(value, name)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape ({size},) with {size} > 0, got {array.shape}")
    check_finite(array, name)
    return array.astype(np.float64)


def class_names(classes: Iterable[object]) -> list[str]:
    """Return the names of classes in figures: strings unchanged, numbers as "class 0"."""
    return [str(c) if isinstance(c, str) else f"class {label_name(c)}" for c in classes]
