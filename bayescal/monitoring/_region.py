"""Confidence sequences of slope and offset from a history of monitored rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["History", "Region"]

#: Width and ends of the cells of log odds in which rows are counted.
_WIDTH, _LARGEST = 0.05, 15.0
_CELLS = int(2 * _LARGEST / _WIDTH)
#: Slopes are searched in [exp(-4), exp(4)], offsets in [-20, 20].
_LOG_SLOPES, _OFFSETS = 4.0, 20.0


class History:
    """Weights of both labels in cells of log odds, and mean log odds of the cells."""

    def __init__(self) -> None:
        self.counts = np.zeros((2, _CELLS))
        self.sums = np.zeros((2, _CELLS))

    def add(self, log_odds: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> None:
        """Add rows with finite log odds (n,), labels (n,) of 0 and 1, and weights (n,)."""
        cell = np.clip((log_odds + _LARGEST) / _WIDTH, 0, _CELLS - 1).astype(int)
        index = cell + _CELLS * y.astype(int)
        mass = np.ones(len(y)) if weights is None else weights
        self.counts += np.bincount(index, mass, 2 * _CELLS).reshape(2, -1)
        self.sums += np.bincount(index, mass * log_odds, 2 * _CELLS).reshape(2, -1)

    def terms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean log odds (m,), signs 1 - 2 y (m,) and weights (m,) of the cells used."""
        used = self.counts > 0
        sign = np.broadcast_to(np.array([[1.0], [-1.0]]), used.shape)
        return self.sums[used] / self.counts[used], sign[used], self.counts[used]


class Region:
    """All slopes and offsets that the rows so far do not refute at a level.

    By Ville's inequality the maps logit q = a logit p + b whose likelihood ratio to p is at least
    alpha times that of the mixture contain the true one, at all times together, with probability
    1 - alpha. The log likelihood is concave, so the region is convex.
    """

    def __init__(self, history: History, log_threshold: float) -> None:
        self._log_odds, self._sign, self._weights = history.terms()
        self._at_truth = self._weights @ np.logaddexp(0, self._sign * self._log_odds)
        self._threshold = log_threshold

    def _log_ratio(self, slope: float, offset: float) -> float:
        line = self._sign * (slope * self._log_odds + offset)
        return float(self._at_truth - self._weights @ np.logaddexp(0, line))

    def slope(self) -> tuple[float, float]:
        """Find the least and the greatest slope in the region, NaN if it is empty."""

        def profile(log_slope: float) -> float:
            slope = float(np.exp(log_slope))
            return _maximize(lambda b: self._log_ratio(slope, b), -_OFFSETS, _OFFSETS)[1]

        low, high = self._ends(profile, -_LOG_SLOPES, _LOG_SLOPES)
        return float(np.exp(low)), float(np.exp(high))

    def offset(self) -> tuple[float, float]:
        """Find the least and the greatest offset in the region, NaN if it is empty."""

        def profile(offset: float) -> float:
            greatest = float(np.exp(_LOG_SLOPES))
            return _maximize(lambda a: self._log_ratio(a, offset), 0.0, greatest)[1]

        return self._ends(profile, -_OFFSETS, _OFFSETS)

    def _ends(
        self, profile: Callable[[float], float], low: float, high: float
    ) -> tuple[float, float]:
        """Find where a unimodal function crosses the threshold; infinite beyond the bounds."""
        from scipy.optimize import brentq

        def excess(x: float) -> float:
            return profile(x) - self._threshold

        middle, best = _maximize(profile, low, high)
        if best < self._threshold:
            return float("nan"), float("nan")
        left = -np.inf if excess(low) >= 0 else float(brentq(excess, low, middle, xtol=1e-6))
        right = np.inf if excess(high) >= 0 else float(brentq(excess, middle, high, xtol=1e-6))
        return left, right


def _maximize(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Find where a unimodal function is greatest on an interval, and its value there."""
    from scipy.optimize import minimize_scalar

    result = minimize_scalar(lambda x: -function(x), bounds=(low, high), method="bounded")
    return float(result.x), float(-result.fun)
