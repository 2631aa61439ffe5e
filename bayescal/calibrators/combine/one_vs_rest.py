"""A binary calibrator for each class against the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayescal._core.arrays import XArray, namespace
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.combine.lifted import BinaryReduction, by_part
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
        ``inputs`` and ``classes`` are ignored, and it cannot have a posterior. The default is
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

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        state: State = {}
        k = scores.shape[1]
        present = np.bincount(y, minlength=k) > 0
        xp = namespace(scores)
        expected = np.asarray(xp.asarray(weights) @ xp.exp(scores))
        state["missing_factor"] = np.where(present, 1.0, 1 / (1 + expected))
        statuses = np.zeros(k, int)
        for j in np.flatnonzero(present).tolist():
            labels = (y == j).astype(int)
            class_state = self._binary._fit(
                Rows(self._against_others(scores, j), labels, weights), seed
            )
            statuses[j] = int(class_state.get("status", 0))
            state |= {f"class{j}/{name}": value for name, value in class_state.items()}
        return {**state, "statuses": statuses, "status": statuses.max()}

    def _apply(self, state: State, scores: XArray) -> XArray:
        xp, parts = namespace(scores), by_part(state)
        probs = xp.exp(scores)
        probs = probs / xp.sum(probs, axis=1, keepdims=True)
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
        return xp.where(total > 0, calibrated / xp.where(total > 0, total, 1.0), probs)

    def _against_others(self, scores: XArray, j: int) -> XArray:
        """Compute the scores (n,) or two logits (n, 2) that the calibrator of class j takes."""
        xp, log_prob = namespace(scores), scores[:, j]
        # log(1 - p) from the other classes, without loss of digits if p is nearly one.
        others = xp.concat([scores[:, :j], scores[:, j + 1 :]], axis=1)
        top = xp.max(others, axis=1)
        rest = top + xp.log(xp.sum(xp.exp(others - top[:, None]), axis=1))
        return self._binary_scores(rest, log_prob, log_prob)
