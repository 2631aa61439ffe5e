"""Rows of a fit that are kept for its report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayescal._core.arrays import Array
from bayescal._core.numerics import effective_size

#: Maximal numbers of rows and of scores that are kept.
_MAX_ROWS, _MAX_NUMBERS = 2048, 1 << 18


@dataclass(frozen=True, eq=False)
class KeptRows:
    """A sample of the rows of a fit in the user's units, and the size of all rows."""

    rows: np.ndarray
    codes: np.ndarray
    weights: np.ndarray
    #: Positions of the sample among all rows of positive weight.
    row_numbers: np.ndarray
    #: The number of all rows, the sum of their weights, the sum of squared weights, and whether all
    #: weights are integers.
    n: int
    weight: float
    squares: float
    whole: bool

    @property
    def all(self) -> bool:
        """Whether these are all rows."""
        return len(self.codes) == self.n

    @property
    def effective(self) -> float:
        """Effective sample size; the sum of weights that are counts."""
        return self.weight if self.whole else float(effective_size(self.weight, self.squares))


def keep_rows(rows: Array, codes: np.ndarray, weights: np.ndarray | None) -> KeptRows:
    """Sample rows (n, d) of any library with positive weights; None means equal weights."""
    n, count = len(codes), max(1, min(_MAX_ROWS, _MAX_NUMBERS // max(1, rows.shape[1])))
    if n > count:
        draw = np.random.default_rng(0).choice
        row_numbers = np.sort(draw(n, count, replace=False, shuffle=False))
        rows = rows[row_numbers]
    else:
        row_numbers = np.arange(n)
    size = float(n), float(n), True
    if weights is not None:
        whole = bool((weights == np.floor(weights)).all())
        size = float(weights.sum()), float(weights @ weights), whole
    kept = np.ones(len(row_numbers)) if weights is None else weights[row_numbers]
    return KeptRows(np.array(rows), codes[row_numbers], kept, row_numbers, n, *size)
