"""A binary calibrator for each class against the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyModel, ArrayLike, XArray, namespace
from bayescal._core.numerics import FLOOR, sigmoid
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.dispatch import dispatched
from bayescal.calibrators.base.parametric import map_ends, predict_ends
from bayescal.calibrators.combine.lifted import BinaryReduction, by_part
from bayescal.data.checks import check_level
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

    _takes_posteriors = True

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
        return self._normalize(self._by_class(state, scores), scores)

    def _by_class(self, state: State, scores: XArray) -> XArray:
        """Compute the calibrated probabilities (m, k) of each class against the rest."""
        xp, parts, probs = namespace(scores), by_part(state), _probabilities(scores)
        columns = []
        for j in range(scores.shape[1]):
            class_state = parts.get(f"class{j}")
            if class_state is None:
                columns.append(probs[:, j] * state["missing_factor"][j])
            else:
                at = self._against_others(scores, j)
                columns.append(self._binary._apply_in_blocks(class_state, at)[:, 1])
        return xp.stack(columns, axis=1)

    def _normalize(self, calibrated: XArray, scores: XArray) -> XArray:
        xp = namespace(scores)
        total = xp.sum(calibrated, axis=1, keepdims=True)
        safe = xp.where(total > 0, total, 1.0)
        return xp.where(total > 0, calibrated / safe, _probabilities(scores))

    @available_if(lambda self: self._has_posterior())
    @dispatched
    def predict_interval(
        self, scores: ArrayLike, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        r"""Compute central credible intervals of the calibrated probabilities.

        Let g be the calibrated probability of a class against the rest, [l, u] its interval, and p
        the probability after normalization. The ends differ from p by as much as l and u from g,
        in log odds. The lower end is

        .. math:: \operatorname{logit}^{-1}(\operatorname{logit} p + \operatorname{logit} l -
            \operatorname{logit} g)

        This is exact if the other classes fill the remainder in fixed proportions. In simulations
        of 60 to 1,000 rows of three and ten classes, whose log probabilities were twice too
        extreme, 90 % intervals of ``Beta(inference="laplace")`` contained 86 to 94 % of the true
        probabilities, those of ``Logistic(inference="laplace")`` 84 to 93 %, and those of
        ``AveragedBeta()`` 96 to 99 %.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m, k)
            For two classes (m,): intervals of the second class.
        """
        check_is_fitted(self)
        return predict_ends(self, self._precomputed(self.state_), scores, check_level(level))

    def _has_posterior(self) -> bool:
        return getattr(self._binary, "inference", "map") != "map" or self._binary._has_ends({})

    def _has_ends(self, state: State) -> bool:
        return self._has_posterior()

    def _map_ends(self, state: State, scores: XArray, level: float) -> XArray:
        return map_ends(self, state, scores, level)

    def _ends(self, state: State, scores: XArray, level: float) -> XArray:
        """Compute the ends (m, 2, k) of intervals."""
        xp, parts, probs = namespace(scores), by_part(state), _probabilities(scores)
        binary: AnyModel = self._binary
        columns = []
        for j in range(scores.shape[1]):
            class_state = parts.get(f"class{j}")
            if class_state is None:
                # Quantiles of an exponential distribution, which is the posterior of the rate.
                tails = (1 - level) / 2, (1 + level) / 2
                rates = [-math.log1p(-tail) * state["missing_factor"][j] for tail in tails]
                ends = xp.stack([probs[:, j] * rate for rate in rates], axis=1)
            else:
                ends = binary._ends(class_state, self._against_others(scores, j), level)
            columns.append(ends if ends.ndim == 2 else ends[:, :, 1])
        each = self._by_class(state, scores)
        shift = _log_odds(self._normalize(each, scores)) - _log_odds(each)
        return sigmoid(_log_odds(xp.stack(columns, axis=2)) + shift[:, None, :])

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


def _log_odds(probs: XArray) -> XArray:
    """Compute finite log odds of probabilities."""
    xp = namespace(probs)
    probs = xp.clip(probs, FLOOR, 1 - float(xp.finfo(probs.dtype).eps) / 2)
    return xp.log(probs) - xp.log1p(-probs)
