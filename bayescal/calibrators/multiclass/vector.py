"""Vector scaling of logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bayescal._core.arrays import namespace
from bayescal._core.numerics import softmax, unit_of
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.multiclass.linear import LinearCalibrator
from bayescal.calibrators.multiclass.top_logits.calibrator import TopLogitsCalibrator
from bayescal.calibrators.multiclass.top_logits.fits import (
    NUMBERS,
    Layout,
    expected,
    fit_factors,
    fit_top_inverse,
    hits,
)
from bayescal.data.rows import Source
from bayescal.data.top_logits import offsets, top_probabilities, unpack

__all__ = ["Vector"]


@dataclass(eq=False, repr=False)
class Vector(TopLogitsCalibrator, LinearCalibrator):
    r"""Vector scaling: each class's logit times a factor, plus an intercept.

    .. math:: \hat p = \operatorname{softmax}(v \circ z + b)

    Maximum likelihood, by Newton's method: O(n k) for each of some tens of products with the
    Hessian. Factors may be negative. Intercepts are centered: only their differences matter.

    Of truncated logits (``inputs="top_logits"``, see :class:`Temperature`) a class that is a label
    among the top somewhere has a factor and an intercept of its own there; all other classes, and
    the rest of a row, have those of one pair (v, b) in common:

    .. math:: \hat p_j \propto e^{v_j z_j + b_j}, \qquad
       \hat p_{rest} \propto (k - m)\, e^{v (r - \ln(k - m)) + b}

    Where all labels are among the top, nothing says what the pair is: its classes keep their
    probabilities after temperature scaling, divided by one more than the number of labels that
    these expect. Blocks are read once for each product with the Hessian, some tens of times.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (k,)
        Of the classes that occur. Of truncated logits (k + 1,), last those of the rest.
    gradient_norm_ : float
        Largest entry of the gradient of the mean loss.

    References
    ----------
    C. Guo et al. (2017), On calibration of modern neural networks.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> bc.Vector().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.54, 0.32, 0.15]]
    """

    gradient_norm_: float = field(init=False)

    def _fit_whole(self, rows: Source, seed: int) -> State:
        return LinearCalibrator._fit(self, rows, seed)

    def _fit_top(self, rows: Source, k: int) -> State:
        labels = rows.total(partial(hits, k), numbers=NUMBERS)
        present, shared = labels["hits"] > 0, bool(labels["misses"] > 0)
        own = int(present.sum())
        # Classes without labels among the top share the parameters of all others.
        group = np.where(present, np.cumsum(present) - 1, own)
        unit = float(np.clip(unit_of(rows.largest, 1e4), 2.0**-500, 2.0**500))
        inverse = fit_top_inverse(rows, k).x
        found = fit_factors(rows, Layout(group, own + 1, shared, unit), inverse)
        intercept, more = found.x.reshape(2, -1)
        place = np.append(group, own)
        state = {
            "k": np.asarray(k),
            "coef": ((1 + more) / unit)[place],
            "intercept": (intercept - intercept[: own + shared].mean())[place],
            "objective": np.asarray(found.value / rows.weight),
            "gradient_norm": np.asarray(np.abs(np.asarray(found.gradient)).max() / rows.weight),
            "n_iter": np.asarray(int(found.iterations)),
            "status": np.asarray(int(found.status)),
        }
        if shared:
            return state
        mass = rows.total(partial(expected, inverse, k), numbers=NUMBERS)["expected"]
        factor = np.where(np.append(present, False), 0.0, 1 / (1 + mass))
        return {**state, "missing_inverse": np.asarray(inverse), "missing_factor": factor}

    def _apply_top(self, state: State, rows: Any, k: int) -> Any:
        top, xp = unpack(rows, k), namespace(rows)
        (n, c), m = top.x.shape, top.indices.shape[1]
        others = xp.full_like(top.indices[:, : c - m], k)
        places = xp.reshape(xp.concat([top.indices, others], axis=1), (-1,))

        def each(name: str) -> Any:
            return xp.reshape(xp.take(state[name], places, axis=0), (n, c))

        logits = top.x * each("coef") + each("intercept") + offsets(top)
        if "missing_factor" not in state:
            return softmax(logits)
        factor = each("missing_factor")
        present = factor == 0
        known = softmax(xp.where(present, logits, xp.full_like(logits, -1e30)))
        lost = top_probabilities(top, state["missing_inverse"]) * factor
        left = xp.sum(lost, axis=1, keepdims=True)
        some = xp.any(present, axis=1, keepdims=True)
        # Rows all of whose classes lacked labels.
        lost = lost / xp.where(some, xp.ones_like(left), left)
        return xp.where(present, known * (1 - left), lost)

    def _centered(self, coef: Any, intercept: Any) -> tuple[Any, Any]:
        return coef, intercept - namespace(intercept).mean(intercept, axis=-1, keepdims=True)
