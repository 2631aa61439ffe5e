"""Weight scaling: a mixture with equal probabilities, by the confidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bayescal._core.checks import check_choice, check_count
from bayescal.calibrators._adaptive import BINS
from bayescal.calibrators._base import Calibrator, Keeps, State
from bayescal.calibrators._binwise import (
    BINNINGS,
    SAME,
    TRACE,
    Binning,
    Sums,
    bin_edges,
    bin_sums,
    blocks,
    certainty,
    places,
)
from bayescal.calibrators._inputs import Domain

__all__ = ["WeightScaling"]


@dataclass(eq=False, repr=False)
class WeightScaling(Calibrator):
    r"""A mixture of the given and of equal probabilities, by one weight or one for each bin.

    .. math:: \hat p = \alpha_b p + (1 - \alpha_b) / k, \qquad b \text{ the bin of } \max_j p_j

    With A the accuracy of a bin and C its mean confidence, the confidence equals the accuracy at

    .. math:: \alpha_b = (A_b - 1/k) / (C_b - 1/k)

    cropped to [1e-9, 1]: no row becomes more confident than it was, and the most probable class
    stays the only one. Without bins, the one weight
    minimizes the calibration error of the confidence,
    :math:`\sum_b w_b |A_b - \alpha C_b - (1 - \alpha) / k|`, in 15 bins of equal mass: it is the
    weighted median of the bins' own weights, cropped, which needs no search. Of several best ones
    the one that changes least is taken.

    Parameters
    ----------
    bins : int, optional
        Number of bins; None, the default, for one weight (WS).
    binning : {"equal_mass", "equal_width"}
        Bins of equal weight (CWS, for which 13 bins are usual), or of equal width in [0, 1]
        (ECWS). Equal confidences share a bin; bins are (lower, upper], and borders between bins
        of equal mass lie half-way between confidences.

    Attributes
    ----------
    alpha_ : array of shape (bins,)
        Shares of the given probabilities.

    Notes
    -----
    A bin of equal width that no row fell into has the weight that all rows together would have
    as one bin. In a bin whose rows are uniform there is nothing to scale, and the weight is 1.

    The state is ``edges`` (b - 1,), ``alpha`` (b,), and of the bins that they were computed from
    ``bin_weights``, ``accuracy`` and ``confidence``; ``objective`` is the calibration error left in
    these bins. O(n (k + log n)) time for the fit, O(k + log b) for each prediction.

    References
    ----------
    Network calibration by weight scaling, anonymous submission to ICLR 2023.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.WeightScaling(1).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.7, 0.2, 0.1]]
    """

    bins: int | None = None
    binning: Binning = "equal_mass"

    alpha_: np.ndarray = field(init=False)

    keeps: ClassVar[Keeps] = "argmax"

    def _check_options(self) -> None:
        if self.bins is not None:
            check_count(self.bins, "bins")
        check_choice(self.binning, "binning", BINNINGS)

    @property
    def domain(self) -> Domain:
        return "probabilities"

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        k = scores.shape[1]
        single = self.bins is None
        count = BINS if self.bins is None else self.bins
        top, confidence, level = certainty(scores.astype(float), self._kind)
        correct = top == y
        edges = bin_edges(level, weights, count, self._kind)
        place = places(level, edges)
        sums = bin_sums(place, confidence, correct, weights, len(edges) + 1)
        if single:
            alpha = np.array([_one_weight(sums, k)])
        else:
            all_rows = bin_sums(np.zeros_like(place), confidence, correct, weights, 1)
            own, common = _weights(sums, k), _weights(all_rows, k)
            alpha = np.where(sums.weight > 0, own, common)
        gaps = np.abs(sums.accuracy - alpha * sums.confidence - (1 - alpha) / k)
        error = np.where(sums.weight > 0, gaps, 0.0) @ sums.weight / sums.weight.sum()
        return {
            "edges": np.empty(0) if single else edges,
            "alpha": alpha,
            "bin_weights": sums.weight,
            "accuracy": sums.accuracy,
            "confidence": sums.confidence,
            "objective": np.asarray(error),
        }

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        probs = np.empty(scores.shape)
        for part in blocks(scores.shape):
            given = scores[part].astype(float)
            level = certainty(given, self._kind).level
            alpha = state["alpha"][places(level, state["edges"])][:, None]
            mixed = alpha * given + (1 - alpha) / given.shape[1]
            probs[part] = mixed / mixed.sum(axis=1, keepdims=True)
        return probs

    @property
    def _kind(self) -> Binning:
        return "equal_mass" if self.bins is None else self.binning


def _weights(sums: Sums, k: int) -> np.ndarray:
    """Return the weight (b,) that makes each bin's confidence its accuracy, within [1e-9, 1]."""
    room = sums.confidence - 1 / k
    wanted = np.clip(sums.accuracy - 1 / k, TRACE * room, room)
    return np.divide(wanted, room, out=np.ones_like(room), where=room > SAME)


def _one_weight(sums: Sums, k: int) -> float:
    """Return the largest alpha in [1e-9, 1] with the least sum |w (A - 1/k) - alpha w (C - 1/k)|.

    The slope rises at the ratios, each time by twice the bin's w (C - 1/k).
    """
    room = sums.confidence - 1 / k
    kept = room > SAME
    if not kept.any():
        return 1.0
    ratio = (sums.accuracy[kept] - 1 / k) / room[kept]
    order = np.argsort(ratio)
    rise = (sums.weight * room)[kept][order]
    past = np.cumsum(rise) > rise.sum() * (0.5 + SAME)
    return float(np.clip(ratio[order][np.argmax(past)], TRACE, 1))
