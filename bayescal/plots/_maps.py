"""Maps of binary calibrators as functions of one number."""

from __future__ import annotations

import inspect

import numpy as np

from bayescal.plots._inputs import Predictor, class_names

#: Number of points of a curve, and largest number of searches for the interval of scores.
_POINTS, _ROUNDS = 1001, 30
#: Fraction of its change that a map makes in the interval; fraction of the interval drawn beyond
#: it.
_WAY, _BEYOND = 0.99, 0.05
#: Largest absolute score that is evaluated.
_FARTHEST = 1e9


class BinaryMap:
    """The probability of the second class as a function of probability, log odds or score."""

    def __init__(self, calibrator: Predictor) -> None:
        """Wrap an object with ``predict_proba``; without ``inputs`` it is a classifier."""
        classes = list(getattr(calibrator, "classes_", (0, 1)))
        if len(classes) != 2:
            raise ValueError(
                f"x must be of two classes, got {len(classes)}: simplex draws maps of three"
            )
        self.calibrator = calibrator
        self.event = class_names(classes)[1]
        self.inputs = str(getattr(calibrator, "inputs", "scores"))
        self.columns = int(getattr(calibrator, "n_features_in_", 1))
        if self.columns > (1 if self.inputs == "scores" else 2):
            raise ValueError(f"x must be a function of one score, got {self.columns} features")

    def __call__(self, at: np.ndarray) -> np.ndarray:
        """Compute the probabilities (m,) at numbers (m,)."""
        return np.asarray(self.calibrator.predict_proba(self._rows(at)))[:, 1]

    def ends(self, at: np.ndarray, level: float | None) -> tuple[np.ndarray, ...]:
        """Compute the ends (m,) of credible intervals, or return () if there are none."""
        interval = getattr(self.calibrator, "predict_interval", None)
        if level is None or interval is None:
            return ()
        options = {"level": level} if "level" in inspect.signature(interval).parameters else {}
        try:
            ends = interval(self._rows(at), **options)
        except AttributeError:  # raised by calibrators without a posterior
            return ()
        return tuple(np.asarray(end) for end in ends)

    def _rows(self, at: np.ndarray) -> np.ndarray:
        """Arrange numbers (m,) in the number of columns that the calibrator was fitted to."""
        if self.columns == 1:
            return at[:, None]
        return np.stack([1 - at, at] if self.inputs == "probs" else [-at / 2, at / 2], axis=1)


def common_scores(maps: list[BinaryMap]) -> np.ndarray:
    """Return the numbers (m,) at which maps with the same inputs are drawn."""
    if maps[0].inputs == "probs":
        even = np.linspace(0, 1, _POINTS)
        # More points near the ends, where maps may be steep.
        return np.union1d(even, np.sin(np.pi / 2 * even) ** 2)
    ends = np.array([_interval(map_) for map_ in maps])
    low, high = ends[:, 0].min(), ends[:, 1].max()
    more = _BEYOND * (high - low)
    return np.linspace(low - more, high + more, _POINTS)


def _interval(map_: BinaryMap) -> tuple[float, float]:
    """Return the ends of an interval in which a map makes most of its change, up and down."""
    farthest = np.arcsinh(_FARTHEST)
    at = np.sinh(np.linspace(-farthest, farthest, _POINTS))
    before = after = 0.0  # the map's change below and above the points
    for _ in range(_ROUNDS):
        way = before + np.append(0, np.cumsum(np.abs(np.diff(map_(at)))))
        total = way[-1] + after
        if total < 1e-6:
            return -1.0, 1.0
        first, last = np.searchsorted(way, [(1 - _WAY) / 2 * total, (1 + _WAY) / 2 * total])
        first, last = max(first - 1, 0), min(last, len(at) - 1)
        before, after = way[first], total - way[last]
        narrowed = at[last] - at[first] < 0.5 * (at[-1] - at[0])
        at = np.linspace(at[first], at[last], _POINTS)
        if not narrowed:
            break
    return float(at[0]), float(at[-1])
