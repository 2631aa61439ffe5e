"""Checks that several figures share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.checks import as_numpy, check_finite, check_weights
from bayescal._core.counts import as_counts

#: One array, or several by name.
Arrays = ArrayLike | Mapping[str, ArrayLike]


def read_models(probs: Arrays, label: str | None) -> list[tuple[str | None, np.ndarray]]:
    """Return names and predictions of one model, or of the models in a mapping."""
    if not isinstance(probs, Mapping):
        return [(label, as_numpy(probs, "probs"))]
    if label is not None:
        raise ValueError("label must be left out where probs is a mapping: its keys are the labels")
    if not probs:
        raise ValueError("probs must not be an empty mapping")
    return [(str(name), as_numpy(array, f"probs[{name!r}]")) for name, array in probs.items()]


def read_vector(value: ArrayLike, name: str, size: str = "n") -> np.ndarray:
    """Return a finite float64 vector; messages call its length ``size``."""
    array = as_numpy(value, name)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape ({size},) with {size} > 0, got {array.shape}")
    check_finite(array, name)
    return array.astype(np.float64)


def read_counts(weights: ArrayLike | None, predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return for how many cases each row (n,) stands."""
    return as_counts(check_weights(weights, len(y), "weights", match="probs"), predicted, y)
