"""Rows of scores with labels and weights, and sums over them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

__all__ = ["Rows", "Sums"]

#: What one pass over rows adds up: arrays by name.
Sums: TypeAlias = dict[str, np.ndarray]


class Rows(NamedTuple):
    """Scores (n, k), labels as positions among the classes (n,), and weights (n,)."""

    scores: Any
    y: np.ndarray
    weights: np.ndarray

    def take(self, rows: Any) -> Rows:
        """Select rows by a mask, positions or a slice."""
        return Rows(*(column[rows] for column in self))
