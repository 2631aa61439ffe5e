"""Compare two methods on the same rows: mean difference, standard error, and verdict."""

from __future__ import annotations

from typing import Any

import numpy as np


def paired(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    """Compute the mean of first - second over rows (n,), and its standard error.

    Examples
    --------
    >>> paired(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 2.0, 2.0, 4.0]))["difference"]
    0.5
    """
    differences = np.asarray(first, float) - np.asarray(second, float)
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return {"difference": float(differences.mean()), "error": float(error)}


def verdict(comparison: dict[str, Any], num_errors: float = 2.0) -> str:
    """Test whether the first is less: "holds", "fails", or "open" within two standard errors.

    For few rows, pass a quantile of Student's t as ``num_errors``.

    Examples
    --------
    >>> [verdict({"difference": d, "error": 0.1}) for d in (-0.3, -0.1, 0.3)]
    ['holds', 'open', 'fails']
    """
    if abs(comparison["difference"]) <= num_errors * comparison["error"]:
        return "open"
    return "holds" if comparison["difference"] < 0 else "fails"


def row_losses(probs: np.ndarray, y: np.ndarray, eps: float) -> np.ndarray:
    """Compute the log loss (n,) of each row of probabilities (n, k), clipped at eps.

    Examples
    --------
    >>> row_losses(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0, 1]), 1e-15).round(2).tolist()
    [0.69, 34.54]
    """
    return -np.log(np.clip(probs[np.arange(len(y)), y], eps, 1.0))
