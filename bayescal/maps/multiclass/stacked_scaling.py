"""A stack of structured fits to the scores of several classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from bayescal._core.blas import single_threaded_blas
from bayescal._core.checks import check_choice, check_count
from bayescal._core.numerics import log_softmax
from bayescal._core.optimise import Status
from bayescal.maps._map import State
from bayescal.maps.multiclass._draws import blocks
from bayescal.maps.multiclass._folds import folds_by_content
from bayescal.maps.multiclass._map import Domain, MulticlassMap, register_multiclass
from bayescal.maps.multiclass._member import (
    Member,
    enlarge,
    make_design,
    penalties,
    smooth,
)
from bayescal.multinomial._fit import Prepared, fit_on_host
from bayescal.multinomial._objective import change
from bayescal.multinomial._temperature import fit_inverse_temperature

__all__ = ["StackedScaling"]

MEMBERS = {
    "temperature": Member(30, 30),
    "vector": Member(3, 3),
    "probability": Member(3, 3, 1, (1, 0.3)),
    "both": Member(3, 3, 1, (1, 0.3), (3, 3)),
    "weak": Member(0.3, 0.3, 0.1, (0.01, 0.01), (0.1, 0.03)),
}
#: Of many classes: k (k - 1) makes penalties off the diagonal of the others very strong.
WEAKER = {"weaker": Member(0.1, 0.1, 0.03, (0.001, 0.001), (0.01, 0.003))}
#: Of very many, no matrices.
PLAIN = {
    "temperature": Member(30, 30),
    "vector": Member(3, 3),
    "certainty": Member(3, 3, 1),
    "loose": Member(0.3, 0.3, 0.1),
}
MANY, VERY_MANY = 30, 300
_SINGLE = "probability"
#: Prior weight of each member of the stack, in rows: that of Dirichlet(2).
_PRIOR = 1.0
_ROUNDS = 500
#: Of log inverse temperatures.
_MOST = 4.0
_TOLERANCE = 1e-6
#: What decides between members need not be known to more digits.
_ROUGH = 1e-4
#: So many scores are worth threads for folds.
_LARGE = 20_000


class _Fit(NamedTuple):
    """A scale, and the parameters of each member."""

    inverse: float
    smoothing: float
    thetas: list[np.ndarray]
    prepared: list[Prepared | None]
    status: Status


@register_multiclass
@dataclass(frozen=True)
class StackedScaling(MulticlassMap):
    r"""Structured fits from strongly to weakly shrunk, mixed by weights from cross-validation.

    With x the logarithms of temperature-scaled probabilities, mixed with the uniform distribution
    in the proportion :math:`e = 1 / (n + 1)` as in :class:`StructuredVector`, and q their
    exponentials, the logits of a member are

    .. math:: x \circ (1 + v + T(x) \cdot t) + b + 4 W q + U (x - \bar x)

    where T are the greatest probability, its square, its distance from the second and the entropy,
    all less a constant. A member minimises the mean cross-entropy plus

    .. math:: \frac kn \Bigl(c_b \|b\|^2 + c_v \|v\|^2 + d_W \sum_i W_{ii}^2 + d_U \sum_i U_{ii}^2
              \Bigr) + \frac{c_t}{n} \|t\|^2 + \frac{k (k - 1)}{n} \sum_{i \ne j}
              \bigl(o_W W_{ij}^2 + o_U U_{ij}^2\bigr).

    ============= ===== ===== ===== ========= =========
    member        c_b   c_v   c_t   d_W, o_W  d_U, o_U
    ============= ===== ===== ===== ========= =========
    temperature   30    30
    vector        3     3
    probability   3     3     1     1, 0.3
    both          3     3     1     1, 0.3    3, 3
    weak          0.3   0.3   0.1   .01, .01  .1, .03
    weaker        0.1   0.1   .03   1e-3 each .01, 3e-3
    ============= ===== ===== ===== ========= =========

    The last stands for "both" if there are 30 classes or more. For more than 300 there are no
    matrices, whose k^2 coefficients would take minutes: beside the first two there are
    "certainty" with (3, 3, 1) and "loose" with (.3, .3, .1).

    The prediction is a mixture of theirs. Its weights maximise the likelihood of the labels by
    members fitted without the fold of each, with the prior Dirichlet(2): so the stack learns how
    much structure n rows of k classes can bear.

    Parameters
    ----------
    mode : {"stack", "single"}
        "single" is the member "probability", or "certainty", alone, without cross-validation.
    folds : int, optional
        Of the stack: stratified, drawn by the seed and the content of rows, whatever their order.
        By default 5, or 3 if there are 30 classes or more, where a fit takes longer.

    Notes
    -----
    O(n k^2) time for each of some tens of products, for each member and fold.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.log([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])
    >>> x, y = np.repeat(x, 4, axis=0), np.array([0, 0, 1, 2, 1, 1, 0, 2, 2, 2, 1, 0])
    >>> calibration = StackedScaling()
    >>> state = calibration.fit(x, y, np.ones(12), seed=0)
    >>> calibration.apply(state, x[:1]).round(2).tolist()
    [[0.48, 0.28, 0.24]]
    """

    mode: Literal["stack", "single"] = "stack"
    folds: int | None = None

    name: ClassVar[str] = "stacked_scaling"

    def __post_init__(self) -> None:
        check_choice(self.mode, "mode", ("stack", "single"))
        if self.folds is not None and check_count(self.folds, "folds") < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}")

    @property
    def domain(self) -> Domain:
        return "logits"

    def members(self, k: int) -> dict[str, Member]:
        """Return the members by name, the strongest penalties first."""
        if self.mode == "single":
            name = _SINGLE if k <= VERY_MANY else "certainty"
            return {name: {**MEMBERS, **PLAIN}[name]}
        if k > VERY_MANY:
            return PLAIN
        if k < MANY:
            return MEMBERS
        return {name: own for name, own in MEMBERS.items() if name != "both"} | WEAKER

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        names, members = zip(*self.members(scores.shape[1]).items(), strict=True)
        with single_threaded_blas():
            found = _fit(members, scores, y, weights, None)
        state: State = {
            "inverse": np.asarray(found.inverse),
            "smoothing": np.asarray(found.smoothing),
            "stack_weights": np.ones(1),
            "status": np.asarray(int(found.status)),
        }
        for name, theta in zip(names, found.thetas, strict=True):
            state[f"theta_{name}"] = theta
        if self.mode == "stack":
            held = self._held_out(members, scores, y, weights, seed, found)
            share = _mix(held, weights)
            state["stack_weights"] = share
            state["held_out_mean_losses"] = -(weights @ held) / weights.sum()
            state["held_out_losses"] = -_log_mean(held, share)
        return state

    def _held_out(
        self,
        members: Sequence[Member],
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        seed: int,
        whole: _Fit,
    ) -> np.ndarray:
        """Return log probabilities (n, members) of the labels, each by fits to the other folds."""
        held = np.empty((len(y), len(members)))
        count = self.folds or (5 if scores.shape[1] < MANY else 3)
        folds = folds_by_content(scores, y, count, seed)
        if folds.max() == 0:
            return _log_probabilities(members, whole, scores)[:, :, 0] * 0

        def one(fold: int) -> None:
            out = folds == fold
            found = _fit(members, scores[~out], y[~out], weights[~out], whole)
            logs = _log_probabilities(members, found, scores[out])
            held[out] = np.take_along_axis(logs, y[out][:, None, None], axis=2)[:, :, 0]

        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        with single_threaded_blas(), ThreadPoolExecutor(cores) as pool:
            each = pool.map if scores.size >= _LARGE and cores > 1 else map
            list(each(one, range(folds.max() + 1)))
        return held

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        names, members = zip(*self.members(scores.shape[1]).items(), strict=True)
        thetas = [state[f"theta_{name}"] for name in names]
        found = _Fit(
            float(state["inverse"]), float(state["smoothing"]), thetas, [], Status.CONVERGED
        )
        probs = np.empty(scores.shape)
        for part in blocks(*scores.shape):
            logs = _log_probabilities(members, found, scores[part])
            probs[part] = np.einsum("m,nmk->nk", state["stack_weights"], np.exp(logs))
        return probs


def _fit(
    members: Sequence[Member],
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    whole: _Fit | None,
) -> _Fit:
    """Fit the scale and all members; from those of all rows, if given."""
    most = np.exp(_MOST)
    inverse = float(np.clip(fit_inverse_temperature(scores, y, weights).inverse, 1 / most, most))
    smoothing = 1 / (weights.sum() + 1)
    x = smooth(scores, inverse, smoothing)
    k = x.shape[1]
    thetas, prepared, status = [], [], Status.CONVERGED
    for place, member in enumerate(members):
        design, penalty = make_design(member, x, y, weights), penalties(member, k)
        if whole is not None:
            start, ready, precise = whole.thetas[place], whole.prepared[place], _ROUGH
        else:
            near = enlarge(thetas[-1], members[place - 1], member, k) if thetas else None
            start, ready, precise = near, None, _TOLERANCE
        best, ready = fit_on_host(design, penalty, start, ready, precise, limits=False)
        thetas.append(best.x)
        prepared.append(ready)
        status = max(status, Status(int(best.status)))
    return _Fit(inverse, smoothing, thetas, prepared, status)


def _log_probabilities(members: Sequence[Member], found: _Fit, scores: np.ndarray) -> np.ndarray:
    """Return log probabilities (n, members, k)."""
    x = smooth(scores, found.inverse, found.smoothing)
    logs = np.empty((len(x), len(members), x.shape[1]))
    nobody = np.zeros(len(x), int)
    for place, (member, theta) in enumerate(zip(members, found.thetas, strict=True)):
        design = make_design(member, x, nobody, nobody)
        logs[:, place] = log_softmax(x + change(design, theta))
    return logs


def _log_mean(logs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return log(exp(logs) @ weights) (n,) of logs (n, q)."""
    top = logs.max(axis=1)
    return top + np.log(np.exp(logs - top[:, None]) @ weights)


def _mix(held: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weights (members,) of mixtures of log probabilities (n, members) of what was seen."""
    parts = np.exp(held - held.max(axis=1, keepdims=True))
    share = np.full(held.shape[1], 1 / held.shape[1])
    total = weights.sum() + _PRIOR * len(share)
    for _ in range(_ROUNDS):
        mixed = parts @ share
        share = (share * ((weights / mixed) @ parts) + _PRIOR) / total
    return share
