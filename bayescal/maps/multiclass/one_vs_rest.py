"""Any binary map for each class against the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bayescal.maps._map import Map, State
from bayescal.maps.logistic import Logistic
from bayescal.maps.multiclass._map import Domain, MulticlassMap, register_multiclass

__all__ = ["OneVsRest"]


@register_multiclass
@dataclass(frozen=True)
class OneVsRest(MulticlassMap):
    r"""A binary map for each class against the others, then normalised.

    .. math:: \hat p_j = g_j(p_j) / \sum_i g_i(p_i)

    Maps of log odds get log(p_j / (1 - p_j)). Rows for which all g are zero keep their
    probabilities. A class without a label keeps its probability, divided by one more than its
    expected number of labels (the posterior mean of a rate with a prior of Gamma(1, 1)). Time is
    that of k binary maps.

    Parameters
    ----------
    binary : Map
        From ``bayescal.maps``.

    References
    ----------
    B. Zadrozny, C. Elkan (2002), Transforming classifier scores into accurate multiclass
    probability estimates.

    Examples
    --------
    >>> import numpy as np
    >>> from bayescal.maps import Isotonic
    >>> log_p = np.log([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 2)
    >>> calibration = OneVsRest(Isotonic())
    >>> state = calibration.fit(log_p, np.array([0, 1, 2, 0, 1, 1]), np.ones(6), seed=0)
    >>> calibration.apply(state, log_p[:1]).round(2).tolist()
    [[0.8, 0.2, 0.0]]
    """

    name: ClassVar[str] = "one_vs_rest"
    binary: Map = field(default_factory=Logistic)

    @property
    def domain(self) -> Domain:
        return "log_probability"

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        state: State = {}
        k = scores.shape[1]
        present = np.bincount(y, minlength=k) > 0
        expected = weights @ np.exp(scores)
        state["missing_factor"] = np.where(present, 1.0, 1 / (1 + expected))
        statuses = np.zeros(k, int)
        for j in np.flatnonzero(present).tolist():
            own = self.binary.fit(self._column(scores, j), (y == j).astype(int), weights)
            statuses[j] = int(own.get("status", 0))
            state |= {f"class{j}/{name}": value for name, value in own.items()}
        return {**state, "statuses": statuses, "status": statuses.max()}

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        probs = np.exp(scores, dtype=float)
        probs /= probs.sum(axis=1, keepdims=True)
        found = probs * state["missing_factor"]
        for j in range(scores.shape[1]):
            prefix = f"class{j}/"
            own = {n[len(prefix) :]: v for n, v in state.items() if n.startswith(prefix)}
            if own:
                values = self.binary.apply(own, self._column(scores, j))
                found[:, j] = np.clip(values, 0.0, 1.0)
        total = found.sum(axis=1, keepdims=True)
        return np.where(total > 0, found / np.where(total > 0, total, 1), probs)

    def _column(self, scores: np.ndarray, j: int) -> np.ndarray:
        """Return what the binary map of a class works on (n,)."""
        own = scores[:, j].astype(float)
        if self.binary.domain in ("probability", "any"):
            return np.exp(own)
        # log(1 - p) without loss where p is nearly one: from the other classes.
        others = np.delete(scores, j, axis=1).astype(float)
        top = others.max(axis=1)
        rest = top + np.log(np.exp(others - top[:, None]).sum(axis=1))
        return own - rest
