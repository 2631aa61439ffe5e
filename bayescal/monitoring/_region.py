"""Confidence sequences of slope and offset from a history of monitored rows, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.numerics import find_root, sigmoid
from bayescal.monitoring._evidence import Evidence

#: Width and ends of the cells of log odds in which rows are counted.
_WIDTH, _LARGEST = 0.05, 15.0
_CELLS = int(2 * _LARGEST / _WIDTH)
#: Bounds between which slopes and offsets are searched. The best offset for a slope may be farther
#: away by what the slope changes log odds, and the best slope for an offset by what undoes it.
_BOUNDS = ((0.0, 50.0), (-20.0, 20.0))
_MAX_STEPS = 100
#: Number of looks at histories that are kept; at most twice as many.
_LOOKS = 32
#: Rows between the first looks.
_FIRST_LOOKS = 16


class Terms(NamedTuple):
    """Cells of rows: mean log odds (m,), signs 1 - 2 y (m,) and weights (m,)."""

    log_odds: np.ndarray
    sign: np.ndarray
    weights: np.ndarray


class Look(NamedTuple):
    """The counts of a history after some rows, and the evidence at that time."""

    row: int
    log_evidence: float
    #: Positions of the cells with rows, and the weights in them.
    cells: np.ndarray
    counts: np.ndarray


class LogOddsHistory:
    """Weights of both labels in cells of log odds, and mean log odds of the cells."""

    def __init__(self) -> None:
        self.counts = np.zeros(2 * _CELLS)
        self.sums = np.zeros(2 * _CELLS)
        #: The counts at some earlier rows, in order.
        self.looks: list[Look] = []

    def add(self, log_odds: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> None:
        """Add rows with finite log odds (n,), labels (n,) of 0 and 1, and weights (n,)."""
        cell = np.clip((log_odds + _LARGEST) / _WIDTH, 0, _CELLS - 1).astype(int)
        index = cell + _CELLS * y.astype(int)
        mass = np.ones(len(y)) if weights is None else weights
        self.counts += np.bincount(index, mass, 2 * _CELLS)
        self.sums += np.bincount(index, mass * log_odds, 2 * _CELLS)

    def look(self, row: int, log_evidence: float) -> None:
        """Keep the counts as they are after row number ``row``."""
        index = np.flatnonzero(self.counts)
        self.looks.append(Look(row, log_evidence, index, self.counts[index]))

    def terms(self) -> Terms:
        """Compute the terms of the log likelihood of all rows."""
        index = np.flatnonzero(self.counts)
        return self.terms_of(index, self.counts[index])

    def terms_since(self, row: int) -> Terms:
        """Compute the terms of all rows from ``row`` on, or from a look or beginning near it."""
        looks = [look for look in self.looks if look.counts.sum() < self.counts.sum()]
        nearest = min(looks, key=lambda look: abs(look.row + 1 - row), default=None)
        if nearest is None or row <= abs(nearest.row + 1 - row):
            return self.terms()
        counts = self.counts.copy()
        counts[nearest.cells] -= nearest.counts
        index = np.flatnonzero(counts > 1e-9)
        return self.terms_of(index, counts[index])

    def terms_of(self, index: np.ndarray, counts: np.ndarray) -> Terms:
        """Compute the terms of counts in cells, with the mean log odds that cells have now."""
        sign = np.where(index < _CELLS, 1.0, -1.0)
        return Terms(self.sums[index] / self.counts[index], sign, counts)

    def state(self) -> dict[str, Any]:
        """Return the cells that have rows, as lists."""
        used = np.flatnonzero(self.counts)
        cells, counts, sums = (part.tolist() for part in (used, self.counts[used], self.sums[used]))
        looks = [[*look[:2], look.cells.tolist(), look.counts.tolist()] for look in self.looks]
        return {"cells": cells, "counts": counts, "sums": sums, "looks": looks}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that :meth:`state` returned."""
        used = np.array(state["cells"], int)
        self.counts[used], self.sums[used] = state["counts"], state["sums"]
        self.looks = [
            Look(int(row), float(value), np.array(index, int), np.array(counts, float))
            for row, value, index, counts in state["looks"]
        ]


def look_stride(n: int, histories: int) -> int:
    """Compute the number of rows between looks at the histories, if there are n rows."""
    looks = max(4, _LOOKS // max(histories, 1))
    stride = _FIRST_LOOKS
    while n // stride > 2 * looks:
        stride *= 2
    return stride


class Line:
    """The log likelihood ratio of maps logit q = a logit p + b to p, as a function of (a, b).

    By Ville's inequality the maps whose likelihood ratio is at least alpha times that of the
    mixture contain the true one, at all times together, with probability 1 - alpha. The log
    likelihood is concave, so this region is convex.
    """

    def __init__(self, terms: Terms) -> None:
        self._log_odds, self._sign, self._weights = terms
        self._at_truth = self._weights @ np.logaddexp(0, self._sign * self._log_odds)
        self._range = np.array([self._log_odds.min(initial=0), self._log_odds.max(initial=0)])
        sizes = np.abs(self._log_odds)
        self._least_size = sizes.min(where=sizes > 0, initial=np.inf)
        # Searches begin where the last one ended.
        self._last = [1.0, 0.0]

    def value(self, parameters: Sequence[float]) -> float:
        """Compute the log likelihood ratio of slope and offset."""
        return float(self._at_truth - self._weights @ np.logaddexp(0, self._line(parameters)))

    def slopes(self, parameters: Sequence[float], coordinate: int) -> tuple[float, float]:
        """Compute the first two derivatives in the slope (0) or the offset (1)."""
        wrong = sigmoid(self._line(parameters))
        column = self._sign * self._log_odds if coordinate == 0 else self._sign
        terms = self._weights * column * wrong
        return -float(terms.sum()), -float((terms * column) @ (1 - wrong))

    def best(self, coordinate: int, parameters: Sequence[float]) -> list[float]:
        """Maximize over one coordinate by Newton's method, within its bounds."""
        point, (low, high) = list(parameters), _BOUNDS[coordinate]
        if coordinate == 1:
            undone = (1 - point[0]) * self._range
            low, high = low + undone.min(), high + undone.max()
            point[1] = min(max(point[1], low), high)
        else:
            high += abs(point[1]) / self._least_size
        for _ in range(_MAX_STEPS):
            first, second = self.slopes(point, coordinate)
            x = point[coordinate]
            low, high = (x, high) if first > 0 else (low, x)
            new = x - first / second if second < 0 else (low + high) / 2
            if not low <= new <= high:
                new = (low + high) / 2
            point[coordinate] = new
            if abs(new - x) <= 1e-9 * (1 + abs(x)):
                break
        return point

    def maximum(self, coordinate: int = 0) -> list[float]:
        """Find the most likely slope and offset, by the profile over one of them."""
        low, high = _BOUNDS[coordinate]
        # A derivative this small is rounding: equal log odds do not tell a slope from an offset.
        slack = 1e-12 * float(self._weights @ (1 + np.abs(self._log_odds)))

        def derivative(x: float) -> float:
            return self.slopes(self._at(coordinate, x), coordinate)[0]

        if derivative(low) <= slack:
            return self._at(coordinate, low)
        if derivative(high) >= -slack:
            return self._at(coordinate, high)
        return self._at(coordinate, find_root(derivative, low, high, xtol=1e-7))

    def _at(self, coordinate: int, x: float) -> list[float]:
        """Return the best point with this value of a coordinate."""
        point = list(self._last)
        point[coordinate] = x
        self._last = self.best(1 - coordinate, point)
        return self._last

    def ends(self, coordinate: int, threshold: float) -> tuple[float, float]:
        """Find the ends of all values of a coordinate whose ratio may reach a threshold.

        Infinite, or zero for the least slope, beyond the bounds; NaN if there are none.
        """

        def excess(x: float) -> float:
            return self.value(self._at(coordinate, x)) - threshold

        peak = self.maximum(coordinate)
        if self.value(peak) < threshold:
            return float("nan"), float("nan")
        low, high = _BOUNDS[coordinate]
        left, right, middle = (-np.inf if coordinate else 0.0), np.inf, peak[coordinate]
        if excess(low) < 0:
            left = find_root(excess, low, middle, xtol=1e-7)
        if excess(high) < 0:
            right = find_root(excess, middle, high, xtol=1e-7)
        return left, right

    def _line(self, parameters: Sequence[float]) -> np.ndarray:
        slope, offset = parameters
        return self._sign * (slope * self._log_odds + offset)


def advise(evidence: Evidence, history: LogOddsHistory | None, row: int, time: object) -> str:
    """Describe in words what is wrong and what to refit, with rows from about ``row`` on.

    Without a history of log odds, the evidence determines what is wrong.
    """
    since = f"with rows from about {row} on" + ("" if time is None else f" ({time})")
    if history is None:
        kinds = evidence.kind_weights()
        kind, slope, offset = max(kinds, key=lambda name: kinds[name]), None, None
    else:
        kind, slope, offset = likely_kind(history.terms_since(row))
    if kind == "offset":
        number = "" if offset is None else f" (offset {offset:+.2f})"
        return f"the share of outcomes has changed{number}: refit an offset {since}"
    if kind == "slope":
        if slope is None:
            return f"confidence is too high or too low: refit a temperature {since}"
        level = "high" if slope < 1 else "low"
        return f"confidence is too {level} (slope {slope:.2f}): refit a temperature {since}"
    number = "" if slope is None else f" (slope {slope:.2f}, offset {offset:+.2f})"
    return f"confidence and shares have changed{number}: recalibrate {since}, for example by Auto"


def likely_kind(terms: Terms) -> tuple[str, float, float]:
    """Choose the kind of error: "offset", "slope" or "both", with the slope and offset that fit.

    The choice is that of the Bayesian information criterion.
    """
    line, penalty = Line(terms), 0.5 * np.log(max(terms.weights.sum(), 1.0))
    points = {
        "offset": line.best(1, (1.0, 0.0)),
        "slope": line.best(0, (1.0, 0.0)),
        "both": line.maximum(),
    }
    score = {name: line.value(point) for name, point in points.items()}
    score["both"] -= penalty
    kind = max(score, key=lambda name: score[name])
    slope, offset = points[kind]
    return kind, slope, offset
