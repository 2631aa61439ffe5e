"""The squared kernel calibration error of whole vectors of probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.checks import check_choice
from bayescal.metrics._decisions import as_rows
from bayescal.metrics._inputs import Predictions, check_positive, check_predictions
from bayescal.metrics._sums import DirectMetric, evaluate

__all__ = ["skce"]

#: Pairs of a block: what the processor's cache holds.
_BLOCK = 1 << 17
#: Up to so many cases the distances of all pairs are sorted at once.
_FEW = 1000
_CELLS = 1 << 16


def skce(
    probs: Any,
    y: Any,
    *,
    estimator: Literal["unbiased", "linear", "biased"] = "unbiased",
    kernel: Literal["exponential", "gaussian"] = "exponential",
    distance: Literal["total_variation", "euclidean"] = "total_variation",
    bandwidth: float | Literal["median"] = "median",
    weights: Any = None,
) -> float:
    r"""Return an estimate of the squared kernel calibration error.

    With e the outcomes as unit vectors, the means over pairs of cases of

    .. math:: h_{ij} = k(p_i, p_j)\, (e_i - p_i) \cdot (e_j - p_j), \qquad
        k(p, q) = \exp(-\|p - q\| / \nu) \text{ or } \exp(-\|p - q\|^2 / (2 \nu^2))

    "unbiased" is the mean over all pairs of different cases, "biased" that over all ordered pairs,
    also of a case with itself, which is never negative, and "linear" that over the pairs of cases
    1 and 2, 3 and 4, and so on, which depends on their order. The error is 0 if and only if the
    probabilities are calibrated as vectors, for every event that they determine. Unbiased
    estimates of a small error may be negative.

    Time O(n^2 k), or O(n k) if "linear" with a given bandwidth; memory O(n k).

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or one row of class probabilities per case.
    y : array of shape (n,)
        Labels in {0, 1}, or class codes in {0, ..., k - 1}.
    estimator : {"unbiased", "linear", "biased"}
        See above.
    kernel : {"exponential", "gaussian"}
        See above.
    distance : {"total_variation", "euclidean"}
        Half the sum of absolute differences, or the root of the sum of their squares.
    bandwidth : float or "median", default "median"
        :math:`\nu`, positive; or the median of the distances of all ordered pairs, with those of
        zero between a case and itself. If that median is zero, their mean, or else 1.
    weights : array of shape (n,), optional
        Non-negative case weights. Whole weights are counts: repeated cases are pairs, and other
        weights are shares, so that a case is no pair with itself. For "linear" the weight of a
        pair is the product, and whole weights are no repetitions.

    Returns
    -------
    float
        Squared, hence in squared units of probability; at most 2 in absolute value.

    Raises
    ------
    TypeError, ValueError
        As :func:`log_loss`; for unknown options; and if there is no pair of cases.

    References
    ----------
    D. Widmann, F. Lindsten and D. Zachariah (2019), Calibration tests in multi-class
    classification: a unifying framework.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.dirichlet(np.ones(3), size=200)
    >>> y = (probs.cumsum(axis=1) < rng.random((200, 1))).sum(axis=1)
    >>> sharper = probs**3 / (probs**3).sum(axis=1, keepdims=True)
    >>> skce(probs, y), skce(sharper, y)
    (-0.0004..., 0.0087...)
    """
    checked = check_predictions(probs, y, weights)
    metric = make_skce(
        checked, estimator=estimator, kernel=kernel, distance=distance, bandwidth=bandwidth
    )
    if estimator != "biased":
        total = checked.weights.sum() if checked.whole else len(checked.y)
        cases = len(checked.y) if estimator == "linear" else total
        if cases < 2:
            raise ValueError(f"skce with estimator {estimator!r} must have two cases, got one")
    return evaluate(metric, checked)


def make_skce(
    checked: Predictions,
    *,
    estimator: Any = "unbiased",
    kernel: Any = "exponential",
    distance: Any = "total_variation",
    bandwidth: Any = "median",
) -> KernelError:
    """Check options, and return the metric with the bandwidth for these predictions."""
    check_choice(estimator, "estimator", ("unbiased", "linear", "biased"))
    check_choice(kernel, "kernel", ("exponential", "gaussian"))
    check_choice(distance, "distance", ("total_variation", "euclidean"))
    if isinstance(bandwidth, str):
        check_choice(bandwidth, "bandwidth", ("median",))
        width = median_distance(as_rows(checked.probs), checked.weights, distance)
    else:
        width = check_positive(bandwidth, "bandwidth")
    return KernelError(estimator, kernel, distance, width)


@dataclass(frozen=True)
class KernelError(DirectMetric):
    """An estimate of the squared kernel calibration error, with a given bandwidth."""

    estimator: str
    kernel: str
    distance: str
    bandwidth: float

    def evaluate(self, data: Predictions, xp: Any) -> Any:
        probs, weights = as_rows(data.probs, xp), data.weights
        classes = xp.arange(probs.shape[1])
        residual = (data.y[:, None] == classes).astype(probs.dtype) - probs
        if self.estimator == "linear":
            n = len(probs) // 2 * 2
            first, second = slice(0, n, 2), slice(1, n, 2)
            gaps = _lengths(probs[first] - probs[second], self.distance, xp)
            products = (residual[first] * residual[second]).sum(axis=1)
            pairs = weights[first] * weights[second]
            total = pairs.sum()
            return (pairs * self.similarity(gaps, xp) * products).sum() / _positive(total, xp)
        every = self._all_pairs(probs, residual, weights, xp)
        total = weights.sum()
        if self.estimator == "biased":
            return every / total**2
        whole = (weights == xp.floor(weights)).all()
        same = xp.where(whole, weights, weights**2)
        own = (residual**2).sum(axis=1)
        return (every - same @ own) / _positive(total**2 - same.sum(), xp)

    def similarity(self, lengths: Any, xp: Any) -> Any:
        """Return the kernel at given distances."""
        scaled = lengths / self.bandwidth
        return xp.exp(-scaled) if self.kernel == "exponential" else xp.exp(-(scaled**2) / 2)

    def _all_pairs(self, probs: Any, residual: Any, weights: Any, xp: Any) -> Any:
        """Return the weighted sum over all ordered pairs, in blocks."""
        weighted = residual * weights[:, None]
        if xp is jnp:

            def one(row: Any) -> Any:
                point, own = row
                near = self.similarity(_lengths(point - probs, self.distance, jnp), jnp)
                return near @ (weighted @ own)

            return jax.lax.map(one, (probs, weighted), batch_size=16).sum()
        total = 0.0
        for first, last, lengths in _blocks(probs, self.distance):
            near = self.similarity(lengths, np)
            near *= weighted[first:last] @ weighted[first:].T
            # Pairs with later cases stand for themselves and their reverse.
            total += 2 * near.sum() - near[:, : last - first].sum()
        return total


def _positive(value: Any, xp: Any) -> Any:
    return xp.where(value > 0, value, 1)


def _lengths(difference: Any, distance: str, xp: Any) -> Any:
    """Return the lengths of differences (..., k)."""
    if distance == "total_variation":
        return xp.abs(difference).sum(axis=-1) / 2
    squares = (difference**2).sum(axis=-1)
    return xp.where(squares > 0, xp.sqrt(xp.where(squares > 0, squares, 1)), 0)


def _blocks(probs: np.ndarray, distance: str) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield distances of cases ``first`` to ``last`` from all since ``first``."""
    from scipy.spatial.distance import cdist

    n = len(probs)
    first = 0
    while first < n:
        last = min(n, first + max(_BLOCK // (n - first), 1))
        name = "cityblock" if distance == "total_variation" else "euclidean"
        lengths = cdist(probs[first:last], probs[first:], name)
        yield first, last, lengths / 2 if distance == "total_variation" else lengths
        first = last


def median_distance(probs: np.ndarray, weights: np.ndarray, distance: str) -> float:
    """Return the weighted median distance of all ordered pairs, or their mean if that is zero.

    Of many pairs histograms are made, the second within the cell of the first with the median:
    so its error is below 1e-9, and no distance is kept.
    """
    if len(probs) <= _FEW:
        median = _small_median(probs, weights, distance)
    else:
        low, high = 0.0, 1.0 if distance == "total_variation" else np.sqrt(2)
        below, half = 0.0, weights.sum() ** 2 / 2
        for _ in range(2):
            counts = below + np.cumsum(_histogram(probs, weights, distance, low, high))
            cell = min(int(np.searchsorted(counts, half)), _CELLS - 1)
            below = counts[cell - 1] if cell else below
            step = (high - low) / _CELLS
            low, high = low + cell * step, low + (cell + 1) * step
        median = (low + high) / 2 if high > 1e-8 else 0.0
    if median > 0:
        return float(median)
    total = 0.0
    for first, last, lengths in _blocks(probs, distance):
        own, others = weights[first:last], weights[first:]
        sums = lengths @ others
        total += own @ (2 * sums - lengths[:, : last - first] @ own)
    mean = total / weights.sum() ** 2
    return float(mean) if mean > 0 else 1.0


def _small_median(probs: np.ndarray, weights: np.ndarray, distance: str) -> float:
    parts = [(lengths, last - first) for first, last, lengths in _blocks(probs, distance)]
    found, mass, start = [], [], 0
    for lengths, size in parts:
        factor = 2 * np.outer(weights[start : start + size], weights[start:])
        factor[:, :size] /= 2
        found.append(lengths.ravel())
        mass.append(factor.ravel())
        start += size
    lengths, masses = np.concatenate(found), np.concatenate(mass)
    order = np.argsort(lengths)
    cumulative = np.cumsum(masses[order])
    half = cumulative[-1] / 2
    # Half of the mass may end between two distances.
    slack = 1e-12 * half
    lower = np.searchsorted(cumulative, half - slack)
    upper = min(np.searchsorted(cumulative, half + slack, side="right"), len(order) - 1)
    return float(lengths[order[lower]] + lengths[order[upper]]) / 2


def _histogram(
    probs: np.ndarray, weights: np.ndarray, distance: str, low: float, high: float
) -> np.ndarray:
    """Return the weight of ordered pairs whose distance lies in each cell of [low, high]."""
    counts = np.zeros(_CELLS + 2)
    scale = _CELLS / (high - low)
    equal = bool((weights == weights[0]).all())
    for first, last, lengths in _blocks(probs, distance):
        cell = (lengths - low) * scale
        np.clip(cell, -1, _CELLS, out=cell)
        place = np.floor(cell, out=cell).astype(np.intp) + 1
        size = last - first
        if equal:
            unit = weights[0] ** 2
            counts += 2 * unit * np.bincount(place.ravel(), minlength=_CELLS + 2)
            counts -= unit * np.bincount(place[:, :size].ravel(), minlength=_CELLS + 2)
            continue
        mass = 2 * np.outer(weights[first:last], weights[first:])
        mass[:, :size] /= 2
        counts += np.bincount(place.ravel(), mass.ravel(), minlength=_CELLS + 2)
    if high - low >= 1:
        # Rounding may take a distance past the ends of the whole range.
        counts[1] += counts[0]
        counts[-2] += counts[-1]
    return counts[1:-1]
