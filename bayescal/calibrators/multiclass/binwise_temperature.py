"""A temperature for each bin of the confidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from bayescal._core.arrays import namespace
from bayescal._core.numerics import differences
from bayescal._core.optimise import Status
from bayescal.calibrators.base.calibrator import Calibrator, Keeps, State
from bayescal.calibrators.multiclass.binwise import (
    BINNINGS,
    SAME,
    TRACE,
    Binning,
    bin_edges,
    find_bin,
    softmax_below,
    top_class,
)
from bayescal.calibrators.multiclass.scale import fit_inverse
from bayescal.data.checks import check_choice, check_count
from bayescal.data.rows import Rows, Source

__all__ = ["BinwiseTemperature"]

#: Exponents of two between which inverse temperatures are searched.
_FROM, _TO = -1070.0, 1020.0


@dataclass(eq=False, repr=False)
class BinwiseTemperature(Calibrator):
    r"""Logits divided by the temperature of the bin that the row's confidence lies in.

    .. math:: \hat p = \operatorname{softmax}(z / T_b),
        \qquad b \text{ the bin of } \max_j \operatorname{softmax}(z)_j

    Parameters
    ----------
    objective : {"log_loss", "confidence"}
        What each bin's temperature does: minimize the log loss of its rows (BTS), or make their
        mean confidence equal to their accuracy (CTS), which one temperature does.
    bins : int, default 13
    binning : {"equal_mass", "equal_width"}
        Bins of equal weight, or of equal width in [0, 1]. Equal confidences share a bin; bins are
        (lower, upper], and borders between bins of equal mass lie half-way between confidences.

    Attributes
    ----------
    temperature_, bin_weights_ : arrays of shape (b,)
        Of each bin, the temperature and the weight of the rows in it.
    limited_ : array of bool of shape (b,)
        Where the rows could not decide the temperature.
    edges_ : array of shape (b - 1,)
        Between bins: the confidence c, or -log(1 - c) for bins of equal mass.

    Notes
    -----
    What rows cannot decide is decided as follows. Where all labels of a bin have the greatest
    logit, both objectives ask for temperature zero; and no temperature gives an accuracy above the
    confidence at temperature zero, c (less than 1 where greatest logits are tied). The mean
    confidence then becomes :math:`(w c + 1 / (2 k)) / (w + 1/2)` for rows of weight w, as if half a
    row more had been right with probability 1/k. An accuracy of 1/k or less, and logits that
    predict labels no better than chance, give a temperature at which no logits differ by more than
    1e-9, so that the most probable class stays the only one. A bin of uniform rows has the
    temperature 1, and an empty bin that of all rows. ``limited_`` says where any of this happened.
    Probabilities that were positive do not fall below 1e-304.

    O(n k) for each of some ten to thirty evaluations, and sorting. ``objective_`` is the mean log
    loss, or the calibration error that is left in the bins.

    References
    ----------
    B. Ji et al. (2019), Bin-wise temperature scaling (BTS). Network calibration by weight scaling,
    anonymous submission to ICLR 2023 (CTS).

    Examples
    --------
    Three of four rows are right: the confidence 3/4 has the odds 3.

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
        level = top_class(np.exp(below), self.binning).level
        edges = bin_edges(level, weights, self.bins, self.binning)
        place = find_bin(edges, level, self.binning)
        count = len(edges) + 1
        bin_weights = np.bincount(place, weights, count)
        fit_bin = self._by_loss if self.objective == "log_loss" else self._by_confidence
        inverse, limited, status = np.empty(count), np.zeros(count, bool), Status.CONVERGED
        total = 0.0
        filled = bin_weights > 0
        # Together the rows of a bin are neighbours in memory.
        order = np.argsort(place, kind="stable")
        for b, part in enumerate(np.split(order, np.cumsum(np.bincount(place, minlength=count)))):
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

    def _apply(self, state: State, scores: Any) -> Any:
        xp, below = namespace(scores), differences(scores)
        place = find_bin(state["edges"], top_class(xp.exp(below), self.binning).level, self.binning)
        most = float(xp.finfo(below.dtype).max)
        inverse = xp.take(xp.minimum(state["inverse"], most), place, axis=0)
        return softmax_below(below * inverse[:, None], below)

    def _by_loss(
        self, below: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[float, float, bool, Status]:
        """Return the inverse temperature, the sum of log losses, whether limited, and a status."""
        own = below[np.arange(len(y)), y]
        if (own == 0).all():
            inverse, _ = _inverse_at(below, weights, 1.0)
            with np.errstate(over="ignore"):
                sums = np.exp(below * inverse).sum(axis=1)
            return inverse, float(weights @ np.log(sums)), True, Status.CONVERGED
        found, least = fit_inverse(Rows(below, y, weights)), _least_inverse(below)
        # Of subnormal logits it may be infinite, and zero times that is not a number.
        inverse = min(max(found.x, least), 2.0**_TO)
        return inverse, found.value, found.x < least, found.status

    def _by_confidence(
        self, below: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[float, float, bool, Status]:
        """Return the inverse temperature, the sum of gaps, whether limited, and a status."""
        accuracy = float(weights @ (below.argmax(axis=1) == y) / weights.sum())
        inverse, limited = _inverse_at(below, weights, accuracy)
        gap = abs(accuracy - _mean_confidence(below, weights)(inverse)) * weights.sum()
        return inverse, float(gap), limited, Status.CONVERGED


def _least_inverse(below: np.ndarray) -> float:
    """Return what makes the logits differ by 1e-9 at most."""
    return TRACE / max(-float(below.min()), np.finfo(float).tiny / TRACE)


def _mean_confidence(below: np.ndarray, weights: np.ndarray) -> Callable[[float], float]:
    shares = weights / weights.sum()
    columns = np.ascontiguousarray(below.T)

    def mean(inverse: float) -> float:
        with np.errstate(over="ignore", under="ignore"):
            return float(shares @ (1 / np.exp(columns * inverse).sum(axis=0)))

    return mean


def _inverse_at(below: np.ndarray, weights: np.ndarray, wanted: float) -> tuple[float, bool]:
    """Return the inverse temperature at which the mean confidence is as wanted, and if limited."""
    from scipy import optimize

    k, weight = below.shape[1], weights.sum()
    highest = float(weights @ (1 / np.count_nonzero(below == 0, axis=1)) / weight)
    if highest - 1 / k <= SAME:
        return 1.0, True
    least = _least_inverse(below)
    if wanted <= 1 / k:
        return least, True
    most = (weight * highest + 0.5 / k) / (weight + 0.5)
    target = min(wanted, most)
    mean = _mean_confidence(below, weights)

    def excess(exponent: float) -> float:
        return mean(float(np.exp2(exponent))) - target

    # The mean confidence rises with the inverse, here with its logarithm to base two.
    low = high = float(np.clip(-np.log2(-below.min()), _FROM, _TO))
    step = 1.0
    if excess(low) > 0:
        while low > _FROM and excess(low) > 0:
            low, high, step = max(low - step, _FROM), low, 2 * step
    else:
        while high < _TO and excess(high) < 0:
            low, high, step = high, min(high + step, _TO), 2 * step
    if excess(low) >= 0 or excess(high) <= 0:
        end = float(np.exp2(low if excess(low) >= 0 else high))
        return max(end, least), True
    solve: Any = optimize.brentq
    found = float(np.exp2(solve(excess, low, high, xtol=1e-13)))
    return max(found, least), wanted > most or found < least
