"""Predictions of fitted classifiers, and labels in several columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal.data.checks import RANGE_TOLERANCE, SUM_TOLERANCE, as_numpy, check_finite
from bayescal.data.label_names import Classes, label_text

Name = TypeVar("Name")


def is_fitted(value: object) -> bool:
    """Return whether a value is a classifier or calibrator, not its predictions."""
    return hasattr(value, "predict_proba") and not isinstance(value, type)


def predictions(
    given: Mapping[Name, UserData],
    data: tuple[object, ...],
    y: object,
    classes: Classes,
    called: str,
) -> tuple[dict[Name, UserData], UserData, Classes]:
    """Replace fitted classifiers by their predictions; also return labels and classes.

    ``data`` are the features of classifiers and the labels, unless these are ``y``. ``called`` is
    the name of the function that the user called.
    """
    fitted = [model for model in given.values() if is_fitted(model)]
    expected = ("X", "y") if fitted else ("y",)
    rest = data if y is None else (*data, y)
    if len(rest) > len(expected) or (fitted and len(rest) < 2):
        model = "a fitted model with predict_proba"
        calls = {model: f"{called}(model, X, y)", "predictions": f"{called}(probs, y)"}
        call = calls.pop(model if fitted else "predictions")
        (other, other_call) = next(iter(calls.items()))
        raise TypeError(
            f"data must be {' and '.join(expected)}: {call}, got {len(rest)} arguments after the "
            f"first; for {other} call {other_call}"
        )
    # Predict first, because unfitted models raise here.
    results = {
        name: model.predict_proba(rest[0]) if is_fitted(model) else model
        for name, model in given.items()
    }
    for model in fitted:
        reference: Any = fitted[0].classes_ if classes is None else classes
        first, other = (np.asarray(part).tolist() for part in (reference, model.classes_))
        # Classes 0, ..., k - 1 may be renamed by ``classes``.
        k = first if isinstance(first, int) else len(first)
        if first != other and (classes is None or other != list(range(k))):
            raise ValueError(f"fitted classifiers must have the classes {first}, got {other}")
    classes = fitted[0].classes_ if fitted and classes is None else classes
    return results, rest[-1] if rest else None, classes


def read_label_rows(y: ArrayLike, weights: UserData = None) -> np.ndarray:
    """Read multi-label labels of any type as integers (n, labels): 0 in rows of weight zero."""
    dense = getattr(y, "toarray", None)  # sparse matrices of SciPy
    rows = as_numpy(y if dense is None else dense(), "y")
    if rows.ndim != 2:
        raise ValueError(f"y must have shape (n, labels), got {rows.shape}")
    used = np.ones(len(rows), bool) if weights is None else as_numpy(weights, "weights") != 0
    if used.shape == rows.shape[:1] and not used.all():
        rows = np.where(used[:, None], rows, 0)
    strange = (rows != 0) & (rows != 1)
    if strange.any():
        shares = rows.min() >= 0 and np.allclose(rows.sum(axis=1), 1)
        raise ValueError(
            f"y must hold zeros and ones, a column for each of the labels, got "
            f"{label_text(rows[strange][0])} in row {int(np.argwhere(strange)[0, 0])}"
            + (
                "; proportions are for calibrators of classes, such as AveragedBeta and "
                "StackedScaling"
                if shares
                else ""
            )
        )
    return rows.astype(np.int64)


def read_shares(y: ArrayLike, n: int, k: int) -> np.ndarray:
    """Read proportions (n, k) of outcomes, whose rows sum to one, in float64."""
    dense = getattr(y, "toarray", None)  # sparse matrices of SciPy
    shares = as_numpy(y if dense is None else dense(), "y").astype(np.float64)
    if shares.shape != (n, k):
        raise ValueError(
            f"y must have shape ({n},), or ({n}, {k}) with the proportion of each outcome, "
            f"got {shares.shape}"
        )
    check_finite(shares, "y")
    sums = shares.sum(axis=1)
    wrong = (np.abs(sums - 1) > SUM_TOLERANCE) | (shares < -RANGE_TOLERANCE).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"y must have shape (n,), got {shares.shape} with {shares[row].tolist()} in row "
            f"{row}, which are not proportions that sum to one; for multi-label data use "
            "MultiLabel and the metrics multilabel_ece, multilabel_ecce and hamming_loss"
        )
    return np.clip(shares, 0.0, 1.0)


def of_pairs(probs: UserData, name: str = "probs") -> UserData:
    """Convert scikit-learn's list of probabilities (n, 2) of labels, if given, to (n, labels)."""
    if not isinstance(probs, list | tuple) or not probs or np.ndim(probs[0]) != 2:
        return probs
    parts = [as_numpy(part, name) for part in probs]
    shapes = [part.shape for part in parts]
    if any(shape != (len(parts[0]), 2) for shape in shapes):
        raise ValueError(
            f"{name} must be of shape (n, labels), or a list with an array (n, 2) for each label, "
            f"got a list of shapes {shapes}"
        )
    return np.stack([part[:, 1] for part in parts], axis=1)
