"""Weight scaling: a mixture of the given and of equal probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import namespace
from bayescal.calibrators.base.calibrator import Calibrator, Keeps, State
from bayescal.calibrators.multiclass.binwise import (
    BINNINGS,
    SAME,
    TRACE,
    Binning,
    bin_edges,
    confidence_sums,
    find_bin,
    top_class,
)
from bayescal.data.checks import check_choice, check_count
from bayescal.data.rows import Source

__all__ = ["WeightScaling"]


class _Sums(NamedTuple):
    """Weight, and mean accuracy and confidence, of each of b bins; NaN in an empty one."""

    weight: np.ndarray
    accuracy: np.ndarray
    confidence: np.ndarray


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
    the one that changes least is taken. Of squared differences (``norm=2``) the best weight is

    .. math:: \alpha = \frac{\sum_b w_b (C_b - 1/k)(A_b - 1/k)}{\sum_b w_b (C_b - 1/k)^2}

    cropped as well; its authors found it worse.

    Parameters
    ----------
    bins : int, optional
        Number of bins; None, the default, for one weight (WS).
    binning : {"equal_mass", "equal_width"}
        Bins of equal weight (CWS, for which 13 bins are usual), or of equal width in [0, 1]
        (ECWS). Equal confidences share a bin; bins are (lower, upper], and borders between bins
        of equal mass lie half-way between confidences.
    norm : {1, 2}
        Power of the differences that one weight minimizes; in bins of their own there are none.

    Attributes
    ----------
    alpha_ : array of shape (b,)
        Weights of the given probabilities.
    edges_ : array of shape (b - 1,)
        Between bins: the confidence c, or -log(1 - c) for bins of equal mass.
    bin_weights_, accuracy_, confidence_ : arrays of shape (b,)
        Of the bins from which the weights were computed.

    Notes
    -----
    A bin of equal width that no row fell into has the weight that all rows together would have
    as one bin. In a bin whose rows are uniform there is nothing to scale, and the weight is 1.

    ``objective_`` is the calibration error left in the bins; of one weight, of norm 1, it is what
    ``metrics.ece`` reports with ``binning="equal_mass", bins=15``. O(n (k + log n)) time for the
    fit, O(k + log b) for each prediction.

    References
    ----------
    Network calibration by weight scaling, anonymous submission to ICLR 2023.

    Examples
    --------
    Of four rows with confidence 0.9, three are right: 0.1 above a half rather than 0.25.

    >>> import bayescal as bc
    >>> calibrator = bc.WeightScaling(bins=1).fit([[0.9, 0.1]] * 4, [0, 0, 0, 1])
    >>> calibrator.alpha_.round(3).tolist()
    [0.625]
    >>> calibrator.predict_proba([[0.9, 0.1], [0.3, 0.7]]).round(3).tolist()
    [[0.75, 0.25], [0.375, 0.625]]
    """

    bins: int | None = None
    binning: Binning = "equal_mass"
    norm: Literal[1, 2] = 1

    alpha_: np.ndarray = field(init=False)
    edges_: np.ndarray = field(init=False)
    bin_weights_: np.ndarray = field(init=False)
    accuracy_: np.ndarray = field(init=False)
    confidence_: np.ndarray = field(init=False)

    keeps: ClassVar[Keeps] = "argmax"
    _domain = "probabilities"

    def _check_options(self) -> None:
        if self.bins is not None:
            check_count(self.bins, "bins")
        check_choice(self.binning, "binning", BINNINGS)
        check_choice(self.norm, "norm", (1, 2))

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        k = scores.shape[1]
        top, confidence, level = top_class(scores.astype(float), self.binning)
        correct = top == y
        if self.bins is None:
            edges = np.empty(0)
            sums = _means(confidence_sums(confidence, correct, weights))
            alpha = np.array([(_one_weight if self.norm == 1 else _square_weight)(sums, k)])
        else:
            edges = bin_edges(level, weights, self.bins, self.binning)
            place = find_bin(edges, level, self.binning)
            each = weights, weights * confidence, weights * correct
            every = np.stack([np.bincount(place, own, len(edges) + 1) for own in each])
            sums, whole = _means(every), _means(every.sum(axis=1, keepdims=True))
            alpha = np.where(sums.weight > 0, _weights(sums, k), _weights(whole, k))
        gaps = np.abs(sums.accuracy - alpha * sums.confidence - (1 - alpha) / k)
        error = np.where(sums.weight > 0, gaps**self.norm, 0.0) @ sums.weight / sums.weight.sum()
        return {
            "edges": edges,
            "alpha": alpha,
            "bin_weights": sums.weight,
            "accuracy": sums.accuracy,
            "confidence": sums.confidence,
            "objective": np.asarray(error),
        }

    def _apply(self, state: State, scores: Any) -> Any:
        xp = namespace(scores)
        place = find_bin(state["edges"], top_class(scores, self.binning).level, self.binning)
        alpha = xp.take(state["alpha"], place, axis=0)[:, None]
        mixed = alpha * scores + (1 - alpha) / scores.shape[1]
        return mixed / xp.sum(mixed, axis=1, keepdims=True)


def _means(sums: np.ndarray) -> _Sums:
    """Return means over bins from sums (3, b) of weights, confidences and hits."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return _Sums(sums[0], sums[2] / sums[0], sums[1] / sums[0])


def _weights(sums: _Sums, k: int) -> np.ndarray:
    """Return the weight (b,) that makes each bin's confidence its accuracy, within [1e-9, 1]."""
    room = sums.confidence - 1 / k
    wanted = np.clip(sums.accuracy - 1 / k, TRACE * room, room)
    return np.divide(wanted, room, out=np.ones_like(room), where=room > SAME)


def _one_weight(sums: _Sums, k: int) -> float:
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


def _square_weight(sums: _Sums, k: int) -> float:
    """Return the alpha in [1e-9, 1] with the least sum of w (A - 1/k - alpha (C - 1/k))^2."""
    room = sums.confidence - 1 / k
    kept = room > SAME
    if not kept.any():
        return 1.0
    share = (sums.weight * room)[kept]
    return float(np.clip(share @ (sums.accuracy[kept] - 1 / k) / (share @ room[kept]), TRACE, 1))
