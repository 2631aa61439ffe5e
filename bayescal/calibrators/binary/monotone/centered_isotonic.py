"""Centered isotonic regression."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from bayescal.calibrators.binary.monotone.pooling import MonotoneCalibrator, PooledBlocks
from bayescal.data.rows import Rows, Source, Sums


@dataclass(eq=False, repr=False)
class CenteredIsotonic(MonotoneCalibrator):
    r"""Centered isotonic regression: straight lines through the centers of the isotonic blocks.

    Every block of isotonic regression, merged with neighbors of equal value, becomes one point: its
    value at

    .. math:: \bar s_b = \frac{\sum_{i \in b} w_i s_i}{\sum_{i \in b} w_i}.

    The map is linear between these points, thus strictly increasing, and constant outside. A first
    block of value 0 and a last block of value 1 keep both ends, because no probability is more
    extreme. Fewer scores share a probability than in isotonic regression, and the error is smaller
    if the true map increases.

    Parameters
    ----------
    bounds : {"none", "laplace"}
        Treatment of the values 0 and 1, as for :class:`Isotonic`. With "laplace" no block has such
        a value, and all blocks become points.

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

    def _ends_of_blocks(self, blocks: PooledBlocks, rows: Source) -> tuple[np.ndarray, np.ndarray]:
        groups, starts, values, lowest, highest = blocks
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
