"""Calibration by an average over the nearest rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from bayescal._core.arrays import XArray, device, namespace
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.neighborhood.base import (
    Assumption,
    Averages,
    DistinctRows,
    NeighborhoodCalibrator,
    floored_log,
    merge,
)
from bayescal.calibrators.neighborhood.search import Index, neighbor_means, sorted_means
from bayescal.data.checks import check_choice, check_count
from bayescal.data.rows import Rows, Source

#: Relative changes of probabilities below this have a series of this many terms, to full precision.
_SERIES, _TERMS = 0.1, 16
_CANDIDATES = 2 ** np.arange(5, 13)


@dataclass(eq=False, repr=False)
class KNN(NeighborhoodCalibrator):
    r"""Nearest-neighbor calibration: subtract the mean error of the nearest rows.

    .. math:: \hat c(p) = p - \frac{\sum_{i \in N(p)} w_i (p_i - y_i)}{\sum_{i \in N(p)} w_i},

    clipped to :math:`[\varepsilon, 1 - \varepsilon]` and normalized. The neighbors N are the rows
    of total weight k with the smallest divergence :math:`\operatorname{KL}(p \,\Vert\, p_i)` or
    distance :math:`\lVert p - p_i \rVert`, which have the largest :math:`p \cdot \ln p_i` or
    :math:`2 p \cdot p_i - \lVert p_i \rVert^2`.

    Parameters
    ----------
    k : "cv" or int, default "cv"
        Number of neighbors, as a sum of weights: a row of weight 2 counts twice. The last neighbor
        may count in part; rows that are equally distant share that part, so that the order of rows
        does not matter. A number larger than the weight of all rows means all rows. "cv" minimizes
        the log loss of ten folds, stratified by class, over the powers of two from 32 to 4096 that
        do not exceed that weight; of equally good numbers the largest.
    distance : {"kl", "euclidean"}
        With "kl", probabilities of zero are replaced by the smallest normal float32, 1.2e-38.

    Attributes
    ----------
    k_ : int
        Number of neighbors.

    Notes
    -----
    Distances that differ only by rounding are equal, so that equal rows always have equal
    distances.

    The state is ``points`` (m, c), the distinct rows of probabilities; ``observed`` (m, c), the
    proportions of the classes among their labels; ``point_weights`` (m,), ``k`` and ``crop``; and
    after cross-validation ``candidates`` and their mean log losses ``cv_losses``. A single row
    cannot be held out, so its in-sample loss is used.

    Fitting takes O(n**2 c) with cross-validation, for all k together; predicting q rows takes
    O(q n c). Distances are computed in float64 in blocks of 32 MiB; memory is O((n + q) c).

    References
    ----------
    K. Valk (2022), Calibration of multi-class probabilistic classifiers, University of Tartu,
    section 3.3.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.KNN(6).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.67, 0.25, 0.08]]
    """

    k: Literal["cv"] | int = "cv"
    distance: Literal["kl", "euclidean"] = "kl"
    assumption: Assumption = "errors"
    crop: float | None = None

    k_: int = field(init=False)

    def _check_options(self) -> None:
        if self.k != "cv":
            check_count(self.k, "k")
        check_choice(self.distance, "distance", ("kl", "euclidean"))
        super()._check_options()

    def _fit(self, rows: Source, seed: int) -> State:
        in_memory = rows.all()
        candidates = _CANDIDATES[: max(1, np.count_nonzero(rows.weight >= _CANDIDATES))]

        def held_out(entries: Rows, folds: np.ndarray) -> np.ndarray:
            total = np.zeros(len(candidates))
            for fold in range(folds.max() + 1):
                held = folds == fold
                index = self._index(merge(*(a[~held] for a in entries)))
                scores, labels, mass = (a[held] for a in entries)
                for part, means in neighbor_means(index, scores, candidates):
                    total += self._losses(means, scores[part], labels[part], mass[part])
            return total

        return self._choose("k", candidates, in_memory, held_out) | merge(*in_memory).state()

    def _averages(self, state: State, scores: np.ndarray) -> Averages:
        # A search is faster than sorting.
        index = self._index(DistinctRows.of_state(state))
        for part, means in neighbor_means(index, scores, state["k"].reshape(1)):
            yield part, means[0]

    def _width(self, state: State, scores: XArray) -> int:
        m, k = state["points"].shape
        return (8 + 6 * k) * m

    def _apply(self, state: State, scores: XArray) -> XArray:
        xp, points = namespace(scores), DistinctRows.of_state(state)
        # Products would cancel. So does the largest probability, which is one minus the others.
        change = points.probabilities - scores[:, None, :]
        classes = xp.arange(scores.shape[1], device=device(scores))
        largest = xp.argmax(scores, axis=1)[:, None, None] == classes
        others = xp.where(largest, xp.zeros_like(change), change)
        total = xp.sum(others, axis=2)
        if self.distance == "kl":
            change = xp.where(largest, -total[:, :, None], change)
            logs = floored_log(points.probabilities)
            closeness = -_divergences(scores[:, None, :], change, logs)
            scale = -xp.sum(scores * floored_log(scores), axis=1, keepdims=True)
        else:
            closeness = -xp.sum(others**2, axis=2) - total**2
            scale = 1 + xp.sum(scores**2, axis=1, keepdims=True)
        values = points.values(self.assumption)
        means = sorted_means(closeness, points.weights, values, state["k"], scale)
        return self._calibrated(scores, means, state["crop"])

    def _index(self, points: DistinctRows) -> Index:
        values, probs = points.values(self.assumption), points.probabilities
        if self.distance == "kl":
            keys = floored_log(probs).T
            return Index(keys, np.zeros_like(points.weights), 0.0, points.weights, values)
        return Index(2 * probs.T, -np.sum(probs**2, axis=1), 1.0, points.weights, values)


def _divergences(q: XArray, change: XArray, logs: XArray) -> XArray:
    """Compute Kullback-Leibler divergences of points q + change (n, m, k) from rows q (n, 1, k).

    They are sums of q (x - log(1 + x)) with x the relative change, by a series where x is small;
    ``logs`` (m, k) are the logarithms of the points.
    """
    xp = namespace(q)
    positive = q > 0
    base = xp.where(positive, q, xp.ones_like(q))
    x = change / base
    small = xp.abs(x) < _SERIES
    within = xp.where(small, x, xp.zeros_like(x))
    series = xp.zeros_like(x)
    for power in range(_TERMS, 1, -1):
        series = 1 / power - within * series
    terms = xp.where(small, within**2 * series, x - (logs - xp.log(base)))
    return xp.sum(xp.where(positive, q * terms, change), axis=2)
