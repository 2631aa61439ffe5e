"""A calibrator of two classes for each pair of classes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from bayescal._core.arrays import namespace
from bayescal._core.numerics import log_sigmoids, sigmoid
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.combine.lifted import Lifted, by_part
from bayescal.data.given import MEMORY
from bayescal.data.rows import Rows, Source

__all__ = ["OneVsOne"]

#: Pairs never are surer than this, so that none decides alone.
_LEAST = 1e-30


@dataclass(eq=False, repr=False)
class OneVsOne(Lifted):
    r"""A calibrator of two classes for each pair of classes (one against one), then coupled.

    Of classes i and j, and rows of these two only, :math:`r_{ij}` is the calibrated probability of
    i at :math:`p_i / (p_i + p_j)`. From all pairs,

    .. math:: \hat p_i \propto \Big( \sum_{j \ne i} \frac{1}{r_{ij}} - (k - 2) \Big)^{-1}

    which is exact where the pairs agree: :math:`r_{ij} = \hat p_i / (\hat p_i + \hat p_j)`.

    Calibrators of log odds get :math:`\log p_i - \log p_j`. A class without a label keeps its odds
    against each other, divided by one more than its expected number of labels, as in
    :class:`OneVsRest`. Time, and memory of what is learned, are those of k (k - 1) / 2 calibrators,
    each of two classes' rows.

    Parameters
    ----------
    calibrator : Calibrator, optional
        Of two classes, as ``Isotonic()``, or of logits, as ``Temperature()``; its own ``inputs``
        and ``classes`` do not matter, and it cannot have a posterior. By default ``Logistic()``.

    Attributes
    ----------
    statuses_ : array of shape (k (k - 1) / 2,)
        Of the pairs 0 and 1, 0 and 2, ..., 1 and 2, ...; ``status_`` is the worst.

    Notes
    -----
    Predicting m rows takes O(m k^2) and memory O(m k).

    References
    ----------
    D. Price, S. Knerr, L. Personnaz and G. Dreyfus (1994), Pairwise neural network classifiers
    with probabilistic outputs. T.-F. Wu, C.-J. Lin and R. C. Weng (2004), Probability estimates for
    multi-class classification by pairwise coupling.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.OneVsOne(bc.Isotonic("laplace")).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.69, 0.2, 0.11]]
    """

    @property
    def sources(self) -> frozenset[str]:
        """Where the rows of a fit may be: rows of a pair are selected in memory."""
        return MEMORY

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        k = scores.shape[1]
        present = np.bincount(y, minlength=k) > 0
        state: State = {}
        # As a logarithm, that of a share between two classes.
        state["missing"] = np.where(present, 0.0, -np.log1p(weights @ np.exp(scores)))
        statuses = np.zeros(k * (k - 1) // 2, int)
        for place, (i, j) in enumerate(combinations(range(k), 2)):
            if not (present[i] and present[j]):
                continue
            used = (y == i) | (y == j)
            at = self._between(scores[used], i, j)
            pair = Rows(at, (y[used] == j).astype(int), weights[used])
            own = self._one._fit(pair, seed)
            statuses[place] = int(own.get("status", 0))
            state |= {f"pair{i}_{j}/{name}": value for name, value in own.items()}
        return {**state, "statuses": statuses, "status": statuses.max()}

    def _apply(self, state: State, scores: Any) -> Any:
        xp, parts, k = namespace(scores), by_part(state), scores.shape[1]
        adjusted = scores + state["missing"]
        excess: list[Any] = [1.0] * k
        for i, j in combinations(range(k), 2):
            own = parts.get(f"pair{i}_{j}")
            if own is None:
                second = sigmoid(adjusted[:, j] - adjusted[:, i])
                first = sigmoid(adjusted[:, i] - adjusted[:, j])
            else:
                found = self._one._apply_in_blocks(own, self._between(scores, i, j))
                first, second = found[:, 0], found[:, 1]
            # 1 / r - 1, without a difference.
            excess[i] = excess[i] + second / xp.clip(first, _LEAST, 1.0)
            excess[j] = excess[j] + first / xp.clip(second, _LEAST, 1.0)
        coupled = 1 / xp.stack(excess, axis=1)
        return coupled / xp.sum(coupled, axis=1, keepdims=True)

    def _between(self, scores: Any, i: int, j: int) -> Any:
        """Return what the calibrator of a pair works on."""
        first, second = scores[:, i], scores[:, j]
        return self._scores(first, second, log_sigmoids(second - first)[1])
