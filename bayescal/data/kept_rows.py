"""Rows of a fit that are kept until its report is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayescal._core.numerics import effective_size

__all__ = ["KeptRows", "keep_rows"]

#: Rows, and numbers at most, that are kept of a fit.
_ROWS, _NUMBERS = 2048, 1 << 18


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Some rows of a fit as they were given, drawn evenly, and the size of all."""

    rows: np.ndarray
    codes: np.ndarray
    weights: np.ndarray
    #: Where they stand among all rows of positive weight.
    places: np.ndarray
    #: The number of all rows, the sum of their weights, that of squares, and whether all weights
    #: are whole.
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


def keep_rows(rows: Any, codes: np.ndarray, weights: np.ndarray | None) -> KeptRows:
    """Return what is kept of rows (n, d) of positive weight, or equal ones, of any library."""
    n, most = len(codes), max(1, min(_ROWS, _NUMBERS // max(1, rows.shape[1])))
    if n > most:
        draw = np.random.default_rng(0).choice
        places = np.sort(draw(n, most, replace=False, shuffle=False))
        rows = rows[places]
    else:
        places = np.arange(n)
    size = float(n), float(n), True
    if weights is not None:
        whole = bool((weights == np.floor(weights)).all())
        size = float(weights.sum()), float(weights @ weights), whole
    own = np.ones(len(places)) if weights is None else weights[places]
    return KeptRows(np.array(rows), codes[places], own, places, n, *size)
