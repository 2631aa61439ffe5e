"""A stack of structured fits to the scores of several classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.blas import single_threaded_blas
from bayescal._core.checks import check_choice, check_count
from bayescal._core.optimise import Status
from bayescal.maps._map import State
from bayescal.maps.multiclass._draws import blocks, summarise
from bayescal.maps.multiclass._folds import folds_by_content
from bayescal.maps.multiclass._map import (
    Domain,
    ParametricMulticlassMap,
    register_multiclass,
)
from bayescal.maps.multiclass._member import Member
from bayescal.maps.multiclass._stack import (
    Stack,
    apply_draws,
    fit_members,
    label_log_probabilities,
    log_probabilities,
    mix,
    sample_stack,
)
from bayescal.regression.posterior import Draws

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
#: Of very many, no matrices but for a few directions.
PLAIN = {
    "temperature": Member(30, 30),
    "vector": Member(3, 3),
    "certainty": Member(3, 3, 1),
    "loose": Member(0.3, 0.3, 0.1),
    "directions": Member(0.3, 0.3, 0.1, directions=(50, 0.01)),
}
MANY, VERY_MANY = 30, 300
_SINGLE = "probability"
#: So many scores are worth threads for folds.
_LARGE = 20_000


@register_multiclass
@dataclass(frozen=True)
class StackedScaling(ParametricMulticlassMap):
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
    such matrices, whose k^2 coefficients would take minutes: beside the first two there are
    "certainty" with (3, 3, 1), "loose" with (.3, .3, .1), and "directions", which is "loose" and
    a matrix, with o = .01, for the 50 main directions of :math:`x - \bar x`.

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
    O(n k^2) time for each of some tens of products, for each member and fold; for more than 300
    classes O(n k). What the directions cost there can be seen with fewer: on three networks of 100
    classes, with 5,000 rows, log losses are by .0009 to .0071 greater than with whole matrices, and
    without directions by .0070 to .0414.

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
        """Fit all members, and those of each fold."""
        names, members = self._named(scores.shape[1])
        with single_threaded_blas():
            found = fit_members(members, scores, y, weights)
        state: State = {
            "inverse": np.asarray(found.inverse),
            "smoothing": np.asarray(found.smoothing),
            "basis": found.basis,
            "stack_weights": np.ones(1),
            "status": np.asarray(int(found.status)),
        }
        for name, theta in zip(names, found.thetas, strict=True):
            state[f"theta_{name}"] = theta
        if self.mode == "stack":
            held = self._held_out(members, scores, y, weights, seed, found)
            if held is None:
                state["stack_weights"] = np.full(len(members), 1 / len(members))
                return state
            state["stack_weights"] = mix(held, weights)
            state["held_out_mean_losses"] = -(weights @ held) / weights.sum()
            state["held_out"] = held
        return state

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Mix the members' probabilities, in blocks of rows."""
        names, members = self._named(scores.shape[1])
        found = _stack(state, [state[f"theta_{name}"] for name in names])
        probs = np.empty(scores.shape)
        for part in blocks(len(scores), len(members) * scores.shape[1]):
            logs = log_probabilities(members, found, scores[part])
            probs[part] = np.einsum("m,nmk->nk", state["stack_weights"], np.exp(logs))
        return probs

    def describe(self, theta: np.ndarray, k: int, unit: float) -> State:
        """Return each member's parameters, the weights, the scale, and the member of a draw."""
        names, members = self._named(k)
        ends = np.cumsum([member.count(k) for member in members])
        parts = np.split(theta, ends, axis=-1)
        return {f"theta_{name}": own for name, own in zip(names, parts[:-1], strict=True)} | {
            "stack_weights": parts[-1][..., :-2],
            "inverse": parts[-1][..., -2],
            "member": parts[-1][..., -1],
        }

    def sample(
        self,
        state: State,
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        inference: str,
        num_samples: int,
        seed: int,
    ) -> Draws:
        """Return draws (chains, draws, p): of all members, the weights, the scale, and a member.

        Penalties are priors; the weights are those of resampled rows, a Bayesian bootstrap. Of more
        than 3,000 parameters of a member each draw is the solution of a linear system: with 100
        classes a draw takes about a tenth of a second.
        """
        names, members = self._named(scores.shape[1])
        found = _stack(state, [state[f"theta_{name}"] for name in names])
        rows = scores, y, weights
        held = state.get("held_out")
        return sample_stack(members, found, held, rows, inference, num_samples, seed)

    def predict_draws(
        self, state: State, theta: np.ndarray, scores: np.ndarray, level: float | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Do as the base class says, in blocks of rows: O(s m k^2) time."""
        names, members = self._named(scores.shape[1])
        drawn = self.describe(theta, scores.shape[1], 1.0)
        found = _stack(state, [drawn[f"theta_{name}"] for name in names])

        def curves(block: np.ndarray) -> np.ndarray:
            return apply_draws(members, found, drawn["member"], drawn["inverse"], block)

        return summarise(curves, scores, len(theta), level)

    def _named(self, k: int) -> tuple[tuple[str, ...], tuple[Member, ...]]:
        names, members = zip(*self.members(k).items(), strict=True)
        return names, members

    def _held_out(
        self,
        members: Sequence[Member],
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        seed: int,
        whole: Stack,
    ) -> np.ndarray | None:
        """Return log probabilities (n, members) of the labels, each by fits to the other folds.

        None if all rows are equal: they share a fold.
        """
        held = np.empty((len(y), len(members)))
        count = self.folds or (5 if scores.shape[1] < MANY else 3)
        folds = folds_by_content(scores, y, count, seed)
        if folds.max() == 0:
            return None

        def one(fold: int) -> None:
            out = folds == fold
            found = fit_members(members, scores[~out], y[~out], weights[~out], whole)
            held[out] = label_log_probabilities(members, found, scores[out], y[out])

        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        with single_threaded_blas(), ThreadPoolExecutor(cores) as pool:
            each = pool.map if scores.size >= _LARGE and cores > 1 else map
            list(each(one, range(folds.max() + 1)))
        return held


def _stack(state: State, thetas: list[np.ndarray]) -> Stack:
    scale, smoothing = float(state["inverse"]), float(state["smoothing"])
    return Stack(scale, smoothing, state["basis"], thetas, [], Status.CONVERGED)
