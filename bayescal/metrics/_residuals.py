"""Outcomes as unit vectors, less the probabilities of all classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal.metrics.inputs import Predictions


def as_rows(probs: Any, xp: Any = np) -> Any:
    """Return probabilities (n, k), of P(y = 1) as of two classes."""
    return probs if probs.ndim == 2 else xp.stack([1 - probs, probs], axis=1)


def residuals(data: Predictions, xp: Any = np) -> Any:
    """Return outcomes less probabilities, (n, k)."""
    probs = as_rows(data.probs, xp)
    return (data.y[:, None] == xp.arange(probs.shape[1])).astype(probs.dtype) - probs


def lengths(difference: Any, distance: str, xp: Any) -> Any:
    """Return the lengths (...) of differences (..., k)."""
    if distance == "total_variation":
        return xp.abs(difference).sum(axis=-1) / 2
    squares = (difference**2).sum(axis=-1)
    return xp.where(squares > 0, xp.sqrt(xp.where(squares > 0, squares, 1)), 0)
