"""A temperature for each bin of the confidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.arrays import AnyArray, namespace
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import differences, find_root
from bayescal.calibrators.base.calibrator import Calibrator, Keeps, State
from bayescal.calibrators.multiclass.binwise import (
    BINNINGS,
    SAME,
    TRACE,
    Binning,
    bin_edges,
    find_bin,
    hits,
    level_of_logits,
    softmax_below,
)
from bayescal.calibrators.multiclass.scale import fit_inverse
from bayescal.data.checks import check_choice, check_count
from bayescal.data.rows import Rows, Source

#: Range of the base-2 logarithms of inverse temperatures.
_MIN_EXPONENT, _MAX_EXPONENT = -1070.0, 1020.0


@dataclass(eq=False, repr=False)
class BinwiseTemperature(Calibrator):
    r"""Bin-wise temperature scaling: a temperature for each bin of the confidence.

    .. math:: \hat p = \operatorname{softmax}(z / T_b),
        \qquad b \text{ the bin of } \max_j \operatorname{softmax}(z)_j

    Parameters
    ----------
    objective : {"log_loss", "confidence"}
        The temperature of a bin minimizes the log loss of its rows (BTS), or makes their mean
        confidence equal to their accuracy (CTS), which determines it uniquely.
    bins : int, default 13
        Number of bins.
    binning : {"equal_mass", "equal_width"}
        Bins of equal weight, or of equal width in [0, 1]. Equal confidences share a bin. Bins are
        (lower, upper], and borders between bins of equal mass are half-way between confidences.

    Attributes
    ----------
    temperature_, bin_weights_ : arrays of shape (b,)
        Temperatures of the bins, and weights of their rows.
    limited_ : array of bool of shape (b,)
        Bins whose rows do not determine the temperature.
    edges_ : array of shape (b - 1,)
        Borders of the bins: the confidence c, or -log(1 - c) for bins of equal mass, where c is
        at most 1 - 1e-308, or 1 - 1e-38 for probabilities.

    Notes
    -----
    If m classes have the largest logit of a row, its accuracy is 1/m where the label is one of
    them. Some bins do not determine a temperature; ``limited_`` marks them. If all labels of a bin
    have the largest logit, or the accuracy exceeds the confidence c at temperature zero, the mean
    confidence becomes :math:`(w c + 1 / (2 k)) / (w + 1/2)` for rows of weight w, as if half a row
    more were correct with probability 1/k. If the accuracy is at most 1/k, or logits predict labels
    no better than chance, logits differ by at most 1e-9 at the temperature, so that the most
    probable class stays unique. A bin of uniform rows has temperature 1, and an empty bin has the
    temperature of all rows. Positive probabilities do not fall below 1e-304.

    O(n k) for each of about ten to thirty evaluations. ``objective_`` is the mean log loss, or the
    remaining calibration error of the bins.

    References
    ----------
    B. Ji et al. (2019), Bin-wise temperature scaling (BTS). Network calibration by weight scaling,
    anonymous submission to ICLR 2023 (CTS).

    Examples
    --------
    Three of four rows are correct: the confidence 3/4 has odds of 3.

    >>> import bayescal as bc
    >>> p, y = [[0.9, 0.1]] * 4, [0, 0, 0, 1]
    >>> for objective in ("log_loss", "confidence"):
    ...     print(bc.BinwiseTemperature(objective, bins=1).fit(p, y).temperature_.round(6))
    [2.]
    [2.]
    """

    objective: Literal["log_loss", "confidence"] = "log_loss"
    bins: int = 13
    binning: Binning = "equal_mass"

    temperature_: np.ndarray = field(init=False)
    bin_weights_: np.ndarray = field(init=False)
    limited_: np.ndarray = field(init=False)
    edges_: np.ndarray = field(init=False)

    keeps: ClassVar[Keeps] = "argmax"
    _domain = "logits"

    def _check_options(self) -> None:
        check_choice(self.objective, "objective", ("log_loss", "confidence"))
        check_count(self.bins, "bins")
        check_choice(self.binning, "binning", BINNINGS)

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        below = differences(scores)
        level = level_of_logits(below, self.binning)
        edges = bin_edges(level, weights, self.bins, self.binning)
        index = find_bin(edges, level, self.binning)
        count = len(edges) + 1
        bin_weights = np.bincount(index, weights, count)
        fit_bin = self._by_loss if self.objective == "log_loss" else self._by_confidence
        inverse, limited, status = np.empty(count), np.zeros(count, bool), Status.CONVERGED
        total = 0.0
        filled = bin_weights > 0
        # Sort by bin, so that the rows of a bin are contiguous.
        order = np.argsort(index, kind="stable")
        for b, part in enumerate(np.split(order, np.cumsum(np.bincount(index, minlength=count)))):
            if len(part) > 0:
                inverse[b], loss, limited[b], ended = fit_bin(below[part], y[part], weights[part])
                total, status = total + loss, max(status, ended)
        if not filled.all():
            inverse[~filled] = fit_bin(below, y, weights)[0]
            limited[~filled] = True
        with np.errstate(over="ignore"):
            temperature = 1 / inverse
        return {
            "edges": edges,
            "inverse": inverse,
            "temperature": temperature,
            "bin_weights": bin_weights,
            "limited": limited,
            "objective": np.asarray(total / weights.sum()),
            "status": np.asarray(int(status)),
        }

    def _apply(self, state: State, scores: AnyArray) -> AnyArray:
        xp, below = namespace(scores), differences(scores)
        index = find_bin(state["edges"], level_of_logits(below, self.binning), self.binning)
        most = float(xp.finfo(below.dtype).max)
        inverse = xp.take(xp.minimum(state["inverse"], most), index, axis=0)
        return softmax_below(below * inverse[:, None], below)

    def _by_loss(
        self, below: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[float, float, bool, Status]:
        """Compute the inverse temperature, the sum of log losses, whether limited, and a status."""
        label = below[np.arange(len(y)), y]
        if (label == 0).all():
            inverse, _ = _inverse_at(below, weights, 1.0)
            with np.errstate(over="ignore"):
                sums = np.exp(below * inverse).sum(axis=1)
            return inverse, float(weights @ np.log(sums)), True, Status.CONVERGED
        minimum, least = fit_inverse(Rows(below, y, weights)), _least_inverse(below)
        # The inverse of subnormal logits may be infinite, which would give NaN.
        inverse = min(max(minimum.x, least), 2.0**_MAX_EXPONENT)
        return inverse, minimum.value, minimum.x < least, minimum.status

    def _by_confidence(
        self, below: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[float, float, bool, Status]:
        """Compute the inverse temperature, the sum of gaps, whether limited, and a status."""
        accuracy = float(weights @ hits(below == 0, y) / weights.sum())
        inverse, limited = _inverse_at(below, weights, accuracy)
        gap = abs(accuracy - _mean_confidence(below, weights)(inverse)) * weights.sum()
        return inverse, float(gap), limited, Status.CONVERGED


def _least_inverse(below: np.ndarray) -> float:
    """Compute the inverse temperature at which logits differ by at most 1e-9."""
    return TRACE / max(-float(below.min()), np.finfo(float).tiny / TRACE)


def _mean_confidence(below: np.ndarray, weights: np.ndarray) -> Callable[[float], float]:
    proportions = weights / weights.sum()
    columns = np.ascontiguousarray(below.T)

    def mean(inverse: float) -> float:
        with np.errstate(over="ignore", under="ignore"):
            return float(proportions @ (1 / np.exp(columns * inverse).sum(axis=0)))

    return mean


def _inverse_at(below: np.ndarray, weights: np.ndarray, wanted: float) -> tuple[float, bool]:
    """Find the inverse temperature with the wanted mean confidence, and whether it is limited."""
    k, weight = below.shape[1], weights.sum()
    highest = float(weights @ (1 / np.count_nonzero(below == 0, axis=1)) / weight)
    if highest - 1 / k <= SAME:
        return 1.0, True
    least = _least_inverse(below)
    if wanted <= 1 / k:
        return least, True
    highest_target = (weight * highest + 0.5 / k) / (weight + 0.5)
    target = min(wanted, highest_target)
    mean = _mean_confidence(below, weights)

    def excess(exponent: float) -> float:
        return mean(float(np.exp2(exponent))) - target

    # The mean confidence increases with the base-2 logarithm of the inverse temperature.
    low = high = float(np.clip(-np.log2(-below.min()), _MIN_EXPONENT, _MAX_EXPONENT))
    step = 1.0
    if excess(low) > 0:
        while low > _MIN_EXPONENT and excess(low) > 0:
            low, high, step = max(low - step, _MIN_EXPONENT), low, 2 * step
    else:
        while high < _MAX_EXPONENT and excess(high) < 0:
            low, high, step = high, min(high + step, _MAX_EXPONENT), 2 * step
    if excess(low) >= 0 or excess(high) <= 0:
        end = float(np.exp2(low if excess(low) >= 0 else high))
        return max(end, least), True
    inverse = float(np.exp2(find_root(excess, low, high, xtol=1e-13)))
    return max(inverse, least), wanted > highest_target or inverse < least
