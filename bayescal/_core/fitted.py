"""Predictions of fitted classifiers, where these are given in the place of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["is_fitted", "predictions"]


def is_fitted(value: Any) -> bool:
    """Return whether a value is a classifier or calibrator, not its predictions."""
    return hasattr(value, "predict_proba") and not isinstance(value, type)


def predictions(
    given: Mapping[Any, Any],
    data: tuple[Any, ...],
    y: Any,
    classes: Sequence[object] | None,
    called: str,
) -> tuple[dict[Any, Any], Any, Any]:
    """Return predictions in the place of fitted classifiers, labels, and the classes.

    ``data`` are the labels, unless they are ``y``; before them the features of classifiers.
    ``called`` is the function that the user has called.
    """
    fitted = [own for own in given.values() if is_fitted(own)]
    wanted = ("X", "y") if fitted else ("y",)
    rest = data if y is None else (*data, y)
    if len(rest) > len(wanted) or (fitted and len(rest) < 2):
        call = f"{called}(model, X, y)" if fitted else f"{called}(probs, y)"
        raise TypeError(f"data must be {' and '.join(wanted)}: {call}, got {len(rest)} of them")
    # First, as what is not fitted says so here.
    found = {
        name: own.predict_proba(rest[0]) if is_fitted(own) else own for name, own in given.items()
    }
    for own in fitted:
        wished: Any = fitted[0].classes_ if classes is None else classes
        one, other = (np.asarray(part).tolist() for part in (wished, own.classes_))
        # Codes may be given names, and their number says nothing new.
        k = one if isinstance(one, int) else len(one)
        if one != other and (classes is None or other != list(range(k))):
            raise ValueError(f"fitted classifiers must have the classes {one}, got {other}")
    classes = fitted[0].classes_ if fitted and classes is None else classes
    return found, rest[-1] if rest else None, classes
