"""The squared kernel calibration error of whole vectors of probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Literal, TypeAlias

import numpy as np

from bayescal._core.arrays import Array, ArrayLike
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.shapes import Float, Shaped
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_choice, check_positive
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading, as_rows
from bayescal.metrics.kernels.distances import lengths, median_distance, over_pairs, residuals
from bayescal.metrics.sums import DirectMetric, compute

#: Arrays by their axes.
PerSet: TypeAlias = 'Float[np.ndarray, " sets"]'
#: Pairs of a block that is multiplied by many columns.
_WIDE_BLOCK = 1 << 21
#: Outcomes that are drawn at once: 32 MiB.
_ELEMENTS = 1 << 22


@ignoring_underflow
def skce(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    estimator: Literal["unbiased", "linear", "biased"] = "unbiased",
    kernel: Literal["exponential", "gaussian"] = "exponential",
    distance: Literal["total_variation", "euclidean"] = "total_variation",
    bandwidth: float | Literal["median"] = "median",
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Estimate the squared kernel calibration error.

    With e the outcomes as unit vectors, the estimates are means over pairs of rows of

    .. math:: h_{ij} = k(p_i, p_j)\, (e_i - p_i) \cdot (e_j - p_j), \qquad
        k(p, q) = \exp(-\|p - q\| / \nu) \text{ or } \exp(-\|p - q\|^2 / (2 \nu^2))

    "unbiased" is the mean over all pairs of different rows. "biased" is the mean over all ordered
    pairs, including each row with itself, and never negative. "linear" is the mean over the pairs
    of rows 1 and 2, 3 and 4, and so on, and depends on their order. The error is 0 if and only if
    the probabilities are calibrated as vectors, for every event that they determine. Unbiased
    estimates of a small error may be negative.

    Time O(n^2 k), or O(n k) if "linear" with a given bandwidth; memory O(n k).

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,)
        Labels 0, ..., k - 1, or any other values (see ``classes``).
    estimator : {"unbiased", "linear", "biased"}
        See above.
    kernel : {"exponential", "gaussian"}
        See above.
    distance : {"total_variation", "euclidean"}
        Half the sum of absolute differences, or the root of the sum of their squares.
    bandwidth : float or "median", default "median"
        :math:`\nu`, positive; or "median", the median distance of all ordered pairs, including the
        zero distance of each row to itself. If it is at most 1e-8, the mean distance is used, or
        else 1.
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, and repeated rows form pairs. Other weights
        are proportions, and a row forms no pair with itself. For "linear" the weight of a pair is
        the product, and integers are not repetitions.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    float
        Squared, hence in squared units of probability; at most 2 in absolute value.

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise; for unknown options; and if there is no pair of rows.

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
    checked = as_predictions(probs, y, weights, Reading(classes, inputs))
    metric = make_skce(
        checked, estimator=estimator, kernel=kernel, distance=distance, bandwidth=bandwidth
    )
    if estimator != "biased":
        total = checked.weights.sum() if checked.whole else len(checked.y)
        cases = len(checked.y) if estimator == "linear" else total
        if cases < 2:
            raise ValueError(f"skce by {estimator!r} must have at least two rows, got one")
    return compute(metric, checked)


def make_skce(
    checked: Predictions,
    *,
    estimator: str = "unbiased",
    kernel: str = "exponential",
    distance: str = "total_variation",
    bandwidth: float | str = "median",
) -> KernelError:
    """Check options, and make the metric with the bandwidth for these predictions."""
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

    @property
    def range(self) -> tuple[float, float]:
        return 0.0 if self.estimator == "biased" else -2.0, 2.0

    def compute(self, data: Predictions, xp: ModuleType) -> Float[Array, ""]:
        if self.estimator != "linear":
            return self.compute_many(data, np.ones((len(data.y), 1)))[0]
        n = len(data.weights) // 2 * 2
        products = data.weights[0:n:2] * data.weights[1:n:2]
        return products @ self.pairs(data) / (products.sum() or 1.0)

    def compute_many(self, data: Predictions, factors: Shaped[np.ndarray, "rows sets"]) -> PerSet:
        if self.estimator == "linear":
            return super().compute_many(data, factors)
        weights = factors * data.weights[:, None]
        with_itself = weights if data.whole else weights * data.weights[:, None]
        all_pairs = self.quadratic_forms(data, weights)
        diagonal = self.diagonal(data) @ with_itself
        return self._mean(all_pairs, diagonal, weights.sum(axis=0), with_itself.sum(axis=0))

    def pairs(self, data: Predictions) -> Float[np.ndarray, " pairs"]:
        """Compute h for rows 1 and 2, rows 3 and 4, and so on."""
        probs, residual = as_rows(data.probs), residuals(data)
        n = len(probs) // 2 * 2
        first, second = slice(0, n, 2), slice(1, n, 2)
        gaps = lengths(probs[first] - probs[second], self.distance, np)
        return self.similarity(gaps) * (residual[first] * residual[second]).sum(axis=1)

    def diagonal(self, data: Predictions) -> Float[np.ndarray, " rows"]:
        """Compute h for each row with itself."""
        return (residuals(data) ** 2).sum(axis=1)

    def quadratic_forms(self, data: Predictions, factors: Float[np.ndarray, "rows sets"]) -> PerSet:
        """Compute the sums over all ordered pairs of h times both factors."""
        return self._forms(as_rows(data.probs), factors, residuals(data))

    def draw(self, data: Predictions, sets: int, rng: np.random.Generator) -> PerSet:
        """Compute "unbiased" or "biased" for sets of labels drawn from the predictions."""
        probs, weights = as_rows(data.probs), data.weights
        n, k = probs.shape
        shares = probs / probs.sum(axis=1, keepdims=True)
        trials = weights.astype(int) if data.whole else np.ones(n, int)
        scale = np.ones(n) if data.whole else weights
        squares = scale[:, None] * (1 - 2 * probs + (probs**2).sum(axis=1, keepdims=True))
        pairs, diagonal = [], []
        step = max(1, _ELEMENTS // (n * k))
        for first in range(0, sets, step):
            outcomes = rng.multinomial(trials, shares, (min(step, sets - first), n))
            drawn = outcomes * scale[:, None]
            excess = drawn - weights[:, None] * probs
            # Both residuals of two classes have the same size.
            excess = excess[..., 1:] * np.sqrt(2) if k == 2 else excess
            forms = self._forms(probs, excess.transpose(1, 2, 0).reshape(n, -1))
            pairs.append(forms.reshape(-1, len(drawn)).sum(axis=0))
            diagonal.append(np.einsum("snk,nk->s", drawn, squares))
        sums = np.concatenate(pairs), np.concatenate(diagonal)
        return self._mean(*sums, weights.sum(), scale @ weights)

    def _mean(
        self, all_pairs: PerSet, diagonal: PerSet, total: PerSet | float, removed: PerSet | float
    ) -> PerSet:
        """Divide sums over pairs by their weight; "unbiased" removes each row with itself.

        The mean is zero if rounding alone leaves any weight.
        """
        if self.estimator == "biased":
            return all_pairs / total**2
        remaining = total**2 - removed
        nonzero = remaining > 1e-12 * total**2
        return np.where(nonzero, all_pairs - diagonal, 0) / np.where(nonzero, remaining, 1)

    def _forms(
        self,
        probs: Float[np.ndarray, "rows classes"],
        columns: Float[np.ndarray, "rows sets"],
        residual: Float[np.ndarray, "rows classes"] | None = None,
    ) -> PerSet:
        """Compute the sums over all ordered pairs of both entries times the kernel or h."""

        def sum_block(first: int, last: int, gaps: Float[np.ndarray, "block later"]) -> PerSet:
            terms = self.similarity(gaps)
            if residual is not None:
                terms *= residual[first:last] @ residual[first:].T
            # A pair with a later row also stands for the reversed pair.
            terms[:, : last - first] /= 2
            return 2 * ((terms @ columns[first:]) * columns[first:last]).sum(axis=0)

        count = columns.shape[1]
        size = _WIDE_BLOCK if count > 8 else None
        return sum(over_pairs(probs, self.distance, sum_block, size), np.zeros(count))

    def similarity(self, gaps: Float[np.ndarray, " *pairs"]) -> Float[np.ndarray, " *pairs"]:
        """Compute the kernel at given distances."""
        scaled = gaps / self.bandwidth
        return np.exp(-scaled) if self.kernel == "exponential" else np.exp(-(scaled**2) / 2)
