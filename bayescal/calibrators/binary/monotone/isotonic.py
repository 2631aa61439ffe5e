"""Isotonic regression, and centered isotonic regression."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from bayescal.calibrators.binary.monotone.pooling import MonotoneCalibrator, outer_scores
from bayescal.data.order.ranking import Groups
from bayescal.data.rows import Rows, Source, Sums


@dataclass(eq=False, repr=False)
class Isotonic(MonotoneCalibrator):
    r"""Isotonic regression: the maximum-likelihood non-decreasing map.

    .. math:: \min_{f_1 \le \dots \le f_n} \sum_i w_i (y_i - f_i)^2
              \qquad (s_1 \le \dots \le s_n)

    Tied scores share one value. The solution is constant on blocks of neighboring scores, where it
    equals the proportion of class 1. It is interpolated linearly between blocks and constant beyond
    the outermost scores.

    Scores below the smallest score of class 1 get probability 0, and scores above the largest score
    of class 0 get 1, so a single new row on the wrong side makes the log loss infinite. With
    ``bounds="laplace"``, one row of each class is added to blocks of a single class (Laplace's rule
    of succession), and blocks that then decrease are pooled again: values are strictly between 0
    and 1.

    Attributes
    ----------
    thresholds_, values_ : arrays
        Points between which the map is linear.

    See Also
    --------
    CenteredIsotonic : Straight lines in place of steps.
    NearIsotonic : Decreases are penalized, not forbidden.
    VennAbers : Two isotonic fits that bound each probability.

    Notes
    -----
    The state is ``thresholds`` (k,), ascending, the ends of the blocks, and ``values`` (k,); for
    intervals, ``cell_starts`` and ``cell_ends`` (c,), the smallest and largest scores of cells, and
    ``cell_counts`` (2, c). Intervals take 10 to 50 ms a call. Fitting n rows takes at most O(n log
    n) comparisons, because most of many rows are only counted in cells of neighboring scores.
    Predicting takes O(log k) per score.

    Fits to rows in blocks equal those in memory. They take a first pass, a pass that counts rows in
    cells, and one or two that sort the cells in which a block could end. Up to 4,194,304 rows take
    two passes, and memory for a pair of sums for each distinct score.

    References
    ----------
    M. Chakraborty and S. Ghosal (2021), Coverage of credible intervals in nonparametric monotone
    regression.

    B. Zadrozny and C. Elkan (2002), Transforming classifier scores into accurate multiclass
    probability estimates.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.Isotonic().fit(p, y).predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.25, 0.5]
    """

    def _ends_of_blocks(
        self, rows: Source, groups: Groups, starts: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return outer_scores(groups, starts)


@dataclass(eq=False, repr=False)
class CenteredIsotonic(MonotoneCalibrator):
    r"""Centered isotonic regression: straight lines through the centers of the isotonic blocks.

    Every block of isotonic regression, merged with neighbors of equal value, becomes one point: its
    value at

    .. math:: \bar s_b = \frac{\sum_{i \in b} w_i s_i}{\sum_{i \in b} w_i}.

    The map is linear between these points, thus strictly increasing, and constant outside. A first
    block of value 0 and a last block of value 1 keep both ends, because no probability is more
    extreme; with ``bounds="laplace"`` there are none. Fewer scores share a probability than in
    isotonic regression, and the error is smaller if the true map increases.

    Attributes
    ----------
    thresholds_, values_ : arrays
        The map is linear between these points.

    Notes
    -----
    The state is ``thresholds`` (k,), ascending, and ``values`` (k,). Fitting n rows takes
    at most O(n log n), predicting O(log k) per score. Rows in blocks take the passes of
    :class:`Isotonic`, and one more for the centers if there are more than 4,194,304 rows.

    References
    ----------
    A. P. Oron and N. Flournoy (2017), Centered isotonic regression: point and interval estimation
    for dose-response studies.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.CenteredIsotonic().fit(p, y).predict_proba([0.4, 0.6])[:, 1].round(2).tolist()
    [0.35, 0.6]
    """

    def _ends_of_blocks(
        self, rows: Source, groups: Groups, starts: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        lowest, highest = outer_scores(groups, starts)
        weight = np.add.reduceat(groups.weight, starts)
        if groups.whole.any():
            center = rows.total(partial(_centers, lowest, weight))["center"]
        else:
            # Divide weights before summing, so that sums of scores do not overflow.
            proportion = groups.weight / weight.repeat(np.diff(starts, append=len(groups.weight)))
            center = np.add.reduceat(proportion * groups.lowest, starts)
        center = np.clip(center, lowest, highest)
        at_limit = (values == 0) | (values == 1)
        return np.where(at_limit, lowest, center), np.where(at_limit, highest, center)


def _centers(lowest: np.ndarray, weight: np.ndarray, rows: Rows) -> Sums:
    """Sum the contributions of rows to the mean score of every block of known weight."""
    block = np.searchsorted(lowest, rows.scores, side="right") - 1
    contributions = rows.weights / weight[block] * rows.scores
    return {"center": np.bincount(block, contributions, len(lowest))}
