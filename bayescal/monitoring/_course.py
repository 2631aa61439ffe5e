"""The evidence over time, thinned evenly so that its size is bounded."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Twice as many points are kept at most.
_POINTS = 512


class Course:
    """The evidence after rows whose number is a multiple of a power of two."""

    def __init__(self) -> None:
        self._stride = 1
        self._points: list[tuple[int, float]] = []

    def add(self, first: int, values: np.ndarray) -> None:
        """Add the evidence (n,) after rows from ``first`` on."""
        while (first + len(values)) // self._stride > 2 * _POINTS:
            self._stride *= 2
            self._points = [point for point in self._points if point[0] % self._stride == 0]
        begin = -first % self._stride
        rows = range(begin, len(values), self._stride)
        self._points += [(first + i, float(values[i])) for i in rows]

    @property
    def rows(self) -> list[int]:
        """The rows of the points."""
        return [row for row, _ in self._points]

    @property
    def values(self) -> list[float]:
        """The evidence at the points."""
        return [value for _, value in self._points]

    def state(self) -> dict[str, Any]:
        """Return the points as lists, with None for infinite evidence."""
        values = [None if np.isinf(value) else value for value in self.values]
        return {"stride": self._stride, "rows": self.rows, "values": values}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that :meth:`state` returned."""
        self._stride = int(state["stride"])
        values = [np.inf if value is None else float(value) for value in state["values"]]
        self._points = [*zip(map(int, state["rows"]), values, strict=True)]
