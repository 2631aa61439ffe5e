"""A calibrator of two classes for each class against the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayescal._core.arrays import namespace
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.combine.lifted import Lifted, by_part
from bayescal.data.rows import Rows, Source

__all__ = ["OneVsRest"]


@dataclass(eq=False, repr=False)
class OneVsRest(Lifted):
    r"""A calibrator of two classes for each class against the others, then normalized.

    .. math:: \hat p_j = g_j(p_j) / \sum_i g_i(p_i)

    Calibrators of log odds get log(p_j / (1 - p_j)). Rows for which all g are zero keep their
    probabilities. A class without a label keeps its probability, divided by one more than its
    expected number of labels (the posterior mean of a rate with a prior of Gamma(1, 1)). Time is
    that of k calibrators.

    Parameters
    ----------
    calibrator : Calibrator, optional
        Of two classes, as ``Isotonic()``, or of logits, as ``Temperature()``; its own ``inputs``
        and ``classes`` do not matter, and it cannot have a posterior. By default ``Logistic()``.

    Attributes
    ----------
    statuses_ : array of shape (k,)
        Of each class; ``status_`` is the worst.

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
            own = self._one._fit(Rows(self._against_others(scores, j), labels, weights), seed)
            statuses[j] = int(own.get("status", 0))
            state |= {f"class{j}/{name}": value for name, value in own.items()}
        return {**state, "statuses": statuses, "status": statuses.max()}

    def _apply(self, state: State, scores: Any) -> Any:
        xp, parts = namespace(scores), by_part(state)
        probs = xp.exp(scores)
        probs = probs / xp.sum(probs, axis=1, keepdims=True)
        columns = []
        for j in range(scores.shape[1]):
            own = parts.get(f"class{j}")
            if own is None:
                columns.append(probs[:, j] * state["missing_factor"][j])
            else:
                at = self._against_others(scores, j)
                columns.append(self._one._apply_in_blocks(own, at)[:, 1])
        found = xp.stack(columns, axis=1)
        total = xp.sum(found, axis=1, keepdims=True)
        return xp.where(total > 0, found / xp.where(total > 0, total, 1.0), probs)

    def _against_others(self, scores: Any, j: int) -> Any:
        """Return what the calibrator of class j works on (n,), or two logits (n, 2)."""
        xp, own = namespace(scores), scores[:, j]
        # log(1 - p) without loss where p is nearly one: from the other classes.
        others = xp.concat([scores[:, :j], scores[:, j + 1 :]], axis=1)
        top = xp.max(others, axis=1)
        rest = top + xp.log(xp.sum(xp.exp(others - top[:, None]), axis=1))
        return self._scores(rest, own, own)
