"""A binary calibrator for each pair of classes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, namespace
from bayescal._core.numerics import log_sigmoids, sigmoid
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.combine.lifted import BinaryReduction, by_part
from bayescal.data.given import MEMORY
from bayescal.data.rows import Rows, Source

#: Smallest probability of a pair, so that no pair decides alone.
_LEAST = 1e-30


@dataclass(eq=False, repr=False)
class OneVsOne(BinaryReduction):
    r"""One versus one: a binary calibrator for each pair of classes, with coupling.

    A calibrator is fitted to the rows of classes i and j; :math:`r_{ij}` is its calibrated
    probability of i at :math:`p_i / (p_i + p_j)`. All pairs give

    .. math:: \hat p_i \propto \Big( \sum_{j \ne i} \frac{1}{r_{ij}} - (k - 2) \Big)^{-1}

    which is exact if the pairs are consistent: :math:`r_{ij} = \hat p_i / (\hat p_i + \hat p_j)`.

    Calibrators of log odds receive :math:`\log p_i - \log p_j`. Calibrators for which the order of
    the two classes matters, such as ``ScalingBinning()``, are fitted in both orders, and
    :math:`r_{ij}` is the mean. A class without labels keeps its odds against the other classes,
    divided by one plus its expected number of labels, as in :class:`OneVsRest`. Time and memory are
    those of k (k - 1) / 2 calibrators of the rows of two classes, or twice that.

    Parameters
    ----------
    calibrator : Calibrator, optional
        A binary calibrator such as ``Isotonic()``, or one of logits such as ``Temperature()``. Its
        ``inputs`` and ``classes`` are ignored, and it cannot have a posterior. The default is
        ``Logistic()``.

    Attributes
    ----------
    statuses_ : array of shape (k (k - 1) / 2,)
        Statuses of the pairs (0, 1), (0, 2), ..., (1, 2), ...; ``status_`` is the worst.

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
        """Kinds of sources that ``fit`` accepts; the rows of a pair are selected in memory."""
        return MEMORY

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        k = scores.shape[1]
        present = np.bincount(y, minlength=k) > 0
        state: State = {}
        # Logarithm of the factor of the odds of classes without labels.
        state["missing"] = np.where(present, 0.0, -np.log1p(weights @ np.exp(scores)))
        statuses = np.zeros(k * (k - 1) // 2, int)
        for index, (i, j) in enumerate(combinations(range(k), 2)):
            if not (present[i] and present[j]):
                continue
            used = (y == i) | (y == j)
            for first, second in ((i, j),) if self._binary.symmetric else ((i, j), (j, i)):
                at = self._between(scores[used], first, second)
                pair = Rows(at, (y[used] == second).astype(int), weights[used])
                pair_state = self._binary._fit(pair, seed)
                statuses[index] = max(statuses[index], int(pair_state.get("status", 0)))
                name = f"pair{first}_{second}"
                state |= {f"{name}/{entry}": value for entry, value in pair_state.items()}
        return {**state, "statuses": statuses, "status": statuses.max()}

    def _apply(self, state: State, scores: XArray) -> XArray:
        xp, parts, k = namespace(scores), by_part(state), scores.shape[1]
        adjusted = scores + state["missing"]
        excess: list[AnyArray] = [1.0] * k
        for i, j in combinations(range(k), 2):
            pair_state, reversed_state = parts.get(f"pair{i}_{j}"), parts.get(f"pair{j}_{i}")
            if pair_state is None:
                second = sigmoid(adjusted[:, j] - adjusted[:, i])
                first = sigmoid(adjusted[:, i] - adjusted[:, j])
            else:
                probs = self._binary._apply_in_blocks(pair_state, self._between(scores, i, j))
                first, second = probs[:, 0], probs[:, 1]
            if reversed_state is not None:
                probs = self._binary._apply_in_blocks(reversed_state, self._between(scores, j, i))
                first, second = (first + probs[:, 1]) / 2, (second + probs[:, 0]) / 2
            # 1 / r - 1 without cancellation.
            excess[i] = excess[i] + second / xp.clip(first, _LEAST, 1.0)
            excess[j] = excess[j] + first / xp.clip(second, _LEAST, 1.0)
        coupled = 1 / xp.stack(excess, axis=1)
        return coupled / xp.sum(coupled, axis=1, keepdims=True)

    def _between(self, scores: XArray, i: int, j: int) -> XArray:
        first, second = scores[:, i], scores[:, j]
        return self._binary_scores(first, second, log_sigmoids(second - first)[1])
