"""Weight scaling: a mixture of the original and of uniform probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, ArrayLike, XArray, namespace
from bayescal._core.numerics import differences, softmax
from bayescal._core.shapes import Float
from bayescal.calibrators.base.calibrator import Calibrator, Keeps, State
from bayescal.calibrators.base.parametric import predict_ends
from bayescal.calibrators.multiclass.binwise import (
    BINNINGS,
    SAME,
    TRACE,
    Binning,
    TopClass,
    bin_edges,
    confidence_sums,
    find_bin,
    hits,
    level_of_logits,
    top_class,
)
from bayescal.data.checks import check_choice, check_count, check_level
from bayescal.data.rows import Source, weight_of_row
from bayescal.data.scores import Domain

#: Number of weights in a posterior's grid, and how often the grid is narrowed to those whose
#: density is at least exp(-30) of the largest.
_NODES, _ROUNDS, _DEPTH = 513, 4, 30.0


class _Sums(NamedTuple):
    """Weights, mean accuracies and mean confidences of b bins; NaN for empty bins."""

    weight: np.ndarray
    accuracy: np.ndarray
    confidence: np.ndarray


@dataclass(eq=False, repr=False)
class WeightScaling(Calibrator):
    r"""Weight scaling: mix probabilities with uniform ones, by one weight or one for each bin.

    .. math:: \hat p = \alpha_b p + (1 - \alpha_b) / k, \qquad b \text{ the bin of } \max_j p_j

    With A the accuracy of a bin and C its mean confidence, the confidence equals the accuracy at

    .. math:: \alpha_b = (A_b - 1/k) / (C_b - 1/k)

    which is clipped to [1e-9, 1]: no row becomes more confident, and the most probable class stays
    unique. Without bins, one weight minimizes the calibration error of the confidence,
    :math:`\sum_b w_b |A_b - \alpha C_b - (1 - \alpha) / k|`, in 15 bins of equal mass. It is the
    clipped weighted median of the weights of the bins; if several weights are optimal, the largest
    is used. For squared differences (``norm=2``) the best weight is

    .. math:: \alpha = \frac{\sum_b w_b (C_b - 1/k)(A_b - 1/k)}{\sum_b w_b (C_b - 1/k)^2}

    which is also clipped; the authors of the method found it worse.

    Parameters
    ----------
    bins : int, optional
        Number of bins; None, the default, for one weight (WS).
    binning : {"equal_mass", "equal_width"}
        Bins of equal weight (CWS, for which 13 bins are usual), or of equal width in [0, 1]
        (ECWS). Equal confidences share a bin. Bins are (lower, upper], and borders between bins
        of equal mass are half-way between confidences.
    norm : {1, 2}
        Power of the differences that one weight minimizes; not used with several bins.

    Attributes
    ----------
    alpha_ : array of shape (b,)
        Weights of the original probabilities.
    edges_ : array of shape (b - 1,)
        Borders of the bins: the confidence c, or -log(1 - c) for bins of equal mass, where c is
        at most 1 - 1e-308, or 1 - 1e-38 for probabilities.
    bin_weights_, accuracy_, confidence_ : arrays of shape (c,)
        Weights, accuracies and confidences of the bins that determine the weights; c = b, or 15
        without ``bins``, fewer if confidences are tied.

    Notes
    -----
    An empty bin of equal width has the weight of one bin with all rows; a bin of uniform rows has
    weight 1. If m classes have the largest probability of a row, its accuracy is 1/m where the
    label is one of them.

    ``objective_`` is the remaining calibration error of the bins. For one weight and norm 1 it
    equals ``metrics.ece`` with ``kind="confidence", binning="equal_mass", bins=15``, unless
    predicted confidences or largest probabilities are tied. O(n (k + log n)) time for the fit, O(k
    + log b) per prediction.

    References
    ----------
    Network calibration by weight scaling, anonymous submission to ICLR 2023.

    Examples
    --------
    Three of four rows with confidence 0.9 are right, so the weight is (0.75 - 0.5) / (0.9 - 0.5):

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

    @property
    def domain(self) -> Domain:
        return "logits" if self.inputs == "logits" else "probabilities"

    def _check_options(self) -> None:
        if self.bins is not None:
            check_count(self.bins, "bins")
        check_choice(self.binning, "binning", BINNINGS)
        check_choice(self.norm, "norm", (1, 2))

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        k = scores.shape[1]
        given, (_, confidence, level) = self._probabilities(scores.astype(float))
        probs = np.asarray(given)
        correct = hits(probs >= probs.max(axis=1, keepdims=True) - SAME, y)
        if self.bins is None:
            edges = np.empty(0)
            sums = _means(confidence_sums(confidence, correct, weights))
            alpha = np.array([_one_weight(sums, k, self.norm)])
        else:
            edges = bin_edges(level, weights, self.bins, self.binning)
            index = find_bin(edges, level, self.binning)
            terms = weights, weights * confidence, weights * correct
            by_bin = np.stack([np.bincount(index, term, len(edges) + 1) for term in terms])
            sums, total = _means(by_bin), _means(by_bin.sum(axis=1, keepdims=True))
            alpha = np.where(sums.weight > 0, _weights(sums, k), _weights(total, k))
        gaps = np.abs(sums.accuracy - alpha * sums.confidence - (1 - alpha) / k)
        error = np.where(sums.weight > 0, gaps**self.norm, 0.0) @ sums.weight / sums.weight.sum()
        return {
            "edges": edges,
            "alpha": alpha,
            "bin_weights": sums.weight,
            "accuracy": sums.accuracy,
            "confidence": sums.confidence,
            "unit": np.asarray(weight_of_row(rows)),
            "objective": np.asarray(error),
        }

    def _apply(self, state: State, scores: AnyArray) -> AnyArray:
        return self._mix(state, state["alpha"], scores)

    def _mix(self, state: State, alpha: XArray, scores: AnyArray) -> AnyArray:
        """Mix probabilities (m, k) by the weight (b,) of the bin of each row."""
        xp, (probs, top) = namespace(scores), self._probabilities(scores)
        index = find_bin(state["edges"], top.level, self.binning)
        weight = xp.take(alpha, index, axis=0)[:, None]
        mixed = weight * probs + (1 - weight) / probs.shape[1]
        return mixed / xp.sum(mixed, axis=1, keepdims=True)

    def predict_interval(
        self, scores: ArrayLike, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        r"""Compute central credible intervals of the calibrated probabilities.

        They follow from the posterior of the weight :math:`\alpha` of the bin. The number of rows
        whose most probable class is the label is binomial with the probability
        :math:`\alpha C + (1 - \alpha) / k`, which has a uniform prior on [0, 1]. Without ``bins``,
        the likelihood is the product over the 15 bins, and the prior is uniform where the mean of
        these probabilities lies in [0, 1]. Ends outside [1e-9, 1] are moved there, and intervals
        contain the weight of the fit.

        In simulations of two, three and ten classes, 2 to 1,000 rows, and weights of 1e-9 to 1,
        intervals of level 0.9 contained 84 to 100 % of the true probabilities, and 86 to 99 % from
        200 rows on.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m, k)
            For two classes (m,): intervals of the second class.

        Raises
        ------
        ValueError
            If the calibrator was loaded from a file of a version without intervals.
        """
        check_is_fitted(self)
        if "unit" not in self.state_:
            raise ValueError("the file of this calibrator has no intervals; fit it again")
        return predict_ends(self, self.state_, scores, check_level(level))

    def _ends(self, state: State, scores: XArray, level: float) -> XArray:
        """Compute the ends (m, 2, k) of intervals."""
        ends = [self._mix(state, a, scores) for a in _alpha_ends(state, scores.shape[1], level)]
        return np.stack([np.minimum(*ends), np.maximum(*ends)], axis=1)

    def _probabilities(self, scores: XArray) -> tuple[XArray, TopClass]:
        if self.domain == "probabilities":
            return scores, top_class(scores, self.binning)
        below = differences(scores)
        probs = softmax(below)
        level = level_of_logits(below, self.binning)
        return probs, top_class(probs, self.binning)._replace(level=level)


def _alpha_ends(state: State, k: int, level: float) -> Float[np.ndarray, "2 bins"]:
    """Compute the ends (2, b) of intervals of the weights."""
    alpha = state["alpha"]
    filled = state["bin_weights"] > 0
    rows = state["bin_weights"][filled] / state["unit"]
    counts = np.stack([rows * state["accuracy"][filled], state["confidence"][filled] - 1 / k, rows])
    # All rows determine a single weight, and that of empty bins.
    ends = np.tile(_quantiles(counts[:, :, None], k, level), len(alpha))
    if len(alpha) == len(filled):
        ends[:, filled] = _quantiles(counts[:, None], k, level)
    ends = np.clip(ends, TRACE, 1)
    return np.stack([np.minimum(ends[0], alpha), np.maximum(ends[1], alpha)])


def _quantiles(
    counts: Float[np.ndarray, "3 factors bins"], k: int, level: float
) -> Float[np.ndarray, "2 bins"]:
    """Find central intervals (2, b) of weights whose likelihoods are products of binomial ones.

    ``counts`` are numbers of correct rows, C - 1/k, and numbers of rows, for each factor.
    """
    from scipy.special import xlog1py, xlogy

    correct, room, rows = counts
    bins = np.arange(correct.shape[1])

    def log_densities(nodes: Float[np.ndarray, "nodes bins"]) -> Float[np.ndarray, "nodes bins"]:
        prob = np.clip(nodes[:, None] * room + 1 / k, 0, 1)
        values = (xlogy(correct, prob) + xlog1py(rows - correct, -prob)).sum(axis=1)
        return values - values.max(axis=0)

    # The mean accuracy may be any probability.
    center = np.maximum(np.average(room, axis=0, weights=rows), SAME)
    low, high = -1 / k / center, (1 - 1 / k) / center
    for _ in range(_ROUNDS):
        nodes = np.linspace(low, high, _NODES)
        kept = log_densities(nodes) > -_DEPTH
        first, last = np.argmax(kept, axis=0), _NODES - 1 - np.argmax(kept[::-1], axis=0)
        low = nodes[np.maximum(first - 1, 0), bins]
        high = nodes[np.minimum(last + 1, _NODES - 1), bins]
    nodes = np.linspace(low, high, _NODES)
    density = np.exp(log_densities(nodes))
    mass = np.zeros_like(density)
    mass[1:] = np.cumsum((density[1:] + density[:-1]) / 2, axis=0)
    tails = [(1 - level) / 2, (1 + level) / 2]
    return np.stack([np.interp(tails, mass[:, b] / mass[-1, b], nodes[:, b]) for b in bins], axis=1)


def _means(sums: Float[np.ndarray, "3 bins"]) -> _Sums:
    """Compute means over bins from sums (3, b) of weights, confidences and correct rows."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return _Sums(sums[0], sums[2] / sums[0], sums[1] / sums[0])


def _weights(sums: _Sums, k: int) -> Float[np.ndarray, " bins"]:
    """Compute the weights (b,) in [1e-9, 1] that make the confidence of bins their accuracy."""
    room = sums.confidence - 1 / k
    wanted = np.clip(sums.accuracy - 1 / k, TRACE * room, room)
    return np.divide(wanted, room, out=np.ones_like(room), where=room > SAME)


def _one_weight(sums: _Sums, k: int, norm: int) -> float:
    """Compute the alpha in [1e-9, 1] with the least sum of powers of w (A - 1/k - alpha (C - 1/k)).

    The slope of the sum of absolute values rises at the ratios, by twice the w (C - 1/k) of the
    bin.
    """
    room = sums.confidence - 1 / k
    used = room > SAME
    if not used.any():
        return 1.0
    ratio = (sums.accuracy[used] - 1 / k) / room[used]
    rise = (sums.weight * room)[used]
    if norm == 2:
        best = rise @ (sums.accuracy[used] - 1 / k) / (rise @ room[used])
    else:
        order = np.argsort(ratio)
        past = np.cumsum(rise[order]) > rise[order].sum() * (0.5 + SAME)
        best = ratio[order][np.argmax(past)]
    return float(np.clip(best, TRACE, 1))
