"""A binary calibrator for each class against the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bayescal._core.arrays import XArray, namespace
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.combine.lifted import BinaryReduction, by_part, log_odds
from bayescal.data.rows import Rows, Source


@dataclass(eq=False, repr=False)
class OneVsRest(BinaryReduction):
    r"""One versus rest: a binary calibrator for each class against the rest, then normalization.

    .. math:: \hat p_j = g_j(p_j) / \sum_i g_i(p_i)

    Calibrators of log odds receive log(p_j / (1 - p_j)). Rows for which all g are zero keep their
    probabilities. A class without labels keeps its probability, divided by one plus its expected
    number of labels (the posterior mean of a rate with prior Gamma(1, 1)). Time is that of k
    calibrators.

    Parameters
    ----------
    calibrator : Calibrator, optional
        A binary calibrator such as ``Isotonic()``, or one of logits such as ``Temperature()``. Its
        ``inputs`` and ``classes`` are ignored. If it has a posterior, so do the probabilities:
        ``AveragedBeta()``, and calibrators with ``inference`` "laplace" or "nuts". The default is
        ``Logistic()``.

    Attributes
    ----------
    statuses_ : array of shape (k,)
        Statuses of the classes; ``status_`` is the worst.

    Notes
    -----
    Let [l, u] be the interval of a class against the rest, g its calibrated probability, and
    :math:`\hat p` the probability after normalization. The ends of :meth:`predict_interval` differ
    from :math:`\hat p` by as much as l and u from g, in log odds. The lower end is

    .. math:: \operatorname{logit}^{-1}(\operatorname{logit} \hat p + \operatorname{logit} l -
        \operatorname{logit} g)

    This is exact if the other classes fill the remainder in fixed proportions. In simulations of 60
    to 1,000 rows of three and ten classes, whose log probabilities were twice too extreme, 90 %
    intervals of ``Beta(inference="laplace")`` contained 86 to 94 % of the true probabilities, those
    of ``Logistic(inference="laplace")`` 84 to 93 %, and those of ``AveragedBeta()`` 96 to 99 %.

    References
    ----------
    B. Zadrozny, C. Elkan (2002), Transforming classifier scores into accurate multiclass
    probability estimates.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.OneVsRest(bc.Isotonic()).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.75, 0.12, 0.12]]
    """

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        state: State = {}
        k = scores.shape[1]
        present = np.bincount(y, minlength=k) > 0
        xp = namespace(scores)
        expected = np.asarray(xp.asarray(weights) @ xp.exp(scores))
        state["missing_factor"] = np.where(present, 1.0, 1 / (1 + expected))
        statuses, seed_of_draws = np.zeros(k, int), self._binary._seed()
        for j in np.flatnonzero(present).tolist():
            part = Rows(self._against_others(scores, j), (y == j).astype(int), weights)
            class_state = self._binary._fit(part, seed)
            class_state = self._binary._add_posterior(class_state, part, seed_of_draws)
            statuses[j] = int(class_state.get("status", 0))
            state |= {f"class{j}/{name}": value for name, value in class_state.items()}
        return {**state, "statuses": statuses, "status": statuses.max()}

    def _apply(self, state: State, scores: XArray) -> XArray:
        xp, parts, probs = namespace(scores), by_part(state), _probabilities(scores)
        columns = []
        for j in range(scores.shape[1]):
            class_state = parts.get(f"class{j}")
            if class_state is None:
                columns.append(probs[:, j] * state["missing_factor"][j])
            else:
                at = self._against_others(scores, j)
                columns.append(self._binary._apply_in_blocks(class_state, at)[:, 1])
        calibrated = xp.stack(columns, axis=1)
        total = xp.sum(calibrated, axis=1, keepdims=True)
        safe = xp.where(total > 0, total, 1.0)
        return xp.where(total > 0, calibrated / safe, probs)

    def _distances(self, state: State, scores: XArray, level: float) -> XArray:
        xp, parts = namespace(scores), by_part(state)
        columns = []
        for j in range(scores.shape[1]):
            class_state = parts.get(f"class{j}")
            if class_state is not None:
                at = self._against_others(scores, j)
                columns.append(self._distance(class_state, at, level))
                continue
            # Quantiles of an exponential distribution, which is the posterior of the rate.
            prob = _probabilities(scores)[:, j] * state["missing_factor"][j]
            tails = (1 - level) / 2, (1 + level) / 2
            ends = xp.stack([-math.log1p(-tail) * prob for tail in tails], axis=1)
            columns.append(log_odds(ends) - log_odds(prob)[:, None])
        return xp.stack(columns, axis=2)

    def _against_others(self, scores: XArray, j: int) -> XArray:
        """Compute the scores (n,) or two logits (n, 2) that the calibrator of class j takes."""
        xp, log_prob = namespace(scores), scores[:, j]
        # log(1 - p) from the other classes, without loss of digits if p is nearly one.
        others = xp.concat([scores[:, :j], scores[:, j + 1 :]], axis=1)
        top = xp.max(others, axis=1)
        rest = top + xp.log(xp.sum(xp.exp(others - top[:, None]), axis=1))
        return self._binary_scores(rest, log_prob, log_prob)


def _probabilities(scores: XArray) -> XArray:
    """Return the uncalibrated probabilities (m, k)."""
    xp = namespace(scores)
    probs = xp.exp(scores)
    return probs / xp.sum(probs, axis=1, keepdims=True)
