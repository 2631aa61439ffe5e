"""Inductive Venn-Abers prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bayescal._core.arrays import AnyArray, AnyModel, ArrayLike, XArray, namespace, search
from bayescal._core.binning import take_step
from bayescal._core.numerics import ignoring_underflow
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.monotone.pooling import OrderCalibrator, pool_ranking
from bayescal.data.order.ranking import Groups, Ranking, equal_scores
from bayescal.data.rows import Source
from bayescal.data.scores import two_columns

#: Smaller changes of a value inside cells are ignored for very many rows in blocks.
_SLIGHT = 1e-6


@dataclass(eq=False, repr=False)
class VennAbers(OrderCalibrator):
    r"""Venn-Abers prediction: isotonic regression with the new score added with either label.

    Let :math:`p_0(s)` and :math:`p_1(s)` be the values at s of isotonic regression on the rows and
    one more row of weight 1 with score s and label 0 or 1. The probability is

    .. math:: \hat p(s) = \frac{p_1(s)}{1 - p_0(s) + p_1(s)},

    which minimizes the worst-case excess of its log loss over the better of the two. It lies
    between them and is never 0 or 1; :meth:`predict_interval` returns both. If the rows and the new
    row are exchangeable, the value of the true label is perfectly calibrated.

    ``CalibratedClassifier(..., ensemble=True)`` makes it the cross Venn-Abers predictor.

    Attributes
    ----------
    thresholds_, lower_, upper_ : arrays

    Notes
    -----
    Both values are exact at every score, not approximated on a grid. Let :math:`P_l` be the
    cumulative weight and weight of class 1 of the l lowest distinct scores. For l in a block of the
    isotonic regression of the rows alone, let :math:`\varphi(l)` be the smallest slope from
    :math:`P_l - (1, 1)` to the end of that block or of a later one. Then :math:`p_1` of a new score
    above l distinct scores is the maximum of :math:`\varphi(0), \dots, \varphi(l)`. :math:`p_0`
    follows in the same way from the other side.

    The state is ``thresholds`` (k,), the scores at which a value changes, ``highest`` (k,), the
    largest score that ties with each up to rounding, ``lower`` (k + 1,) and ``upper`` (k + 1,), the
    values of :math:`p_0` and :math:`p_1` between thresholds. At a threshold :math:`p_0` is already
    the next value, and :math:`p_1` still the previous one. Scores within one step of single
    precision of a threshold count as equal to it, unless thresholds are about as close.
    Probabilities count as equal if they or their distances to 1 do: 1 - 1e-12 counts as 1, and
    1e-12 as 0. Fitting n rows takes O(n log n), predicting O(log k) per score.

    Fits to at most 4,194,304 rows in blocks equal those in memory; two passes collect the distinct
    scores. More rows are counted in cells, which are sorted if a block of the isotonic regression
    could end in them or a value could change by more than 1e-6. Values are then exact up to 1e-6,
    and the fit takes about four passes.

    References
    ----------
    V. Vovk, I. Petej and V. Fedorova (2015), Large-scale probabilistic predictors with and without
    guarantees of validity.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> calibrator = bc.VennAbers().fit(p, y)
    >>> lower, upper = calibrator.predict_interval([0.5])
    >>> [round(float(p), 2) for p in (lower[0], calibrator.predict_proba([0.5])[0, 1], upper[0])]
    [0.33, 0.5, 0.67]
    """

    thresholds_: np.ndarray = field(init=False)
    lower_: np.ndarray = field(init=False)
    upper_: np.ndarray = field(init=False)

    monotone: ClassVar[bool] = True
    _domain = "order"

    def _fit(self, rows: Source, seed: int) -> State:
        ranking = Ranking(rows, at_once=True)
        while True:
            starts, _ = pool_ranking(ranking)
            groups = ranking.groups
            lower, upper, unsettled = _two_values(groups, starts)
            if not unsettled.any():
                break
            ranking.refine(unsettled)
        changes = np.flatnonzero((np.diff(lower) > 0) | (np.diff(upper) > 0))
        kept = np.append(changes, len(lower) - 1)
        return {
            "thresholds": groups.lowest[changes],
            "highest": groups.highest[changes],
            "lower": lower[kept],
            "upper": upper[kept],
        }

    def _precompute(self, state: State) -> State:
        lowest = state["thresholds"]
        first, last = equal_scores(lowest, state.get("highest", lowest), self.inputs == "probs")
        return state | {"first": first, "last": last}

    def _apply(self, state: State, scores: XArray) -> XArray:
        low, high = self._ends(state, scores)
        # A form of the fraction that is monotone in spite of rounding.
        return two_columns(1 / (1 + (1 - low) / high))

    @ignoring_underflow
    def predict_interval(
        self, scores: ArrayLike, *others: object, **options: object
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute the two probabilities of the second class, one of which is calibrated.

        Parameters
        ----------
        scores : array-like of shape (m,), (m, 1) or (m, 2)

        Returns
        -------
        lower, upper : arrays of shape (m,)
            Values with the score added to the first and to the second class. Their distance
            measures the influence of one more row. They are not a credible interval and have no
            level.

        Raises
        ------
        TypeError
            If a level is given.
        """
        if others or options:
            raise TypeError(
                "predict_interval of VennAbers must be called with scores alone, got a level or "
                "other arguments; its two probabilities are no credible interval: use "
                "Beta(inference='laplace') for one"
            )
        values = self._values(scores)
        return self._ends(self.state_, values)

    def _ends(self, state: State, scores: XArray) -> tuple[AnyArray, AnyArray]:
        """Compute p_0 and p_1 (m,), where p_0 < p_1."""
        if "first" not in state:
            state = self._precompute(state)
        # A score at a threshold counts as below or above it, depending on the class that it is
        # added to. NaN counts as greater than all thresholds.
        xp = namespace(scores)
        up_to = below = search(state["first"], scores, "right")
        most = state["last"].shape[0] - 1
        if most >= 0:
            last = xp.take(state["last"], xp.clip(up_to - 1, 0, most), axis=0)
            below = xp.where((up_to > 0) & (scores <= last), up_to - 1, up_to)
        return take_step(state["lower"], up_to, scores), take_step(state["upper"], below, scores)

    @staticmethod
    def combine(calibrators: list[AnyModel], scores: list[np.ndarray]) -> np.ndarray:
        """Combine the predictions of the folds to those (m, 2) of a cross Venn-Abers predictor.

        The two probabilities are replaced by their geometric means over the folds, which minimizes
        the worst-case regret in log loss.

        Parameters
        ----------
        calibrators : list of fitted calibrators
        scores : list of arrays of shape (m,), (m, 1) or (m, 2)
        """
        pairs = [c.predict_interval(s) for c, s in zip(calibrators, scores, strict=True)]
        lower, upper = (np.array(ends) for ends in zip(*pairs, strict=True))
        with np.errstate(divide="ignore"):
            one = np.exp(np.log(upper).mean(axis=0))
            zero = np.exp(np.log1p(-lower).mean(axis=0))
        return np.stack([zero, one], axis=1) / (zero + one)[:, None]


def _two_values(groups: Groups, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute p_0 and p_1 (g + 1,) between groups; mark cells (g,) in which they may change.

    An unsorted cell has the largest p_1 and the smallest p_0 if its rows of class 0 come first.
    """
    weight = np.concatenate([[0.0], np.cumsum(groups.weight)])
    positive = np.concatenate([[0.0], np.cumsum(groups.positive)])
    borders = np.append(starts, len(groups.weight))
    slopes = np.minimum(_least_slopes(weight, positive, borders, 1.0), 1)
    upper = np.maximum.accumulate(np.append(slopes, 1.0))
    # From the other side, cumulative weights decrease and slopes change their sign.
    turned = -weight[::-1], positive[::-1], borders[-1] - borders[::-1]
    slopes = _least_slopes(*turned, 0.0)
    lower = np.minimum.accumulate(np.abs(np.append(slopes, 0.0)))[::-1]
    if not groups.whole.any():
        return lower, upper, groups.whole
    along, above = weight[:-1] + groups.weight - groups.positive, positive[:-1]
    most = np.minimum(_least_slopes(weight, positive, borders, 1.0, (along, above)), 1)
    least = np.abs(_least_slopes(*turned, 0.0, (-along[::-1], above[::-1])))[::-1]
    moved = (most > upper[:-1] + _SLIGHT) | (least < lower[1:] - _SLIGHT)
    return lower, upper, groups.whole & moved


def _least_slopes(
    x: np.ndarray,
    y: np.ndarray,
    borders: np.ndarray,
    rise: float,
    points: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Compute the smallest slope from each point, moved by (-1, -rise), to later corners.

    The corners are the points at ``borders``; they form a convex chain, so that slopes to them
    first decrease and then increase. Slopes start at all points except the last, or at ``points``.
    """
    from_x, from_y = (x[:-1], y[:-1]) if points is None else points
    corner_x, corner_y = x[borders], y[borders]
    edge_x, edge_y = np.diff(corner_x), np.diff(corner_y)
    low = np.repeat(np.arange(1, len(borders)), np.diff(borders))
    high = np.full(len(low), len(borders) - 1)
    for _ in range(len(borders).bit_length()):
        middle = (low + high) // 2
        edge = np.minimum(middle, len(edge_x) - 1)
        run, climb = corner_x[middle] - from_x + 1, corner_y[middle] - from_y + rise
        # Products instead of quotients are exact for integer weights.
        turned = (edge_y[edge] * run >= climb * edge_x[edge]) | (low >= high)
        high = np.where(turned, middle, high)
        low = np.where(turned, low, middle + 1)
    return (corner_y[low] - from_y + rise) / (corner_x[low] - from_x + 1)
